"""What a bench was asked for: lengths, rounds, the pool's options; and how many tokens that takes. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slotpool.bench.verdict import DEFAULT_ROUNDS
from slotpool.plan import Slots


@dataclass(frozen=True)
class Settings:
    """Lengths are tokens. `n_warm` 0 measures a cold pool. `slots` and `depths` are swept: an arm for each, 0 slots being plain llama.cpp.

    `extra` names arms of arms.EXTRA_ARMS; `pool` are keywords of `slotpool.load` for every arm with a pool, slots not among them.
    With `repeats` a text that is too short for all rounds is used again.
    """

    model: Path
    n_prompt: int = 128
    n_generate: int = 64
    n_warm: int = 64
    rounds: int = DEFAULT_ROUNDS
    slots: tuple[Slots, ...] = ("auto",)
    depths: tuple[int, ...] = (0,)
    extra: tuple[str, ...] = ()
    pool: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    ctx: int | None = None
    repack: bool = True
    repeats: bool = False

    def on(self, devices: Sequence[str]) -> Settings:
        """With these devices, the engine's own, where nobody said where slots are: as `slotpool.load` chooses."""
        if not devices or self.pool.get("device") is not None or self.pool.get("ram_budget") is not None:
            return self
        return replace(self, pool={**self.pool, "device": list(devices)})

    @property
    def is_warm(self) -> bool:
        """Whether the pool has seen text before what is measured."""
        return self.n_warm > 0

    @property
    def tokens_a_round(self) -> int:
        """Of a round, the same for every arm: a first prompt, the text that warms, a second prompt, what is generated."""
        return self.n_prompt + (self.n_warm + self.n_prompt if self.is_warm else 0) + self.n_generate

    def n_ctx(self, depth: int) -> int:
        """The context of an arm at that depth: what was asked for, or what its longest sequence takes, BOS included."""
        return self.ctx or 1 + depth + self.n_prompt + max(self.n_warm, self.n_generate)
