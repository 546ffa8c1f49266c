"""What is run: a context's settings and the steps that it takes. Facts only, hashable, the same for plain and pooled runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ALL, LAST, NONE = "all", "last", "none"
"""Which tokens of a batch have logits."""
LOAD_MODES = {"none": 0, "mmap": 1, "mlock": 2, "mmap_mlock": 3, "direct": 4}
"""llama.cpp's load modes by name, with their numbers."""


@dataclass(frozen=True)
class Batch:
    """Tokens given to one llama_decode; the engine cuts them into ubatches. Positions go on where each sequence ended.

    `seqs` names the sequence of each token, all 0 when empty. `outputs`: ALL, the LAST token of the batch, or NONE.
    """

    tokens: tuple[int, ...]
    seqs: tuple[int, ...] = ()
    outputs: str = ALL

    @property
    def sequence(self) -> tuple[int, ...]:
        return self.seqs or (0,) * len(self.tokens)

    def has_output(self, index: int) -> bool:
        return self.outputs == ALL or (self.outputs == LAST and index == len(self.tokens) - 1)


@dataclass(frozen=True)
class Forget:
    """Every sequence begins again at position 0."""


@dataclass(frozen=True)
class Reserve:
    """The next decode reserves the worst graphs of the context again, as a new adapter makes it do."""


Step = Batch | Forget | Reserve
Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Setup:
    """How the model is loaded and its context made. `one_node_at_a_time` hands every node to its backend alone."""

    n_ctx: int = 512
    n_ubatch: int = 128
    n_seq: int = 1
    kv_unified: bool = False
    n_threads: int = 1
    load_mode: str = "mmap"
    repack: bool = False  # lets the CPU keep weights in a layout of its own
    reuse_graphs: bool = True
    one_node_at_a_time: bool = False
    keeps_log: bool = False  # of decodes as well, with the splits of every graph (splits.py reads them)
    n_gpu_layers: int = 0
    tensor_split: tuple[float, ...] = ()  # shares of the devices, () as the engine likes
    placed: tuple[tuple[str, str], ...] = ()  # (pattern of tensor names, device by ggml's name), as llama.cpp's -ot


def batches(steps: Iterable[Step]) -> tuple[Batch, ...]:
    """The steps that have logits, in order."""
    return tuple(step for step in steps if isinstance(step, Batch))


def steps_of(*tokens: Iterable[int]) -> Steps:
    """One batch per argument, logits of every token."""
    return tuple(Batch(tuple(batch)) for batch in tokens)
