"""Computes the documents that can be computed: docs/cli.md, docs/performance.md, the code map and the README's figures.

`python scripts/docs.py` writes them, `--check` only says which are not what this would write, with exit code 1.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import click

from slotpool.cli import VERBS, cli
from slotpool.report import performance, sheets
from slotpool.report.facts import Sheet

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- map: written by scripts/docs.py -->", "<!-- end of map -->"
MAPPED = ("core", "src/slotpool", "testkit", "benchmarks", "training", "scripts")
sys.path.insert(0, str(ROOT))
FIGURES, END_OF_FIGURES = "<!-- figures: written by scripts/docs.py -->", "<!-- end of figures -->"
RECORDS = ROOT / "benchmarks/records"
_WIDTH = 100


def cli_page() -> str:
    """docs/cli.md: the help of every verb."""
    parts = ["# The command line\n\nWritten by `scripts/docs.py` from the help of the verbs.\n"]
    with click.Context(cli, info_name="slotpool", terminal_width=_WIDTH, max_content_width=_WIDTH, **cli.context_settings) as parent:
        parts.append(f"## slotpool\n\n```\n{cli.get_help(parent)}\n```\n")
        for verb in VERBS:
            command = cli.get_command(parent, verb)
            assert command is not None
            with click.Context(command, info_name=verb, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH) as ctx:
                parts.append(f"## slotpool {verb}\n\n```\n{command.get_help(ctx)}\n```\n")
    return "\n".join(parts)


def architecture_page() -> str:
    """ARCHITECTURE.md with its map brought up to date."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    head, rest = page.split(BEGIN)
    return head + BEGIN + "\n" + code_map() + END + rest.split(END)[1]


def performance_page(folder: Path = RECORDS) -> str:
    """docs/performance.md: what the records in `folder` say."""
    from benchmarks.order import ALL

    return performance.page(_sheets(folder), {one.name: one.seconds for one in ALL})


def readme_page(folder: Path = RECORDS) -> str:
    """README.md with its short table of figures brought up to date."""
    page = (ROOT / "README.md").read_text()
    head, rest = page.split(FIGURES)
    table = performance.short_table(_sheets(folder))
    return head + FIGURES + "\n\n" + "\n".join(table) + END_OF_FIGURES + rest.split(END_OF_FIGURES)[1]


def _sheets(folder: Path) -> list[Sheet]:
    return [sheet for path in sorted(folder.glob("*.jsonl")) for sheet in sheets.read([path], shown=path.name)]


def code_map() -> str:
    """A line per file: its path and the first sentence it says about itself."""
    lines = []
    for top in MAPPED:
        lines.append(f"\n| {top}/ | |\n|---|---|")
        lines.extend(f"| `{path.relative_to(ROOT / top)}` | {purpose(path)} |" for path in _files(ROOT / top))
    return "\n".join(lines) + "\n"


def purpose(path: Path) -> str:
    """The first sentence of a module's docstring or of a C++ file's leading comment."""
    text = path.read_text(errors="replace")
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    else:
        said = "\n".join(line.lstrip("/# ") for line in _leading_comment(text))
    first = re.split(r"(?<=[.])\s|\n\n", said.strip(), maxsplit=1)[0]
    return " ".join(first.split()).replace("|", "\\|")


def _leading_comment(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.startswith("#!")]
    end = next((i for i, line in enumerate(lines) if not line.startswith(("//", "# "))), len(lines))
    return lines[:end]


def _files(top: Path) -> list[Path]:
    found = [path for path in sorted(top.rglob("*")) if path.suffix in (".py", ".h", ".cpp", ".sh") and "__pycache__" not in path.parts]
    # a source whose header speaks for it is not listed twice
    return [path for path in found if not (path.suffix == ".cpp" and path.with_suffix(".h").exists())]


def pages() -> dict[Path, str]:
    """Every computed document and what belongs into it."""
    made = {
        "docs/cli.md": cli_page,
        "ARCHITECTURE.md": architecture_page,
        "docs/performance.md": performance_page,
        "README.md": readme_page,
    }
    return {ROOT / name: compute() for name, compute in made.items()}


def main(arguments: list[str]) -> int:
    """Writes what is stale, or with `--check` names it: 1 when there is something, 0 when not."""
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text}
    if arguments == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what scripts/docs.py writes. Run it.", file=sys.stderr)
        return 1 if stale else 0
    for path, text in stale.items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
