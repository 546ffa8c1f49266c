"""What is simulated: numbers of slots as people write them, where the experts are, what is counted. Replays nothing."""

from __future__ import annotations

from dataclasses import dataclass

from slotpool.errors import SlotpoolError, quoted
from slotpool.native import Link
from slotpool.profile import Pin, Profile

STORES = ("memory", "disk")
"""Where experts lie. In memory an event too large for the slots is computed there and the pool does not see it; on disk it passes."""
ADMISSIONS = ("wanted", "all")
"""Whether misses can be served without a slot, so that a policy that gains by it may refuse them; or every miss must be admitted."""


@dataclass(frozen=True)
class Slots:
    """A number of slots for each layer: as many for all (`count`), or a share of each layer's experts (`percent`)."""

    count: int = 0
    percent: float = 0.0

    @staticmethod
    def parse(text: str, where: str = "") -> Slots:
        """`8`, `25%` or `37.5%`. Raises SlotpoolError for anything else."""
        word = text.strip()
        try:
            slots = Slots(percent=float(word[:-1])) if word.endswith("%") else Slots(count=int(word))
        except ValueError:
            slots = Slots()
        if not (slots.count >= 1 or 0.0 < slots.percent <= 100.0):
            raise SlotpoolError(f'expected slots as a number (8) or a share of the experts (25%), found "{quoted(text)}"', where=where)
        return slots

    def of(self, n_expert: int) -> int:
        """Slots of a layer with `n_expert` experts: at least one, at most all."""
        return max(1, min(n_expert, self.count or round(n_expert * self.percent / 100.0)))

    def __str__(self) -> str:
        return str(self.count) if self.count else f"{self.percent:g}%"


@dataclass(frozen=True)
class Settings:
    """How a trace is replayed and what is counted.

    `is_global`: one pool over the experts of all layers with as many slots in total. `train`: the share of the trace, from its
    beginning, that only the static set learns from; everything is judged on the rest, from empty slots. `phase`: prompt or
    generation, or empty for both; what is not counted is replayed all the same. With `profile` the pools of online policies begin with
    what it says is hot, and `pin` says how many of these are never evicted. With `link` the slots of online policies are filled over it,
    and `admission` has no say.
    """

    is_global: bool = False
    store: str = "memory"
    admission: str = "wanted"
    train: float = 0.0
    phase: str = ""
    decay: float = 0.97
    profile: Profile | None = None
    pin: Pin | None = None
    link: Link | None = None
