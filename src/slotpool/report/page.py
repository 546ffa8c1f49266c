"""The frame of a page: title, tiles, figures and tables in one file of HTML, light or dark as the reader's system is.

No scripts and nothing from elsewhere: the page can be mailed and opened in ten years.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = (
    """
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f7f9; --ink: #1c2330; --dim: #5d6878; --rule: #dfe3e8;
  --c0: #0f6fc5; --c1: #c4560a; --c2: #12805c; --c3: #8a4fbe; --c4: #b08800; --c5: #c2335e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181f; --card: #1c222b; --ink: #e6eaf0; --dim: #9aa5b4; --rule: #323a46;
  --c0: #5aaef5; --c1: #f59a52; --c2: #4cc79b; --c3: #c39af0; --c4: #e0bd4a; --c5: #f07a9c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 32px 24px 64px; max-width: 1180px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 2px; }
.sub, .note, figcaption { color: var(--dim); }
.sub { margin: 0 0 20px; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(145px, 1fr)); gap: 12px; margin-bottom: 24px; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 12px 14px; }
.tile b { display: block; font-size: 22px; font-weight: 600; line-height: 1.25; }
.tile span { color: var(--dim); font-size: 13px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 500px), 1fr)); gap: 20px; }
figure { margin: 0; padding: 16px 18px; border: 1px solid var(--rule); border-radius: 8px; min-width: 0; }
figure.wide { grid-column: 1 / -1; }
figcaption { font-size: 13px; margin-bottom: 8px; }
svg { display: block; width: 100%; height: auto; }
.grid { stroke: var(--rule); } .mark { stroke: var(--dim); stroke-dasharray: 4 4; }
.tick { fill: var(--dim); font-size: 12px; } .axis { fill: var(--dim); font-size: 12px; } .label { font-size: 12.5px; font-weight: 600; }
.line { fill: none; stroke-width: 2.4; stroke-linejoin: round; }
.line.thin { stroke: var(--dim); stroke-width: 1; opacity: .3; }
.line.even { stroke: var(--dim); stroke-width: 1.4; stroke-dasharray: 5 5; }
.line.thin:hover { opacity: 1; stroke-width: 2.4; }
.label.even { fill: var(--dim); font-weight: 400; }
"""
    + "\n".join(
        f".line.s{i} {{ stroke: var(--c{i}); }} .dot.s{i} {{ fill: var(--c{i}); }} .label.s{i} {{ fill: var(--c{i}); }}" for i in range(6)
    )
    + """
.heat { display: grid; grid-template-columns: auto 1fr; gap: 6px 8px; font-size: 12px; color: var(--dim); }
.heat img { width: 100%; image-rendering: pixelated; display: block; border: 1px solid var(--rule); }
.heat .side { display: flex; flex-direction: column; justify-content: space-between; text-align: right; }
.heat .foot { grid-column: 2; display: flex; justify-content: space-between; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { color: var(--dim); font-weight: 600; } .text { text-align: left; white-space: normal; min-width: 110px; }
.contents { margin: 0 0 24px; line-height: 1.9; } a { color: var(--c0); } h2.part { font-size: 20px; margin: 44px 0 4px; }
.after { color: var(--dim); margin: 10px 0 0; }
.origin { color: var(--dim); font-size: 12.5px; margin: 8px 0 0; overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { .heat img { filter: brightness(1.5); } }
@media print { body { max-width: none; } figure { break-inside: avoid; } }
"""
)


def page(title: str, subtitle: str, parts: Sequence[str]) -> str:
    """A whole document."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
    body = f'<h1>{escape(title)}</h1><p class="sub">{escape(subtitle)}</p>{"".join(parts)}'
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>\n'


def tiles(pairs: Sequence[tuple[str, str]]) -> str:
    """Large values with their names."""
    cells = [f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in pairs]
    return f'<div class="tiles">{"".join(cells)}</div>'


def figures(parts: Sequence[str]) -> str:
    """Figures beside each other where there is room."""
    return f'<div class="figures">{"".join(parts)}</div>'


def figure(title: str, note: str, body: str, *, is_wide: bool = False) -> str:
    """A figure with its heading and what it shows; `body` is HTML already."""
    kind = ' class="wide"' if is_wide else ""
    return f"<figure{kind}><h2>{escape(title)}</h2><figcaption>{escape(note)}</figcaption>{body}</figure>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], is_words: Sequence[bool] = ()) -> str:
    """A table; columns are of words or of numbers, the first alone of words where nothing is said."""
    kinds = is_words or [index == 0 for index in range(len(header))]
    head = _cells("th", header, kinds)
    body = "".join(f"<tr>{_cells('td', row, kinds)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(tag: str, cells: Sequence[str], is_words: Sequence[bool]) -> str:
    kinds = [' class="text"' if words else "" for words in is_words]
    return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
