"""Decayed frequency that also looks at what usually comes next: the twin of `core/policy/follow.h`."""

from __future__ import annotations

from slotpool.policies.decay import Decay
from slotpool.policies.policy import NONE, PoolView
from slotpool.policies.recall import Recall
from slotpool.policies.successors import Successors

SUCCESSOR_WEIGHT = 15.0
RECALL_WEIGHT = 17.5
CANDIDATES = 8
"""Victims of the smallest counts that are weighed."""
LARGEST = 16
"""Experts of the largest event that is learned from: larger ones are prompts or batches, where "next" means little."""


class Follow(Decay):
    """An expert is worth its decayed count, what followed the experts of the last event, and what followed events like the last one.

    The victim is the one that is worth the least of the 8 that may be taken with the smallest counts, the lower slot on a tie.
    """

    def __init__(self, decay: float, n_expert: int, n_slots: int) -> None:
        super().__init__(decay, n_expert, n_slots)
        self._successors = Successors(n_expert)
        self._recall = Recall()
        self._event: list[int] = []
        self._before: list[int] = []

    def begin_event(self) -> None:
        """The event before is over: it is what the next one follows."""
        super().begin_event()
        self._before, self._event = self._event, []

    def asked(self, expert: int) -> None:
        """The expert's count grows, and the event has one expert more."""
        super().asked(expert)
        self._event.append(expert)

    def asked_all(self) -> None:
        """Learns from the event and looks at what may come next."""
        self._event = sorted(self._event) if len(self._event) <= LARGEST else []
        self._successors.learn(self._before, self._event)
        self._successors.follow(self._event)
        self._recall.add(self._event)

    def victim(self, view: PoolView) -> int:
        """The slot of the least worth among the smallest counts."""
        slots = [slot for slot in range(self._n_slots) if view.is_victim(slot)]
        weighed = sorted(slots, key=lambda slot: (self._scores[view.expert_in(slot)], slot))[:CANDIDATES]
        return min(weighed, key=lambda slot: (self.worth(view.expert_in(slot)), slot), default=NONE)

    def worth(self, expert: int) -> float:
        """Count and expectation together, in the unit of the counts."""
        follows = SUCCESSOR_WEIGHT * self._successors.likelihood(expert) + RECALL_WEIGHT * self._recall.promise(expert)
        return self._scores[expert] + self._unit * follows

    def is_choosy(self) -> bool:
        """Refusing gains more than a point of hit rate at a quarter of the slots (docs/log.md)."""
        return True

    def refuses(self, candidate: int, victim: int) -> bool:
        """Unless the candidate is worth more than the victim."""
        return self.worth(candidate) <= self.worth(victim)
