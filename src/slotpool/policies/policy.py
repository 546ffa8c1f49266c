"""What a pool tells an eviction policy, and what a policy may ask the pool: the Python twin of `core/policy/policy.h`.

A policy decides and nothing else: it changes no slot, logs nothing and reads no clock.
"""

from __future__ import annotations

from typing import Protocol

NONE = -1
"""No slot, or no expert."""


class PoolView(Protocol):
    """What a policy may know of the pool when it is asked for a victim."""

    def is_victim(self, slot: int) -> bool:
        """Whether the slot may be taken: it holds an expert, is not pinned, not being filled and not used by the current event."""

    def expert_in(self, slot: int) -> int:
        """The expert that has the slot, filled or being filled; NONE for a free slot."""


class Policy(Protocol):
    """Hears what happens in the pool, in the order of the methods here, and names the slot that goes when one is needed."""

    def seed(self, expert: int, share: float) -> None:
        """Before the first event: of the events to come, so many are expected to ask for the expert. Share in [0, 1]."""

    def begin_event(self) -> None:
        """An event begins; nothing of it has been looked up."""

    def asked(self, expert: int) -> None:
        """The event asks for this expert: once per distinct expert, whether it has a slot or not, in order of first appearance."""

    def asked_all(self) -> None:
        """All experts that the event asks for have been named."""

    def hit(self, expert: int, slot: int) -> None:
        """The expert was found in this slot. Comes after all asked() of the event."""

    def admitted(self, expert: int, slot: int) -> None:
        """The expert, a miss of the event, has been given this slot."""

    def evicted(self, expert: int, slot: int) -> None:
        """The expert has left this slot: it was a victim, was evicted by hand, or its bytes never came."""

    def victim(self, view: PoolView) -> int:
        """The slot to take, NONE when no slot may be taken. Changes nothing."""

    def worth(self, expert: int) -> float:
        """What an expert is worth to the pool, with a slot or without; only the order of two numbers of one event means something."""

    def is_choosy(self) -> bool:
        """Whether the policy gains by refusing, where misses can be served without a slot; else every miss is admitted there too."""

    def refuses(self, candidate: int, victim: int) -> bool:
        """Whether the miss `candidate` had better stay without a slot than take that of `victim`.

        Asked only where misses can be served without a slot.
        """
