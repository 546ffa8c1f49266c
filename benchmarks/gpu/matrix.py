"""Bit-equality of pool copy mode with plain llama.cpp on a device, for a type of experts: python -m benchmarks.gpu.matrix DEVICE TYPE.

A line of JSON per layout, number of slots and kind of ubatch: whether all logits are the same to the last bit, else how far they are apart.
Plain has every expert on the device. With all experts in slots and one token at a time the device's kernels do the same work in both;
larger ubatches may be cut differently by a device whose kernels divide work over all experts (docs/design/devices.md).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.devices import present
from slotpool import model as files
from slotpool import plan as plans
from testkit import syn
from testkit.oracle import engine as calls
from testkit.oracle.pooled import pooled
from testkit.oracle.script import Batch, Forget, Setup, Step

TYPES = ("F16", "BF16", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4")
LAYOUTS: dict[str, dict[str, Any]] = {
    "separate": {"arch": "qwen3moe"},
    "fused": {"arch": "deepseek2", "fused": True},
    "biases": {"arch": "gpt-oss"},
    "wide": {"arch": "qwen3moe", "n_embd": 512, "n_ff_exp": 768},
}
"""`wide` has rows of a multiple of 256 that is and is not one of 512."""
N_EXPERT, N_USED = 16, 4
_TOKENS = (1, 2, 3, 8, 9, 64)
"""Tokens per ubatch. Of those that do not fit the slots plain llama.cpp's own path is asked for, and is compared as well."""


@dataclass(frozen=True)
class Apart:
    """How far two runs are from each other: bits, the largest difference over the largest logit, and rows whose best token differs."""

    n_differ: int
    n_logits: int
    largest: float
    n_other_best: int
    n_not_finite: int


def main(device: str, type_name: str) -> None:
    """Prints a line per cell."""
    with present(device), tempfile.TemporaryDirectory(prefix="slotpool-matrix-") as folder:
        for layout, options in LAYOUTS.items():
            spec = syn.Spec(n_layer=2, n_expert=N_EXPERT, n_expert_used=N_USED, types={"*": type_name}, **options)
            try:
                path = syn.write(spec, Path(folder) / f"{layout}.gguf")
            except syn.SynError as error:
                print(json.dumps({"layout": layout, "type": type_name, "left_out": str(error)}), flush=True)
                continue
            for cell in cells(path, device):
                print(json.dumps({"layout": layout, "type": type_name, **cell}), flush=True)


def cells(path: Path, device: str) -> Iterator[dict[str, Any]]:
    """Plain once, the pool with half of the experts in slots and with all of them."""
    setup = Setup(n_gpu_layers=99, n_ctx=1024)
    with calls.loaded(path, setup) as model, calls.running(model, setup) as context:
        plain = {n: context.run(steps(n)) for n in _TOKENS}
    for slots in (N_EXPERT // 2, N_EXPERT):
        # what a kernel reads behind a row of another width than 512 is another slot, and poison times zero is no zero
        made = plans.make(files.read(path), slots, devices=[device], misses="copy", rail=0, poison=False)
        with pooled(path, made, setup) as pool:
            for n in _TOKENS:
                pool.session.reset_counts()
                apart = compared(pool.run(steps(n)), plain[n])
                counts = pool.counts()
                yield {
                    "slots": slots,
                    "tokens": n,
                    "same": apart.n_differ == 0 and apart.n_not_finite == 0,
                    **({} if apart.n_differ == 0 else vars(apart)),
                    "lookups": sum(group.generation.lookups + group.prompt.lookups for group in counts),
                    "misses": sum(group.generation.misses + group.prompt.misses for group in counts),
                    "refused": sum(group.refused for group in counts),
                    "devices": sorted({group.device for group in counts}),
                }


def steps(n_tokens: int) -> Sequence[Step]:
    """A sequence of ubatches of so many tokens; enough of them that slots are taken again."""
    rng = np.random.default_rng(n_tokens)
    n_ubatches = max(4, 24 // n_tokens)
    return (Forget(), *(Batch(tuple(int(t) for t in rng.integers(0, 256, n_tokens))) for _ in range(n_ubatches)))


def compared(got: Sequence[calls.Bits], plain: Sequence[calls.Bits]) -> Apart:
    mine, theirs = np.concatenate(got), np.concatenate(plain)
    a, b = mine.view(np.float32).astype(np.float64), theirs.view(np.float32).astype(np.float64)
    is_finite = np.isfinite(a) & np.isfinite(b)
    scale = float(np.abs(b[is_finite]).max(initial=0.0)) or 1.0
    largest = float(np.abs(a - b)[is_finite].max(initial=0.0)) / scale
    n_other = int((a.argmax(axis=1) != b.argmax(axis=1)).sum())
    return Apart(int((mine != theirs).sum()), int(mine.size), largest, n_other, int((~is_finite).sum()))


if __name__ == "__main__":
    main(*sys.argv[1:3])
