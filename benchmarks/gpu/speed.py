"""One arm of the comparison: python -m benchmarks.gpu.speed DEVICE MODEL ARM (JSON); or its model: speed write FOLDER.

Prints a line of JSON: tokens per second of a prompt (into an empty pool, and again), of decode, and of the prompts of a chat, hit rate,
rows by how they were served. Decode is given its tokens, so that all arms of a model ask for the same experts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu.devices import present
from slotpool import model as files
from slotpool import plan as plans
from slotpool.native import PhaseCounts
from testkit import syn
from testkit.oracle import engine as calls
from testkit.oracle.pooled import pooled
from testkit.oracle.script import Batch, Forget, Setup

SPEC = syn.Spec(
    arch="qwen3moe",
    n_layer=8,
    n_embd=2048,
    n_ff_exp=768,
    n_expert=128,
    n_expert_used=8,
    n_vocab=1024,
    n_head=32,
    n_head_kv=4,
    n_ctx=2048,
    types={"*": "Q4_K", "down": "Q6_K"},
    dense_type="Q8_0",
)
"""The shapes of a 30B-A3B, 8 of its 48 layers: 3.1 GB of experts."""
N_PROMPT, N_FILL, N_MEASURED, N_PARTS = 512, 96, 128, 4
N_TURNS, TURN = 12, ((0, 128), (128, 144))
"""A chat: turns of so many tokens of prompt, and of an answer behind it."""


def write_model(folder: Path) -> Path:
    """The SYN model that replays a skewed routing (Zipf, exponent 1, another order of the experts in each layer)."""
    rng = np.random.default_rng(7)
    weights = 1 / np.arange(1, SPEC.n_expert + 1)
    orders = [rng.permutation(SPEC.n_expert) for _ in range(SPEC.n_layer)]
    share = weights / weights.sum()
    draw = [[order[rng.choice(SPEC.n_expert, SPEC.n_expert_used, replace=False, p=share)] for order in orders] for _ in range(SPEC.n_vocab)]
    folder.mkdir(parents=True, exist_ok=True)
    partial = syn.replay(np.array(draw), SPEC, folder / "speed.partial")
    partial.replace(folder / "speed.gguf")
    return folder / "speed.gguf"


def main(device: str, path: Path, arm: dict[str, Any]) -> None:
    """Runs an arm: `misses` and `slots` of a pool; or `on`, device or CPU, where plain llama.cpp has its experts."""
    setup = Setup(
        n_gpu_layers=99,
        n_ctx=2048,
        n_ubatch=N_PROMPT,
        n_threads=int(arm.get("threads", len(os.sched_getaffinity(0)))),
        placed=(("ffn_.*_exps", "CPU"),) if arm.get("on") == "CPU" else (),
        repack=bool(arm.get("repack")),
    )
    tokens = tokens_of(path, N_FILL + N_MEASURED)
    with present(device):
        if "misses" not in arm:
            with calls.loaded(path, setup) as model, calls.running(model, setup) as context:
                say(arm, measured(context, tokens) | chat(context, tokens))
            return
        made = plans.make(files.read(path), arm["slots"], devices=[device], misses=arm["misses"], prefill=arm.get("prefill", "bypass"))
        with pooled(path, made, setup) as pool:
            found = measured(pool.first, tokens, pool.session.reset_counts)
            counts = sum((group.generation for group in pool.counts()), PhaseCounts())
            pool.session.reset_counts()
            found |= chat(pool.first, tokens)
            prompt = sum((group.prompt for group in pool.counts()), PhaseCounts())
            found |= {f"chat_{key}": getattr(prompt, key) for key in ("lookups", "hits", "bytes_copied", "ranges_copied", "empty_copies")}
            pool_facts = {key: getattr(counts, key) for key in ("lookups", "hits", "rows_hit", "rows_copy", "rows_cpu", "bytes_copied")}
            off = sorted({pool.session.off_reason(group) for group in range(len(made.groups))} - {""})
            devices = sorted({f"{group.device} {group.slots}" for group in pool.counts()})
            say(arm, found | pool_facts | {"hit_rate": counts.hits / max(1, counts.lookups), "pools": devices, "off": off})


def measured(context: calls.Context, tokens: Sequence[int], before_decode: Any = None) -> dict[str, Any]:
    """Tokens per second of a prompt (the second one), and of decode in parts, after tokens that fill the pool."""
    prompt = Batch(tuple(tokens[index % len(tokens)] for index in range(N_PROMPT)), outputs="last")
    prompts = []
    for _ in range(2):
        context.step(Forget())
        begin = time.perf_counter()
        context.decode(prompt)
        prompts.append(N_PROMPT / (time.perf_counter() - begin))
    context.step(Forget())
    context.run([Batch((token,)) for token in tokens[:N_FILL]])
    if before_decode:
        before_decode()
    parts, best = [], []
    size = N_MEASURED // N_PARTS
    for part in range(N_PARTS):
        steps = [Batch((token,)) for token in tokens[N_FILL + part * size :][:size]]
        begin = time.perf_counter()
        bits = context.run(steps)
        parts.append(size / (time.perf_counter() - begin))
        best += [int(row.view(np.float32).argmax()) for row in np.concatenate(bits)]
    return {
        "cold_prompt": prompts[0],
        "prompt": prompts[-1],
        "decode": median(parts),
        "decode_parts": parts,
        "best_tokens": hash(tuple(best)) & 0xFFFFFFFF,
    }


def chat(context: calls.Context, tokens: Sequence[int]) -> dict[str, Any]:
    """Prompt tokens per second over the turns of a chat that grows, answers generated in between and not timed."""
    context.step(Forget())
    seconds, at = 0.0, 0
    for _ in range(N_TURNS):
        prompt, answer = ([tokens[(at + index) % len(tokens)] for index in range(first, last)] for first, last in TURN)
        begin = time.perf_counter()
        context.decode(Batch(tuple(prompt), outputs="last"))
        seconds += time.perf_counter() - begin
        context.run([Batch((token,)) for token in answer])
        at += TURN[-1][1]
    return {"chat_prompt": N_TURNS * TURN[0][1] / seconds}


def tokens_of(path: Path, n: int) -> list[int]:
    """Text for the bundled model, the trace in order for the other."""
    if path != bundled():
        return list(range(n))
    from llama_cpp import Llama

    text = (Path(__file__).parents[2] / "README.md").read_bytes()
    return list(Llama(str(path), vocab_only=True, verbose=False).tokenize(text[: 16 * n], add_bos=True)[:n])


def bundled() -> Path:
    return Path(str(resources.files("slotpool") / "data" / "demo.gguf"))


def say(arm: dict[str, Any], found: dict[str, Any]) -> None:
    print(json.dumps({"arm": arm["name"], **found}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write_model(Path(sys.argv[2]))
    else:
        main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
