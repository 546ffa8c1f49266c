"""Belady against brute force, against a pool that is told the future, and as the bound of every policy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations

import numpy as np
import pytest

from slotpool import native
from slotpool.errors import SlotpoolError
from slotpool.policies import NONE, POLICIES, PoolView, ReferencePool, belady

Events = Sequence[Sequence[int]]


def small_instances(n: int, largest_event: int) -> Iterator[tuple[Events, int]]:
    """Random tiny sequences of events with a number of slots; the seed is fixed."""
    draw = random.Random(11)
    for _ in range(n):
        n_expert = draw.randint(2, 5)
        size = min(largest_event, n_expert)
        events = [draw.choices(range(n_expert), k=draw.randint(1, size)) for _ in range(draw.randint(1, 7))]
        yield events, draw.randint(1, n_expert)


def most_hits(events: Events, choices: Callable[[frozenset[int], Sequence[int]], Iterator[frozenset[int]]]) -> int:
    """Exhaustive search: the most hits over every way to go from what is held before an event to what is held after it."""

    @cache
    def best(event: int, held: frozenset[int]) -> int:
        if event == len(events):
            return 0
        ids = events[event]
        return len(held.intersection(ids)) + max(best(event + 1, after) for after in choices(held, ids))

    return best(0, frozenset())


def subsets(experts: frozenset[int], largest: int) -> Iterator[frozenset[int]]:
    for size in range(min(largest, len(experts)) + 1):
        yield from (frozenset(chosen) for chosen in combinations(experts, size))


def test_belady_that_may_refuse_is_the_optimum_of_exhaustive_search() -> None:
    for events, n_slots in small_instances(300, largest_event=4):
        optimum = most_hits(events, lambda held, ids, n=n_slots: subsets(held.union(ids), n))  # type: ignore[misc]
        assert sum(belady(events, n_slots)) == optimum, (events, n_slots)


def test_belady_that_may_not_refuse_is_the_optimum_of_all_choices_of_victims() -> None:
    for events, n_slots in small_instances(300, largest_event=2):
        if max(len(set(ids)) for ids in events) > n_slots:
            continue

        def admit_all(held: frozenset[int], ids: Sequence[int], n: int = n_slots) -> Iterator[frozenset[int]]:
            n_kept = min(n - len(set(ids)), len(held.difference(ids)))
            return (frozenset(ids).union(kept) for kept in combinations(held.difference(ids), n_kept))

        assert sum(belady(events, n_slots, may_refuse=False)) == most_hits(events, admit_all), (events, n_slots)


def arrays(events: Events, passing: Sequence[int] = ()) -> native.EventArrays:
    first = np.cumsum([0, *map(len, events)], dtype=np.int64)
    marks = np.array([native.replay.PASSES * (number in passing) for number in range(len(events))], np.uint8)
    return native.EventArrays(np.array([expert for ids in events for expert in ids], np.int32), first, marks)


@pytest.mark.parametrize("may_refuse", [True, False])
def test_core_finds_the_hits_of_the_specification_event_by_event(may_refuse: bool) -> None:
    draw = random.Random(17)
    for _ in range(200):
        n_expert = draw.randint(1, 12)
        events = [draw.choices(range(n_expert), k=draw.randint(0, 8)) for _ in range(draw.randint(0, 60))]
        passing = [number for number in range(len(events)) if draw.random() < 0.2]
        n_slots = draw.randint(1, n_expert)
        hits = np.zeros(len(events), np.int32)
        found, _ = native.belady(arrays(events, passing), n_expert, n_slots, may_refuse=may_refuse, hits=hits)
        expected = belady(events, n_slots, may_refuse=may_refuse, passing=passing)
        assert hits.tolist() == expected, (events, passing, n_slots)
        assert (found.events, found.lookups, found.hits) == (len(events), sum(len(set(ids)) for ids in events), sum(expected))


def test_event_that_passes_fills_free_slots_most_rows_first_and_evicts_nobody() -> None:
    events = [[0], [1, 2, 2, 3], [0, 1, 2, 3]]
    assert belady(events, 2, may_refuse=False, passing=[1]) == [0, 0, 2]
    assert belady(events[1:], 1, may_refuse=False, passing=[0]) == [0, 1]


class Farthest:
    """A policy that is told the future: the victim's expert is asked for the latest. Otherwise it knows what lru knows."""

    def __init__(self, events: Events, n_slots: int) -> None:
        self.events, self.n_slots, self.event = events, n_slots, -1

    def begin_event(self) -> None:
        self.event += 1

    def asked(self, expert: int) -> None: ...
    def asked_all(self) -> None: ...
    def hit(self, expert: int, slot: int) -> None: ...
    def admitted(self, expert: int, slot: int) -> None: ...
    def evicted(self, expert: int, slot: int) -> None: ...

    def victim(self, view: PoolView) -> int:
        slots = [slot for slot in range(self.n_slots) if view.is_victim(slot)]
        return max(slots, key=lambda slot: self.next_use(view.expert_in(slot)), default=NONE)

    def next_use(self, expert: int) -> int:
        later = range(self.event + 1, len(self.events))
        return next((event for event in later if expert in self.events[event]), len(self.events))


