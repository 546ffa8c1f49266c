"""Records of `decode_resident`, `prompt_bypass` and `prompt_guard_device`: tokens per second of a pool and of plain llama.cpp in turns.

Reads them, judges nothing but the pairs.
"""

from __future__ import annotations

from slotpool.report import words
from slotpool.report.facts import Content, Figure, Ratio, Spread
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind, paired
from slotpool.report.kinds.spec import workload
from slotpool.report.tables import figures_table, ratios_table

SAID = "llama-bench's prompt, slots on an RPC device"
PLAIN, REPACKED = "plain, not repacked", "plain, repacked"


def decode(results: Field, flags: Field) -> Content:
    """Three arms and two ratios."""
    return _content(results, flags, "generation", "decode with every expert in a slot")


def prompt(results: Field, flags: Field) -> Content:
    """Two arms and a ratio."""
    return _content(results, flags, "prompt", "a prompt beside a pool")


def guard(results: Field, flags: Field) -> Content:
    """Two arms and a ratio, and the instructions of one prompt where they were counted."""
    found = _content(results, flags, "prompt", SAID)
    counted = results["instructions"]
    plain, pool = (counted[name].number() for name in ("plain", "pool"))
    if not plain or not pool:
        return found
    ratio = plain / pool
    counted_ratio = Ratio("pool", PLAIN, "instructions", Spread(ratio, ratio, ratio), "small model", "counted", is_counted=True)
    return _shown(found.figures, (*found.ratios, counted_ratio), SAID)


def _content(results: Field, flags: Field, what: str, said: str) -> Content:
    where = workload(flags)
    arms = (("pool", "pool_tps"), (PLAIN, "plain_tps"), (REPACKED, "repacked_tps"))
    figures = tuple(
        Figure(arm, what, "tokens/s", results[name].spread(), where) for arm, name in arms if name in results or name != "repacked_tps"
    )
    pairs = ((PLAIN, "ratio"), (REPACKED, "ratio_to_repacked"))
    ratios = tuple(paired("pool", arm, what, results[name].spread(), where) for arm, name in pairs if name in results)
    return _shown(figures, ratios, said)


def _shown(figures: tuple[Figure, ...], ratios: tuple[Ratio, ...], said: str) -> Content:
    headlines = tuple(words.headline(ratio, said) for ratio in ratios if not ratio.is_counted)
    return Content(figures, ratios, (figures_table(figures), ratios_table(ratios)), headlines=headlines)


DECODE = Kind(
    "Decode with every expert in a slot",
    "What the pool itself costs: nothing is missed, and plain llama.cpp has the same experts in the same memory. Logits equal to "
    "plain's without repacking. The repacked arm is llama.cpp's own default on this CPU.",
    decode,
)
PROMPT = Kind(
    "Prompts beside a pool",
    "A batch that touches more experts than there are slots takes llama.cpp's own path; this is what it pays for the pool beside "
    "it. Logits equal.",
    prompt,
)
GUARD = Kind(
    "Prompts of an unmodified program, slots on a device",
    "llama-bench's prompt with dense weights on an RPC server and experts on the CPU: alone with -ot exps=CPU, and under slotpool "
    "exec with slots on that server, which no prompt fits.",
    guard,
)
