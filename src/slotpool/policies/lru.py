"""Least recently used, as a plain list of event numbers. Knows no experts and counts nothing."""

from __future__ import annotations

from slotpool.policies.policy import NONE, PoolView


class Lru:
    """The victim is the slot whose last hit or admission is the most events ago, the lower slot where one event used both.

    An event uses its slots together: the order of ids inside it, which differs between devices, says nothing about recency.
    Asking for an expert whose slot is still being filled is no hit, and does not make the slot recent.
    """

    def __init__(self, n_slots: int) -> None:
        self._event = 0
        self._used_in = [0] * n_slots  # the last event that hit the slot or took it

    def seed(self, expert: int, share: float) -> None:
        """Only slots are remembered: the pool gives the hottest the highest."""

    def begin_event(self) -> None:
        """What is used from now on is more recent than all before."""
        self._event += 1

    def asked(self, expert: int) -> None:
        """Only slots are remembered."""

    def asked_all(self) -> None:
        """Nothing to conclude."""

    def hit(self, expert: int, slot: int) -> None:
        """The slot is as recent as anything."""
        self._used_in[slot] = self._event

    def admitted(self, expert: int, slot: int) -> None:
        """The slot is as recent as anything."""
        self._used_in[slot] = self._event

    def evicted(self, expert: int, slot: int) -> None:
        """A free slot is never asked about, and its next admission makes it recent."""

    def victim(self, view: PoolView) -> int:
        """The longest unused slot that may be taken."""
        slots = [slot for slot in range(len(self._used_in)) if view.is_victim(slot)]
        return min(slots, key=lambda slot: (self._used_in[slot], slot), default=NONE)

    def worth(self, expert: int) -> float:
        """All misses are alike."""
        return 0.0

    def is_choosy(self) -> bool:
        """Never: it refuses nobody."""
        return False

    def refuses(self, candidate: int, victim: int) -> bool:
        """Never: what is asked for now is more recent than any victim."""
        return False
