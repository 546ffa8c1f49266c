"""Records of `python -m benchmarks.gpu`: a pool on a real device against plain llama.cpp. Reads them, judges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slotpool.report import words
from slotpool.report.facts import Content, Figure, Headline, Ratio, Table, spread_of
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind
from slotpool.report.tables import figures_table, ratios_table

_MODELS = (("speed", "30B-A3B shapes, 8 layers"), ("bundled", "bundled model"))
_SPEEDS = (("decode_parts", "generation"), ("prompt", "prompt"))


def content(results: Field, flags: Field) -> Content:
    """Cells of the matrix, the link, every arm of both models, and each pool over the plain arm that is best at it."""
    steps = results["steps"].each()
    figures = tuple(figure for step in steps for figure in _figures(step))
    ratios = tuple(_ratios(figures))
    tables = [table for table in (_matrix(steps), _link(steps)) if table.rows]
    headlines = tuple(
        words.headline(one, f"on the GPU, generation, {one.arm}") for one in ratios if one.what == "generation" and "auto" in one.arm
    )
    return Content(
        figures, ratios, (*tables, figures_table(figures), ratios_table(ratios, note=_NOTE)), headlines=(*_cells(steps), *headlines)
    )


def _figures(step: Field) -> Iterator[Figure]:
    workload = next((text for name, text in _MODELS if step["step"].text().startswith(f"{name}-")), "")
    if not workload or "arm" not in step:
        return
    for key, what in _SPEEDS:
        yield Figure(step["arm"].text(), what, "tokens/s", step[key].spread(), workload)
    if "hit_rate" in step:
        yield Figure(step["arm"].text(), "hit rate", "share", step["hit_rate"].spread(), workload, is_counted=True)


def _ratios(figures: Sequence[Figure]) -> Iterator[Ratio]:
    for workload, what in dict.fromkeys((one.workload, one.what) for one in figures if one.unit == "tokens/s"):
        mine = [one for one in figures if (one.workload, one.what) == (workload, what)]
        # with its experts on the device a model fits there whole, which is nobody's case for a pool; it is a row of its own
        plain = [one for one in mine if one.arm.startswith("plain-cpu")]
        whole = [one for one in mine if one.arm == "plain-device"]
        best = max(plain, key=lambda one: one.spread.median, default=None)
        for pool in (one for one in mine if not one.arm.startswith("plain")):
            yield from (_over(pool, other) for other in (best, *whole) if other)


def _over(pool: Figure, plain: Figure) -> Ratio:
    """Parts of a run in order: both arms decode the same tokens in them."""
    mine, theirs = (one.spread.samples or (one.spread.median,) for one in (pool, plain))
    parts = [a / b for a, b in zip(mine, theirs, strict=False) if b > 0] or [0.0]
    return Ratio(
        pool.arm, plain.arm, pool.what, spread_of(parts), pool.workload, f"one run, {len(parts)} parts" if len(parts) > 1 else "one run"
    )


def _same(steps: Sequence[Field]) -> list[Field]:
    return [step for step in steps if step["step"].text().startswith("matrix-") and "same" in step]


def _matrix(steps: Sequence[Field]) -> Table:
    rows = []
    for name in dict.fromkeys(step["step"].text() for step in _same(steps)):
        cells = [step["same"].value is True for step in _same(steps) if step["step"].text() == name]
        rows.append((name.removeprefix("matrix-"), str(len(cells)), str(sum(cells))))
    return Table("Bit-equal to plain llama.cpp on the device", ("type", "cells", "the same bits"), tuple(rows))


def _link(steps: Sequence[Field]) -> Table:
    rows = [
        (step["memory"].text(), ", ".join(f"{size} {speed.number():.1f}" for size, speed in step["gb_per_second"].items()))
        for step in steps
        if step["step"].text() == "link" and "gb_per_second" in step
    ]
    return Table("Link", ("memory", "GB/s by what is copied"), tuple(rows), n_text=2)


def _cells(steps: Sequence[Field]) -> Iterator[Headline]:
    cells = [step["same"].value is True for step in _same(steps)]
    if cells:
        yield Headline("on the GPU: cells of the matrix with the bits of plain llama.cpp on it", f"{sum(cells)} of {len(cells)}")


_NOTE = "The parts of one run are no rounds: they show how even it was, and say nothing of how another run would be."
KIND = Kind(
    "On an NVIDIA GPU",
    "A pool on a CUDA device against plain llama.cpp with its experts on the CPU (the better of repacked and not), and with everything "
    "on the device. Each arm is a process that decodes the same tokens once.",
    content,
    apart=("device",),
)
