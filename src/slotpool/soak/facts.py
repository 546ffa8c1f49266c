"""What a soak is, what its requests gave, and what was seen after each phase. Facts only: measures nothing and judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PHASES = (
    *("churn prose", "churn code", "abort in generation", "abort in prompt"),
    *("parallel", "chat prose", "chat code", "second context", "long prompt"),
)
"""A round, in order. After each phase one anchor is replayed. The two chats take turns, a round each."""


@dataclass(frozen=True)
class Settings:
    """How the model is loaded and used, the same for the session and for plain llama.cpp beside it.

    Numbers are tokens. `n_parallel` sequences share the context. `seed` chooses the churn's texts and where requests are aborted.
    """

    n_ctx: int
    n_threads: int | None = None
    n_ubatch: int = 128
    n_parallel: int = 4
    n_generate: int = 24
    n_churn: int = 48
    n_turn: int = 32
    seed: int = 0


@dataclass(frozen=True)
class Request:
    """One request: a prompt for each sequence, and so many greedy tokens after it. Several turns are a chat of one sequence."""

    name: str
    prompts: tuple[tuple[int, ...], ...]
    n_tokens: int
    is_chat: bool = False


@dataclass(frozen=True)
class Output:
    """One token that came out: its id, the name of its logits' bits, its logit, and by how much it led the second."""

    token: int
    bits: str
    logit: float
    lead: float


@dataclass(frozen=True)
class Reply:
    """What a request gave, in order of computation, and how long its prompts and its other tokens took (seconds)."""

    outputs: tuple[Output, ...]
    n_prompt: int = field(compare=False)
    prompt_seconds: float = field(compare=False)
    generation_seconds: float = field(compare=False)


@dataclass(frozen=True)
class Counters:
    """The pool's counters at one moment, or what they grew by. `hit_rate` is None where nothing was looked up."""

    lookups: int = 0
    hits: int = 0
    misses: int = 0
    refused: int = 0
    bytes_copied: int = 0
    admitted: int = 0
    evicted: int = 0

    def __sub__(self, other: Counters) -> Counters:
        return Counters(**{name: value - getattr(other, name) for name, value in vars(self).items()})

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.lookups if self.lookups else None


@dataclass(frozen=True)
class Sample:
    """What was seen after a phase and the anchor behind it. Bytes; `private_bytes` are the process's own (no mapped file), and
    `device_bytes` what is taken of every device with slots, by name, by whomever. Speeds in tokens per second, None where none ran."""

    seconds: float
    round: int
    phase: str
    anchor: str
    is_same: bool
    counters: Counters
    uploads_in_flight: int
    prompt_tps: float | None
    generation_tps: float | None
    anchor_tps: float | None
    rss_bytes: int
    private_bytes: int
    device_bytes: Mapping[str, int]
    load_average: float | None


@dataclass(frozen=True)
class Difference:
    """An anchor that gave something else: where, and how it differs from what it gave first, or from plain llama.cpp (`against`)."""

    round: int
    phase: str
    anchor: str
    against: str
    output: int
    detail: str


@dataclass(frozen=True)
class Observed:
    """All that a session showed, in `seconds`. `failure` is why it ended early, empty when it did not fail; `n_reused` are tokens that
    chats did not evaluate again.

    `replays` counts by anchor. `references` says of every anchor whether plain llama.cpp gave the same; empty when nobody asked it.
    """

    samples: Sequence[Sample]
    replays: Mapping[str, int]
    differences: Sequence[Difference]
    references: Mapping[str, bool]
    stats: Mapping[str, Any]
    seconds: float
    n_aborted: int
    n_contexts: int
    n_reused: int
    failure: str = ""
    is_interrupted: bool = False

    @property
    def n_rounds(self) -> int:
        """Rounds that were finished."""
        return max((sample.round for sample in self.samples if sample.phase == PHASES[-1]), default=-1) + 1
