"""Records of `disk_tier`: a model larger than its memory. Reads them, judges nothing."""

from __future__ import annotations

from slotpool.report import words
from slotpool.report.facts import LOWER, NEITHER, Content, Figure, Ratio, Table, spread_of
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind, paired
from slotpool.report.tables import ratios_table

_COLUMNS = (
    ("steady_tps", "generation after the warm tokens", "tokens/s", "higher"),
    ("cold_tps", "generation from cold", "tokens/s", "higher"),
    ("prompt_tps", "prompt", "tokens/s", "higher"),
    ("ttft_seconds", "first token", "s", LOWER),
    ("peak_bytes", "peak memory", "bytes", LOWER),
    ("read_bytes", "read per token", "bytes", LOWER),
    ("hit_rate", "hit rate", "share", NEITHER),
)
_HEADER = ("tokens/s, warm", "from cold", "prompt", "first token, s", "peak memory", "read per token", "hit rate")
"""Of _COLUMNS, in short."""
_COMPARED = _COLUMNS[:4]
_SHORT = ("generation after the warm tokens", "prompt")
_BOUNDS = (("generation", "share"), ("prompt", "prompt_share"))


def content(results: Field, flags: Field) -> Content:
    """By cap: every arm, the pool over the best of plain, and its share of what disk and compute allow."""
    figures: list[Figure] = []
    ratios: list[Ratio] = []
    tables: list[Table] = []
    bounds: list[tuple[str, ...]] = []
    for cap, found in results["figures"].items():
        where, arms = _cap(cap), dict(found["arms"].items())
        mine = {name: _figures(name, numbers, where) for name, numbers in arms.items()}
        tables.append(Table(where, ("arm", *_HEADER, "failed"), _rows(mine, arms)))
        figures += [figure for some in mine.values() for figure in some.values()]
        ratios += _over_plain(mine, where)
        bounds += [
            _bound(where, what, [one[key].number() for one in found["bounds"].each()]) for what, key in _BOUNDS if found["bounds"].each()
        ]
    share = Table("Share of its bound", ("memory", "what", "median", "lowest to highest", "samples"), tuple(bounds), _NOTE, n_text=2)
    void = tuple(f"VOID, logits differ: {one.text()}" for one in results["unequal_logits"].each())
    return Content(
        tuple(figures),
        tuple(ratios),
        (*tables, ratios_table(ratios), share),
        notes=void or ("Logits equal in all exact arms.",),
        headlines=tuple(words.headline(one, f"experts on disk: {one.what}") for one in ratios if one.what in _SHORT),
    )


def _cap(name: str) -> str:
    return "no cap" if name == "0" else f"memory 1/{name} of the file"


def _figures(arm: str, numbers: Field, where: str) -> dict[str, Figure]:
    return {key: Figure(arm, what, unit, numbers[key].spread(), where, better) for key, what, unit, better in _COLUMNS if key in numbers}


def _rows(mine: dict[str, dict[str, Figure]], arms: dict[str, Field]) -> tuple[tuple[str, ...], ...]:
    rows = []
    for name, figures in mine.items():
        failed = [one.text() for one in arms[name]["failed"].each()]
        cells = [words.measured(figures[key].spread.median, figures[key].unit) if key in figures else "" for key, *_ in _COLUMNS]
        rows.append((name, *cells, failed[0] if failed else ""))
    return tuple(rows)


def _over_plain(mine: dict[str, dict[str, Figure]], where: str) -> list[Ratio]:
    """The pool's rounds over the median of the plain arm that is best at each."""
    ratios = []
    for key, what, _, better in _COMPARED:
        plain = {arm: some[key].spread.median for arm, some in mine.items() if not arm.startswith("pool") and key in some}
        pool = mine.get("pool", {}).get(key)
        if not plain or pool is None:
            continue
        best = (min if better == LOWER else max)(plain, key=lambda arm: plain[arm])
        samples = pool.spread.samples or (pool.spread.median,)
        if min(samples) > 0 and plain[best] > 0:
            over = spread_of([plain[best] / one if better == LOWER else one / plain[best] for one in samples])
            ratios.append(paired("pool", f"best of plain: {best}", what, over, where))
    return ratios


def _bound(where: str, what: str, shares: list[float]) -> tuple[str, ...]:
    found = spread_of(shares)
    return (where, what, f"{found.median:.2f}", f"{found.low:.2f} to {found.high:.2f}", str(found.n))


_NOTE = (
    "The bound is the lower of the speed with everything resident and the disk's speed, probed beside each run, over the bytes "
    "missed per token; reads that run under compute may be faster than the probe."
)
KIND = Kind(
    "Experts on disk, a model larger than memory",
    "The layout of gpt-oss-20b (7.1 GB) replays that model's recorded routing, each run a process in a memory control group of its "
    "own, page cache dropped before. Rounds are the pool's, against the median of the plain arm that is best at each.",
    content,
)
