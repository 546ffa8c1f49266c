"""What drift is asked for and what it found, frozen: settings, texts, arms, shares of the drift, prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotpool.drift.numbers import Kld, Ppl

CPU, DEVICE, POOL = "cpu", "device", "pool"
"""The arms: plain llama.cpp on the CPU, plain on the devices, and with the pool."""
DAMAGES = ("bit", "swap")
"""Damage on purpose: one bit of one slab in a slot, or a slot map that is wrong."""
BLOCK = 8
"""Tokens that an arm computes, one by one, before the next arm has its turn. Their logits are what is in memory."""
CHUNK = 512
"""Tokens of a chunk of perplexity: one batch."""


@dataclass(frozen=True)
class Text:
    """A text by name, tokenised as it is."""

    name: str
    text: bytes


@dataclass(frozen=True)
class Settings:
    """How to measure. Counts are tokens; None for `n_threads`: all cores. `limit`: at most so many tokens of each text, 0 all.

    `pool` are keywords of `slotpool.load`; `against` is the model that the plain arms load instead. `n_chunks` chunks of 512 tokens are
    computed as prompts before and after. `backends` are ggml backends from outside that every arm loads.
    """

    pool: Mapping[str, Any] = field(default_factory=dict)
    n_ctx: int = CHUNK
    n_threads: int | None = None
    limit: int = 512
    n_chunks: int = 2
    damage: str = ""
    against: Path | None = None
    backends: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArmSpec:
    """What the process of an arm is told before anything else. `pool` None: plain, the core must not be there."""

    name: str
    model: str
    n_ctx: int
    n_threads: int
    n_gpu_layers: int = 0
    tensor_split: tuple[float, ...] = ()
    pool: Mapping[str, Any] | None = None
    rpc: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hello:
    """What an arm says once its model is there. `devices` are (name, type, free bytes) as ggml lists them, `pooled_on` those with slots."""

    pid: int
    engine: str
    n_vocab: int
    devices: tuple[tuple[str, str, int], ...]
    pooled_on: tuple[str, ...]


@dataclass(frozen=True)
class Chunk:
    """A chunk as one prompt: negative log-likelihoods of its second half, nats, and a hash over the bits of all its logits."""

    nll: tuple[float, ...]
    digest: str


@dataclass(frozen=True)
class Counts:
    """What the pool of an arm has done so far. `n_steps` and `n_steps_evicting` count decoded tokens, and those that evicted."""

    lookups: int = 0
    evicted: int = 0
    n_steps: int = 0
    n_steps_evicting: int = 0


@dataclass(frozen=True)
class Difference:
    """The first token whose logits differ: after token `index` of `text`, whose id is `token` and whose bytes are `piece`."""

    text: str
    index: int
    token: int
    piece: str

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"after {self.text} token {self.index} (id {self.token}, {self.piece!r})"


@dataclass(frozen=True)
class Share:
    """The drift from one arm to another. `largest` is the largest difference of a logit; 0 `n_different` means bit-equal."""

    kld: Kld
    top1_flips: int
    n_tokens: int
    n_different: int
    n_not_finite: int
    largest: float
    first_difference: Difference | None

    @property
    def is_exact(self) -> bool:
        return not self.n_different and not self.n_not_finite


@dataclass(frozen=True)
class TextDrift:
    """One text: its tokens, the perplexity of every arm, and the drift of the pool from plain llama.cpp on the CPU."""

    name: str
    n_tokens: int
    n_tokens_of_text: int
    ppl: Mapping[str, Ppl]
    total: Share
    pool: Share


@dataclass(frozen=True)
class Prompts:
    """Chunks as prompts, by arm; `before` and `after` the decoding, which has filled the pool."""

    n_chunks: int
    n_tokens: int
    before: Mapping[str, Ppl]
    is_same_after: bool
    is_plain: bool
    first_different_chunk: int | None


@dataclass(frozen=True)
class Arm:
    """One arm, proven: its process, where it computes, and what its pool did; a plain one has no lookups and no core. `ran_alone`: before
    the others, which cannot be there at the same time."""

    name: str
    pid: int
    where: str
    has_core: bool
    lookups: int
    ran_alone: bool = False


@dataclass(frozen=True)
class Report:
    """Everything that was found. `placement` is None where the pool is on the CPU, as its reference is; `pool` is None where plain
    llama.cpp does not fit the device (`why_no_device`), so that the pool's share cannot be told from the placement's."""

    engine: str
    n_tokens: int
    total: Share
    placement: Share | None
    pool: Share | None
    why_no_device: str
    texts: tuple[TextDrift, ...]
    prompts: Prompts | None
    arms: tuple[Arm, ...]
    counts: Counts
    stats: Mapping[str, Any]
    n_threads: int
    n_ctx: int
    damaged: str
    files: Mapping[str, Any]
