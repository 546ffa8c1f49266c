"""The last events, and what followed those most like the current one: the twin of `core/policy/recall.h`, on whole events in a list."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

ENTRIES = 1 << 14
"""Experts of events that are remembered; an event is forgotten when its first one is."""
HASH_BITS = 12
TRIES = 4
"""Entries that are looked at for each hash."""
HORIZON = 8
"""Events after a like one that count."""
FADE = 0.6875
NEAR = 0.23
"""Weight of an event that lacks one of the experts."""
BEFORE = 118.0
"""How much more weight when all experts of the events before are shared."""
DOUBT = 0.1
"""Weight of an event like this one that was followed by nobody."""
_WORD = 0xFFFFFFFF


def mixed(expert: int) -> int:
    """The hash of one expert, 32 bits."""
    value = (expert + 1) * 0x9E3779B1 & _WORD
    return value ^ (value >> 15)


class Recall:
    """Finds past events that share all experts with the last one, or all but one, by a hash of its experts without each in turn."""

    def __init__(self) -> None:
        self._events: list[tuple[int, ...]] = []  # all of them; an empty one is a gap
        self._begins: list[int] = []  # number of each event's first entry
        self._next = 0  # number of the next entry
        self._chains: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # by place: (entry, hash, event), oldest first
        self._promises: dict[int, float] = {}
        self._weights = DOUBT

    def add(self, event: Sequence[int]) -> None:
        """The next event: its distinct experts, ascending."""
        self._promises, self._weights = {}, DOUBT
        for number in self._alike(event):
            self._consider(number, event)
        self._append(tuple(event))

    def promise(self, expert: int) -> float:
        """How soon and how surely `expert` followed the events that were like the last one."""
        return self._promises[expert] / self._weights if expert in self._promises else 0.0

    def _alike(self, event: Sequence[int]) -> list[int]:
        found: dict[int, None] = {}
        for without in event:
            place, hash_ = self._place(event, without)
            chain = self._chains[place]
            for entry, other_hash, number in reversed(chain[-TRIES:]):
                if not self._is_kept(entry):
                    break
                if other_hash == hash_ and self._is_kept(self._begins[number]):
                    found[number] = None
        return list(found)

    def _consider(self, number: int, event: Sequence[int]) -> None:
        past = self._events[number]
        n_shared = len(set(past).intersection(event))
        if n_shared < len(event) - 1:
            return
        is_same = n_shared == len(event) == len(past)
        weight = (1.0 if is_same else NEAR) * self._likeness_of_before(number)
        self._weights += weight
        for after in self._events[number + 1 : number + 1 + HORIZON]:
            if not after:
                return
            for expert in after:
                self._promises[expert] = self._promises.get(expert, 0.0) + weight
            weight *= FADE

    def _likeness_of_before(self, number: int) -> float:
        before = self._events[-1] if self._events else ()
        if not before or number == 0 or not self._is_kept(self._begins[number - 1]):
            return 1.0
        share = len(set(self._events[number - 1]).intersection(before)) / len(before)
        return 1.0 + BEFORE * share * share * share

    def _append(self, event: tuple[int, ...]) -> None:
        self._events.append(event)
        self._begins.append(self._next)
        for expert in event:
            place, hash_ = self._place(event, expert)
            self._chains[place].append((self._next, hash_, len(self._events) - 1))
            self._next += 1
        if not event:
            self._chains[0].append((self._next, 0, len(self._events) - 1))
            self._next += 1

    def _is_kept(self, entry: int) -> bool:
        return self._next - entry <= ENTRIES

    def _place(self, event: Sequence[int], without: int) -> tuple[int, int]:
        hash_ = (sum(mixed(expert) for expert in event) - mixed(without)) & _WORD
        return (hash_ * 0x85EBCA6B & _WORD) >> (32 - HASH_BITS), hash_
