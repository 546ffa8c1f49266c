"""Records of `disk_resident`: the disk tier where everything fits, against plain llama.cpp. Reads them, judges nothing but the pairs."""

from __future__ import annotations

from slotpool.report import words
from slotpool.report.facts import Content, Figure
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind, paired
from slotpool.report.kinds.spec import workload
from slotpool.report.kinds.speeds import PLAIN, REPACKED
from slotpool.report.tables import figures_table, ratios_table


def content(results: Field, flags: Field) -> Content:
    """Ratios of generation and prompt to both kinds of plain llama.cpp; the hit rate of the pool."""
    ratios = tuple(
        paired(pool, plain, what, results[name].spread(), workload(flags))
        for what in ("generation", "prompt")
        for pool, plain, suffix in _PAIRS
        if (name := f"{what}_ratio{suffix}") in results
    )
    hits = Figure("pool", "hit rate in generation, lowest of all starts", "share", results["hit_rate"].spread(), is_counted=True)
    headlines = tuple(words.headline(one, f"experts on disk where all of it fits: {one.what}") for one in ratios)
    return Content((hits,), ratios, (ratios_table(ratios), figures_table((hits,))), headlines=headlines)


_PAIRS = (("pool, repacked", REPACKED, "_repacked"), ("pool", PLAIN, ""), ("pool", REPACKED, "_to_repacked"))
"""Who is compared with whom, and how the record calls it; the last is of older records."""

KIND = Kind(
    "Experts on disk, every expert in a slot",
    "What the disk tier costs where it is not needed: the model fits into memory. Repacked is what users get of both; logits are equal to "
    "plain's on the same kernels.",
    content,
)
