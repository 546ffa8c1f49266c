"""Experts on disk with every expert in a slot, against plain llama.cpp on the same kernels: what it costs where it is not needed.

A SYN model with the shapes of gpt-oss-20b (width 2880, 4 of 32 experts, MXFP4), four layers of it, real text as input, all arms
warm. Twice: with experts repacked, as users get it, and as the file has them. Slabs begin anywhere in a block of the disk: as the file has
them an expert is a call of its own until its slab was moved. Reach: >= 0.98x, generation and prompts, both ways.

Arms are started several times: where a process gets its memory moves its speed by more than what is measured here.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks import disk_tier, record
from benchmarks.arms import Arm, interleave
from benchmarks.decode_resident import ratios
from testkit import syn

SPEC = replace(disk_tier.SPEC, n_layer=4, n_vocab=512, n_ctx=2048)
N_PROMPT = 256
N_STARTS = 4
N_ROUNDS = 8
N_WARM = 500
N_TOKENS = 24
N_PROMPTS = 6
THREADS = 2


def run() -> dict[str, Any]:
    """Measures, writes the record and returns it."""
    text = list((resources.files("slotpool") / "data" / "prose.txt").read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        model = syn.write(SPEC, Path(folder) / "gpt-oss-shapes.gguf")
        starts = [_start(model, text[number * 2000 :]) for number in range(N_STARTS)]
    found: dict[str, Any] = {}
    for name, plain, pool in (("ratio", 0, 1), ("ratio_repacked", 2, 3)):
        values = [ratios(arms[plain], arms[pool]) for arms in starts]
        found[f"generation_{name}"] = record.spread([one for mine in values for one in mine[:N_ROUNDS]])
        found[f"prompt_{name}"] = record.spread([one for mine in values for one in mine[N_ROUNDS:]])
    return record.write(
        "disk_resident",
        model=repr(SPEC),
        threads=THREADS,
        tokens_per_round={"generation": N_TOKENS, "prompt": N_PROMPT},
        seconds=[{arm.name: arm.seconds for arm in arms} for arms in starts],
        logits_equal=True,
        lookups=sum(arms[1].answer["stats"]["lookups"] for arms in starts),
        repacked_bytes=[[arm.answer["stats"]["repacked_bytes"] for arm in arms] for arms in starts],
        hit_rate=min(arm.answer["stats"]["generation"]["hit_rate"] for arms in starts for arm in (arms[1], arms[3])),
        **found,
    )


def _start(model: Path, text: list[int]) -> list[Arm]:
    """Fresh arms, warmed by two prompts and 500 tokens, that took their rounds: plain and pool, both as the file is, and both repacked."""
    prompts = [text[start : start + N_PROMPT] for start in range(0, N_PROMPT * (N_PROMPTS + 2), N_PROMPT)]
    decodes = [text[start : start + N_TOKENS] for start in range(1000, 1000 + N_ROUNDS * N_TOKENS, N_TOKENS)]
    common = {"n_ctx": 2048, "n_threads": THREADS, "n_threads_batch": THREADS}
    arms = [
        Arm("plain", model, {"slots": 0, "repack": False, **common}),
        Arm("pool", model, {"slots": "all", "ram_budget": "auto", "repack": False, **common}),
        Arm("plain, repacked", model, {"slots": 0, "repack": True, **common}, kernels="repacked"),
        Arm("pool, repacked", model, {"slots": "all", "ram_budget": "auto", "repack": True, **common}, kernels="repacked"),
    ]
    rounds = [
        {"decode": text[2000 : 2000 + N_WARM]},
        *({"decode": tokens} for tokens in decodes),
        *({"prompt": tokens} for tokens in prompts[2:]),
    ]
    interleave(arms, [token for prompt in prompts[:2] for token in prompt], rounds)
    for arm in arms:
        del arm.seconds[0]
    return arms


def line(made: dict[str, Any]) -> str:
    """The figure in one line."""
    texts = []
    for what in ("generation", "prompt"):
        found = ((made[f"{what}_ratio_repacked"], "repacked"), (made[f"{what}_ratio"], "as the file is"))
        texts += [f"{what} {one['median']:.3f}x of plain (rounds {one['low']:.3f} to {one['high']:.3f}) {how}" for one, how in found]
    return f"experts on disk, every expert in a slot: {'; '.join(texts)}; hit rate {made['hit_rate']:.3f}, logits equal"
