"""Decode with every expert in a slot against plain llama.cpp without repacking: what the pool itself costs.

A SYN model with the shapes of a 30B-A3B model (width 2048, expert width 768, 128 experts, 8 used, Q4_K and Q6_K), eight
layers of it, real text as input. Reach: >= 0.98x. Plain llama.cpp with repacking, its own default, runs beside them: what a user
who could keep everything in RAM anyway would give up.
"""

from __future__ import annotations

import tempfile
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import record
from benchmarks.arms import Arm, interleave
from testkit import syn

SPEC = syn.Spec(
    arch="qwen3moe",
    n_layer=8,
    n_embd=2048,
    n_ff_exp=768,
    n_expert=128,
    n_expert_used=8,
    n_head=32,
    n_head_kv=4,
    n_vocab=512,
    n_ctx=2048,
    types={"gate": "Q4_K", "up": "Q4_K", "down": "Q6_K"},
    dense_type="Q8_0",
)
N_PROMPT = 512
N_ROUNDS = 40
N_TOKENS = 32
THREADS = 2


def run() -> dict[str, Any]:
    """Measures, writes the record and returns it."""
    text = (resources.files("slotpool") / "data" / "prose.txt").read_bytes()
    tokens = list(text[: N_PROMPT + N_ROUNDS * N_TOKENS])
    rounds = [{"decode": tokens[start : start + N_TOKENS]} for start in range(N_PROMPT, len(tokens), N_TOKENS)]
    with tempfile.TemporaryDirectory() as folder:
        model = syn.write(SPEC, Path(folder) / "30b-a3b-shapes.gguf")
        common = {"n_ctx": 2048, "n_threads": THREADS, "n_threads_batch": THREADS}
        arms = [
            Arm("plain", model, {"slots": 0, "repack": False, **common}),
            Arm("pool", model, {"slots": "all", "repack": False, **common}),
            Arm("plain, repacked", model, {"slots": 0, "repack": True, **common}, kernels="repacked"),
        ]
        interleave(arms, tokens[:N_PROMPT], rounds)
    plain, pool, repacked = arms
    return record.write(
        "decode_resident",
        model=repr(SPEC),
        threads=THREADS,
        tokens_per_round=N_TOKENS,
        plain_tps=record.spread([N_TOKENS / s for s in plain.seconds]),
        pool_tps=record.spread([N_TOKENS / s for s in pool.seconds]),
        repacked_tps=record.spread([N_TOKENS / s for s in repacked.seconds]),
        ratio=record.spread(ratios(plain, pool)),
        ratio_to_repacked=record.spread(ratios(repacked, pool)),
        logits_equal=True,
        lookups=pool.answer["stats"]["lookups"],
        hit_rate=pool.answer["stats"]["generation"]["hit_rate"],
    )


def ratios(other: Arm, pool: Arm) -> list[float]:
    """Speed of the pool over that of the other arm, round by round."""
    return [a / b for a, b in zip(other.seconds, pool.seconds, strict=True)]


def line(made: dict[str, Any]) -> str:
    """The figure in one line."""
    ratio = made["ratio"]
    return (
        f"decode, every expert in a slot, against plain: {ratio['median']:.3f}x (rounds {ratio['low']:.3f} to {ratio['high']:.3f}), "
        f"{median(made['pool_tps']['samples']):.1f} against {median(made['plain_tps']['samples']):.1f} tokens/s, logits equal; "
        f"against plain with repacked experts {made['ratio_to_repacked']['median']:.3f}x"
    )
