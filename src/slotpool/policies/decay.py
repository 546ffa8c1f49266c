"""Decayed frequency, as a plain list of scores. Knows no recency and keeps no order: it looks at every slot to find the smallest.

Source of the formula: the score of an expert is the sum, over the events that asked for it, of decay^(events since), which is
the reference frequency of LRFU (Lee et al., "LRFU: a spectrum of policies that subsumes the LRU and LFU policies", IEEE
Transactions on Computers 50(12), 2001) with one event as the unit of time: decay 1 is LFU, and a decay of at most 1/2 puts the
most recent event first.
"""

from __future__ import annotations

from slotpool.policies.policy import NONE, PoolView

MOST_EVENTS = 1000.0
"""That a score sums up, where a decay forgets nothing or little."""
TRUST = 0.1
"""Of the score that what is expected would have led to (docs/log.md)."""
UNIT_LIMIT = 1e100
"""Above this the scores are rescaled, long before a double overflows. Part of the specification: rescaling rounds."""


class Decay:
    """The victim is the slot whose expert has the smallest score, the lower slot on a tie.

    Scores are kept for experts without a slot too. They are stored in units of decay^t: instead of shrinking all scores in every
    event, what one event adds grows, so that only the experts asked for change. The core does the same operations on the same
    doubles in the same order, so both agree bit for bit.
    """

    def __init__(self, decay: float, n_expert: int, n_slots: int) -> None:
        self._growth = 1.0 / decay
        self._seed = TRUST * (MOST_EVENTS if decay > 0.999 else 1.0 / (1.0 - decay))
        self._unit = 1.0  # what one event adds
        self._scores = [0.0] * n_expert
        self._n_slots = n_slots

    def seed(self, expert: int, share: float) -> None:
        """A part of the score that so many of all events asking for the expert have always led to: enough to be ahead, soon outweighed."""
        self._scores[expert] += share * self._seed * self._unit

    def begin_event(self) -> None:
        """All that was asked for so far counts less, by the decay."""
        self._unit *= self._growth
        if self._unit > UNIT_LIMIT:
            self._scores = [score / self._unit for score in self._scores]
            self._unit = 1.0

    def asked(self, expert: int) -> None:
        """The expert's score grows by one event."""
        self._scores[expert] += self._unit

    def asked_all(self) -> None:
        """Nothing to conclude."""

    def hit(self, expert: int, slot: int) -> None:
        """Counted by asked()."""

    def admitted(self, expert: int, slot: int) -> None:
        """Counted by asked()."""

    def evicted(self, expert: int, slot: int) -> None:
        """The score stays: an expert that comes back is known."""

    def victim(self, view: PoolView) -> int:
        """The slot of the lowest score that may be taken."""
        slots = [slot for slot in range(self._n_slots) if view.is_victim(slot)]
        return min(slots, key=lambda slot: (self._scores[view.expert_in(slot)], slot), default=NONE)

    def worth(self, expert: int) -> float:
        """The score."""
        return self._scores[expert]

    def is_choosy(self) -> bool:
        """Never: refusing costs it hits (docs/log.md)."""
        return False

    def refuses(self, candidate: int, victim: int) -> bool:
        """Unless the candidate's score, which counts the current event, is above the victim's."""
        return self._scores[candidate] <= self._scores[victim]
