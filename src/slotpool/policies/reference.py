"""The pool's specification: a slot table in plain lists that `core/pool` must equal event by event.

Made to be read, not to be fast: the simulator runs on the core, and the tests compare the core with this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slotpool.errors import SlotpoolError
from slotpool.policies.policy import NONE, Policy


@dataclass(frozen=True)
class Lookup:
    """What an event found for one distinct expert: its slot (-1: none could be taken), whom it displaced (-1: nobody).

    `n_rows` is how often the event asks for the expert. Field by field the same as `slotpool.native.Lookup`.
    """

    expert: int
    slot: int
    evicted: int
    n_rows: int
    is_hit: bool


class ReferencePool:
    """The slots of one group of expert tensors.

    An expert has at most one slot and a slot at most one expert. A slot that is being filled is not a hit and not a victim. No
    expert of an event is evicted by it. An expert that is pinned, or kept, is never evicted.
    """

    def __init__(self, n_expert: int, n_slots: int, policy: Policy) -> None:
        """`policy` must be made for the same numbers. Raises SlotpoolError unless n_slots is in [1, n_expert]."""
        if not 1 <= n_slots <= n_expert:
            raise SlotpoolError(f"expected 1 to {n_expert} slots for {n_expert} experts, found {n_slots}")
        self._n_expert = n_expert
        self._policy = policy
        self._experts = [NONE] * n_slots  # by slot
        self._filling: set[int] = set()  # slots
        self._pinned: set[int] = set()  # slots
        self._kept: set[int] = set()  # experts
        self._is_fresh = True
        self._used: set[int] = set()  # slots the current event hit or took
        self._lookups: dict[int, Lookup] = {}  # of the last event, by expert

    def warm(self, hottest: Sequence[tuple[int, float]], *, n_kept: int = 0, publish: bool = True) -> list[Lookup]:
        """Before the first event: fills slots with what is expected to be asked for; one Lookup per expert with a slot, hottest first.

        `hottest` has experts and the share of the events that will ask for each, the hottest first. The policy takes them as if it had
        seen them, and as many as there are slots get one: the coldest of these the lowest. The first `n_kept` are never evicted from
        the moment they have a slot, now or later. Raises ValueError, and changes nothing, for an expert out of range or there twice, a
        share outside [0, 1], and a pool that has seen an event.
        """
        experts = [expert for expert, _ in hottest]
        for expert in experts:
            self._check_expert(expert)
        if len(set(experts)) < len(experts) or not all(0.0 <= share <= 1.0 for _, share in hottest) or not self._is_fresh:
            raise ValueError("expected each expert once with a share from 0 to 1, and a pool that has seen no event")
        self._is_fresh = False
        self._policy.begin_event()
        for expert, share in hottest:
            self._policy.seed(expert, share)
        self._kept = set(experts[: max(0, n_kept)])
        slots = {expert: self._admit(expert, False)[0] for expert in reversed(experts[: len(self._experts)])}
        lookups = [Lookup(expert, slots[expert], NONE, 0, False) for expert in experts[: len(slots)]]
        if publish:
            self._publish_all(lookups)
        return lookups

    def event(self, ids: Sequence[int], *, publish: bool = True, may_refuse: bool = False) -> list[Lookup]:
        """Looks up the experts of one event and takes slots for the misses; one Lookup per distinct expert, in order of appearance.

        Every expert is looked up in the table as the event found it. The policy hears of all experts asked for, then of the hits.
        Then the misses are admitted in order of appearance. The slots they take are being filled until publish(), or are published
        at the end of the event with `publish`. With `may_refuse` (misses can be served without a slot) a policy that is choosy has the
        misses ranked, and may refuse each. Raises ValueError, and changes nothing, when an id is outside [0, n_expert).
        """
        found = self.look_up(ids)
        is_asked = may_refuse and self._policy.is_choosy()
        order = self.rank() if is_asked else [lookup.expert for lookup in found]
        admitted = {expert: self.admit(expert, may_refuse=is_asked, publish=False) for expert in order}
        lookups = [admitted.get(lookup.expert) or lookup for lookup in found]
        if publish:
            self._publish_all(lookups)
        return lookups

    def look_up(self, ids: Sequence[int]) -> list[Lookup]:
        """The first half of an event: who is a hit and who a miss. Recency and policy are told, no slot is taken."""
        for expert in ids:
            self._check_expert(expert)
        self._is_fresh = False
        asked = list(dict.fromkeys(ids))
        hits = {expert: self.find(expert) for expert in asked if self.find(expert) != NONE}
        self._tell(asked, hits)
        lookups = [Lookup(one, hits.get(one, NONE), NONE, list(ids).count(one), one in hits) for one in asked]
        self._lookups = {lookup.expert: lookup for lookup in lookups}
        return lookups

    def rank(self) -> list[int]:
        """The misses of the last event without a slot, the most wanted first.

        By the policy's worth; of equals the one with more rows, then the first to appear.
        """
        misses = [one for one in self._lookups.values() if not one.is_hit and one.expert not in self._experts]
        return [one.expert for one in sorted(misses, key=lambda one: (-self._policy.worth(one.expert), -one.n_rows))]

    def admit(self, expert: int, *, may_refuse: bool = False, publish: bool = True) -> Lookup | None:
        """A slot for a miss of the last event, which must not have passed; its Lookup, with the slot.

        None when no slot can be taken, or the expert is no such miss, or has a slot (filled or on its way); with `may_refuse` also when
        no slot is free and the policy finds the victim worth at least as much.
        """
        found = self._lookups.get(expert)
        if found is None or found.is_hit:
            return None
        slot, evicted = self._admit(expert, may_refuse)
        if slot == NONE:
            return None
        if publish:
            self.publish(slot)
        return replace(found, slot=slot, evicted=evicted)

    def passing(self, ids: Sequence[int], *, publish: bool = True) -> list[Lookup]:
        """An event too large for the slots. It evicts nobody.

        While a slot is free it is an event like any other, but its misses are admitted in the order of their rows, most first (of
        equals the first to appear), and only as long as slots are free. With no free slot nothing is touched, and no policy hears of it.
        Raises ValueError, and changes nothing, when an id is outside [0, n_expert).
        """
        for expert in ids:
            self._check_expert(expert)
        self._lookups = {}
        self._is_fresh = False
        asked = list(dict.fromkeys(ids))
        hits = {expert: self.find(expert) for expert in asked if self.find(expert) != NONE}
        slots = hits.copy()
        if NONE in self._experts:
            self._tell(asked, hits)
            for expert in sorted(set(asked) - set(hits), key=lambda one: (-list(ids).count(one), asked.index(one))):
                slots[expert] = self._admit(expert, False)[0] if NONE in self._experts else NONE
        lookups = [Lookup(one, slots.get(one, NONE), NONE, list(ids).count(one), one in hits) for one in asked]
        if publish:
            self._publish_all(lookups)
        return lookups

    def find(self, expert: int) -> int:
        """Slot that holds the expert's bytes, NONE when none does. Not a use: no policy hears of it."""
        self._check_expert(expert)
        slot = self._slot_of(expert)
        return NONE if slot in self._filling else slot

    def publish(self, slot: int) -> None:
        """The slot's bytes are there. Raises ValueError for a slot that is not being filled."""
        self._check_filling(slot)
        self._filling.remove(slot)

    def abandon(self, slot: int) -> None:
        """The slot's bytes will not come: it is free again. Raises ValueError for a slot that is not being filled."""
        self._check_filling(slot)
        self._release(slot)

    def evict(self, expert: int) -> bool:
        """Frees the expert's slot. False when it is not resident, pinned, kept or being filled."""
        slot = self.find(expert)
        if slot == NONE or slot in self._pinned or expert in self._kept:
            return False
        self._release(slot)
        return True

    def pin(self, expert: int) -> bool:
        """Keeps a resident expert from being evicted. False when it is not resident, or still being filled."""
        slot = self.find(expert)
        if slot != NONE:
            self._pinned.add(slot)
        return slot != NONE

    def unpin(self, expert: int) -> None:
        """Undoes pin()."""
        self._pinned.discard(self.find(expert))

    def is_victim(self, slot: int) -> bool:
        """Whether a policy may name the slot: it holds an expert and is not being filled, pinned, kept or used by the current event."""
        expert = self._experts[slot]
        return expert != NONE and expert not in self._kept and slot not in self._filling | self._pinned | self._used

    def has_free_slot(self) -> bool:
        """Whether a slot has no expert, neither filled nor on its way."""
        return NONE in self._experts

    def expert_in(self, slot: int) -> int:
        """The expert that has the slot, filled or being filled; NONE for a free slot."""
        return self._experts[slot]

    def _tell(self, asked: Iterable[int], hits: dict[int, int]) -> None:
        self._policy.begin_event()
        for expert in asked:
            self._policy.asked(expert)
        self._policy.asked_all()
        for expert, slot in hits.items():
            self._policy.hit(expert, slot)
        self._used = set(hits.values())

    def _admit(self, expert: int, may_refuse: bool) -> tuple[int, int]:
        if expert in self._experts:  # on its way already: not a hit, not admitted twice
            return NONE, NONE
        evicted = NONE
        if NONE not in self._experts:
            victim = self._policy.victim(self)
            if victim == NONE:
                return NONE, NONE
            if may_refuse and expert not in self._kept and self._policy.refuses(expert, self._experts[victim]):
                return NONE, NONE
            evicted = self._experts[victim]
            self._release(victim)
        slot = self._experts.index(NONE)  # the lowest free slot
        self._experts[slot] = expert
        self._filling.add(slot)
        self._used.add(slot)
        self._policy.admitted(expert, slot)
        return slot, evicted

    def _release(self, slot: int) -> None:
        self._policy.evicted(self._experts[slot], slot)
        self._experts[slot] = NONE
        self._filling.discard(slot)
        self._pinned.discard(slot)

    def _publish_all(self, lookups: Iterable[Lookup]) -> None:
        for lookup in lookups:
            if lookup.slot != NONE and not lookup.is_hit:
                self.publish(lookup.slot)

    def _slot_of(self, expert: int) -> int:
        return self._experts.index(expert) if expert in self._experts else NONE

    def _check_expert(self, expert: int) -> None:
        if not 0 <= expert < self._n_expert:
            raise ValueError(f"expected expert ids from 0 to {self._n_expert - 1}, found {expert}")

    def _check_filling(self, slot: int) -> None:
        if slot not in self._filling:
            raise ValueError(f"expected a slot that is being filled, found {slot}")