def hits_of(events: Events, pool: native.Pool | ReferencePool) -> list[int]:
    return [sum(lookup.is_hit for lookup in pool.event(ids)) for ids in events]


def test_belady_that_may_not_refuse_is_the_pool_with_the_farthest_next_use_as_victim() -> None:
    draw = random.Random(3)
    for n_slots in (2, 3, 5, 8):
        events = [draw.sample(range(10), draw.randint(1, 2)) for _ in range(200)]
        by_pool = hits_of(events, ReferencePool(10, n_slots, Farthest(events, n_slots)))
        assert belady(events, n_slots, may_refuse=False) == by_pool


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_beats_belady(policy: str) -> None:
    draw = random.Random(policy)
    for n_slots in (1, 2, 4, 7):
        events = [[int(9 * draw.random() ** 2) for _ in range(draw.randint(1, 12))] for _ in range(300)]
        bound, bound_of_admitting = (sum(belady(events, n_slots, may_refuse=may)) for may in (True, False))
        assert sum(hits_of(events, native.Pool(9, n_slots, policy))) <= bound
        assert bound_of_admitting <= bound


def test_belady_counts_hits_before_the_events_own_admissions() -> None:
    assert belady([[1, 2], [1, 2], [3, 1]], 3) == [0, 2, 1]


def test_belady_refuses_a_miss_that_is_not_worth_a_slot() -> None:
    events = [[0], [1], [0], [2], [0]]
    assert belady(events, 1) == [0, 0, 1, 0, 1]
    assert belady(events, 1, may_refuse=False) == [0, 0, 0, 0, 0]


def test_belady_lets_go_of_a_hit_that_is_never_asked_for_again() -> None:
    """More than an online pool may: none of an event's own experts is evicted by it, so 1 would have to wait."""
    events = [[0], [0, 1], [1]]
    assert belady(events, 1) == [0, 1, 1]
    assert belady(events, 1, may_refuse=False) == [0, 1, 0]


def test_belady_admits_in_order_of_appearance_when_an_event_is_larger_than_the_pool() -> None:
    assert belady([[5, 3, 4], [3, 4, 5]], 2, may_refuse=False) == [0, 2]
    assert belady([[5, 3, 4], [4]], 2, may_refuse=False) == [0, 0]
    assert belady([[5, 3, 4], [4]], 2) == [0, 1]


def test_belady_of_nothing_is_nothing() -> None:
    assert belady([], 4) == []
    assert belady([[], [1], []], 4) == [0, 0, 0]


@pytest.mark.parametrize("n_slots", [0, -1])
def test_belady_needs_a_slot(n_slots: int) -> None:
    with pytest.raises(SlotpoolError, match="expected at least 1 slot"):
        belady([[1]], n_slots)
