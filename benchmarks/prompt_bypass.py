"""A prompt beside a pool against plain llama.cpp without repacking: what a batch that cannot be pooled pays. Reach: >= 0.98x.

The shapes of decode_resident, two layers of them; 256 tokens of real text per round do not fit the 32 slots and take the stock path.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks import decode_resident, record
from benchmarks.arms import Arm, interleave
from testkit import syn

SPEC = replace(decode_resident.SPEC, n_layer=2)
SLOTS = 32
N_ROUNDS = 15
N_TOKENS = 256
THREADS = decode_resident.THREADS


def run() -> dict[str, Any]:
    """Measures, writes the record and returns it."""
    text = list((resources.files("slotpool") / "data" / "prose.txt").read_bytes())
    prompts = [text[start : start + N_TOKENS] for start in range(0, N_TOKENS * (N_ROUNDS + 1), N_TOKENS)]
    with tempfile.TemporaryDirectory() as folder:
        model = syn.write(SPEC, Path(folder) / "30b-a3b-shapes.gguf")
        common = {"n_ctx": 512, "n_threads": THREADS, "n_threads_batch": THREADS, "repack": False}
        arms = [Arm("plain", model, {"slots": 0, **common}), Arm("pool", model, {"slots": SLOTS, **common})]
        interleave(arms, prompts[0], [{"prompt": prompt} for prompt in prompts[1:]])
    plain, pool = arms
    stats = pool.answer["stats"]
    if stats["lookups"] or stats["refused"] != SPEC.n_layer * (N_ROUNDS + 1):
        raise RuntimeError(f"expected every prompt refused, found {stats['refused']} refused and {stats['lookups']} lookups")
    return record.write(
        "prompt_bypass",
        model=repr(SPEC),
        threads=THREADS,
        tokens_per_round=N_TOKENS,
        slots=SLOTS,
        plain_tps=record.spread([N_TOKENS / s for s in plain.seconds]),
        pool_tps=record.spread([N_TOKENS / s for s in pool.seconds]),
        ratio=record.spread(decode_resident.ratios(plain, pool)),
        logits_equal=True,
        refused=stats["refused"],
    )


def line(made: dict[str, Any]) -> str:
    """The figure in one line."""
    ratio = made["ratio"]
    return f"prompts beside a pool, against plain: {ratio['median']:.3f}x (rounds {ratio['low']:.3f} to {ratio['high']:.3f}), logits equal"
