"""Records of `prompt_stream`: prompts through a device's pool, in declared time. Reads them, judges nothing but the pairs."""

from __future__ import annotations

from slotpool.report import words
from slotpool.report.facts import Content, Figure, Headline, Ratio, Table, spread_of
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind, paired

_WAYS, _STOCK = ("stream", "auto"), "stock"
_OWN_PATH = "llama.cpp's own path"


def content(results: Field, flags: Field) -> Content:
    """A row per point; both ways against llama.cpp's own path, for a long prompt and for a chat."""
    cells = results["cells"].each()
    figures = [figure for cell in cells for figure in _figures(cell)]
    ratios = tuple(_ratio(cell, workload, way) for cell in cells for workload, _ in _workloads(cell) for way in _WAYS)
    return Content(tuple(figures), ratios, (_table(cells),), headlines=tuple(_headline(ratios, way) for way in _WAYS))


def _workloads(cell: Field) -> list[tuple[str, Field]]:
    return list(cell["arms"][_STOCK]["speeds"].items())


def _where(cell: Field, workload: str) -> str:
    return f"{workload}, link {cell['ratio'].number():g} of compute, {cell['share'].number():.0%} slots"


def _figures(cell: Field) -> list[Figure]:
    return [
        Figure(_OWN_PATH if arm == _STOCK else arm, "prompt", "tokens/s", found["speeds"][workload].spread(), _where(cell, workload))
        for workload, _ in _workloads(cell)
        for arm, found in cell["arms"].items()
    ]


def _ratio(cell: Field, workload: str, way: str) -> Ratio:
    mine, stock = (cell["arms"][arm]["speeds"][workload].spread() for arm in (way, _STOCK))
    pairs = zip(mine.samples or (mine.median,), stock.samples or (stock.median,), strict=False)
    return paired(way, _OWN_PATH, "prompt", spread_of([a / b for a, b in pairs if b > 0] or [0.0]), _where(cell, workload))


def _table(cells: list[Field]) -> Table:
    names = [workload for workload, _ in _workloads(cells[0])] if cells else []
    gains = (f"{workload}, {way}" for workload in names for way in _WAYS)
    header = ("link / compute", "slots", *gains, *(f"{workload}, copies saved" for workload in names), "hits after bypass", "after stream")
    note = "Speeds over llama.cpp's own path; hits are those of the generation after the prompts."
    return Table("Prompts", header, tuple(_row(cell, names) for cell in cells), note, n_text=0)


def _row(cell: Field, names: list[str]) -> tuple[str, ...]:
    gains = (words.times(_ratio(cell, workload, way).spread.median) for workload in names for way in _WAYS)
    saved = (f"{cell['arms']['stream']['counts'][workload]['hit_rate'].number():.0%}" for workload in names)
    hits = (f"{cell[f'hit_rate_{way}'].number():.1%}" for way in ("bypass", "stream"))
    return (f"{cell['ratio'].number():g}", f"{cell['share'].number():.0%}", *gains, *saved, *hits)


def _headline(ratios: tuple[Ratio, ...], way: str) -> Headline:
    found = spread_of([one.spread.median for one in ratios if one.arm == way] or [0.0])
    what = f"prompts on a test device in declared time, {way} against {_OWN_PATH}, {found.n} points"
    return Headline(what, words.times(found.median), f"{words.times_between(found)} over the points")


KIND = Kind(
    "Prompts through a device's pool",
    "The chaos device in declared time, recorded routing of gpt-oss-20b: prompts that stream through the pool, and auto, which chooses, "
    "against llama.cpp's own path, which copies every expert that a prompt asks for. A long prompt into an empty pool, and a chat.",
    content,
)
