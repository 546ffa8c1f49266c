"""The rules of pool and policies by small exact cases, for the specification and the core alike; Belady against brute force."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations

import pytest

from slotpool import native
from slotpool.errors import SlotpoolError
from slotpool.policies import NONE, POLICIES, Lookup, ReferencePool, belady, make_policy

Pool = native.Pool | ReferencePool
MakePool = Callable[..., Pool]
Events = Sequence[Sequence[int]]


@pytest.fixture(params=["core", "reference"])
def make_pool(request: pytest.FixtureRequest) -> MakePool:
    """Makes an empty pool, the core's or the reference."""

    def made(n_expert: int, n_slots: int, policy: str = "lru", decay: float = 0.97) -> Pool:
        if request.param == "core":
            return native.Pool(n_expert, n_slots, policy, decay)
        return ReferencePool(n_expert, n_slots, make_policy(policy, decay, n_expert, n_slots))

    return made


def play(pool: Pool, *events: Sequence[int]) -> None:
    for ids in events:
        pool.event(ids)


def seen(pool: Pool, ids: Sequence[int], publish: bool = True) -> list[tuple[int, int, int, int, bool]]:
    """One event, as tuples (expert, slot, evicted, n_rows, is_hit)."""
    return [(found.expert, found.slot, found.evicted, found.n_rows, found.is_hit) for found in pool.event(ids, publish=publish)]


# ---- the event ----


def test_misses_take_the_lowest_free_slots_in_order_of_appearance(make_pool: MakePool) -> None:
    assert seen(make_pool(8, 4), [5, 2, 7]) == [(5, 0, NONE, 1, False), (2, 1, NONE, 1, False), (7, 2, NONE, 1, False)]


def test_rows_of_one_expert_are_one_lookup(make_pool: MakePool) -> None:
    assert seen(make_pool(8, 4), [3, 1, 3, 3]) == [(3, 0, NONE, 3, False), (1, 1, NONE, 1, False)]


def test_experts_are_looked_up_before_any_of_the_event_is_admitted(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    play(pool, [0, 1])
    assert seen(pool, [2, 0, 2]) == [(2, 1, 1, 2, False), (0, 0, NONE, 1, True)]


def test_freed_slot_is_taken_before_anybody_is_evicted(make_pool: MakePool) -> None:
    pool = make_pool(8, 3)
    play(pool, [0, 1, 2])
    assert pool.evict(0)
    assert pool.evict(1)
    assert seen(pool, [5, 6, 7]) == [(5, 0, NONE, 1, False), (6, 1, NONE, 1, False), (7, 2, 2, 1, False)]


def test_expert_of_the_event_is_not_evicted_by_it(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    play(pool, [0, 1])
    assert seen(pool, [2, 3, 0]) == [(2, 1, 1, 1, False), (3, NONE, NONE, 1, False), (0, 0, NONE, 1, True)]


def test_event_with_more_experts_than_slots_fills_them_and_leaves_the_rest_misses(make_pool: MakePool) -> None:
    assert seen(make_pool(8, 2), [4, 5, 6]) == [(4, 0, NONE, 1, False), (5, 1, NONE, 1, False), (6, NONE, NONE, 1, False)]


def test_empty_event_finds_nothing(make_pool: MakePool) -> None:
    assert seen(make_pool(8, 2), []) == []


@pytest.mark.parametrize("bad", [-1, 8, 2**31 - 1, -(2**31)])
def test_id_out_of_range_changes_nothing(make_pool: MakePool, bad: int) -> None:
    pool = make_pool(8, 2, "decay", 1.0)
    play(pool, [0, 1], [1])
    with pytest.raises(ValueError, match="expected expert ids from 0 to 7, found"):
        pool.event([0, 0, 5, bad])
    assert [pool.find(expert) for expert in range(8)] == [0, 1, NONE, NONE, NONE, NONE, NONE, NONE]
    assert seen(pool, [2]) == [(2, 0, 0, 1, False)], "the refused event was counted"


# ---- filling, pinning, evicting ----


def test_filling_slot_is_not_a_hit(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    pool.event([3], publish=False)
    assert pool.find(3) == NONE
    assert seen(pool, [3]) == [(3, NONE, NONE, 1, False)], "on its way: neither found nor admitted twice"
    pool.publish(0)
    assert pool.find(3) == 0
    assert seen(pool, [3]) == [(3, 0, NONE, 1, True)]


def test_filling_slot_is_not_a_victim(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    pool.event([0], publish=False)
    play(pool, [1])
    assert seen(pool, [2, 3], publish=False) == [(2, 1, 1, 1, False), (3, NONE, NONE, 1, False)]
    assert seen(pool, [4]) == [(4, NONE, NONE, 1, False)]


def test_filling_expert_is_neither_pinned_nor_evicted(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    pool.event([0], publish=False)
    assert not pool.pin(0)
    assert not pool.evict(0)
    pool.unpin(0)


def test_abandoned_slot_is_free(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    pool.event([0, 1], publish=False)
    pool.abandon(0)
    assert pool.find(0) == NONE
    assert seen(pool, [0]) == [(0, 0, NONE, 1, False)]


@pytest.mark.parametrize("policy", POLICIES)
def test_pinned_expert_is_never_evicted(make_pool: MakePool, policy: str) -> None:
    pool = make_pool(8, 2, policy)
    play(pool, [0, 1])
    assert pool.pin(0)
    for expert in range(2, 8):
        play(pool, [expert])
        assert pool.find(0) == 0
    assert not pool.evict(0)
    pool.unpin(0)
    assert pool.evict(0)


def test_miss_is_not_admitted_when_every_slot_is_pinned(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    play(pool, [0, 1])
    assert pool.pin(0)
    assert pool.pin(1)
    assert seen(pool, [2, 0]) == [(2, NONE, NONE, 1, False), (0, 0, NONE, 1, True)]


def test_pin_ends_with_the_slot(make_pool: MakePool) -> None:
    pool = make_pool(8, 1)
    play(pool, [0])
    assert pool.pin(0)
    pool.unpin(0)
    assert seen(pool, [1]) == [(1, 0, 0, 1, False)]
    assert seen(pool, [2]) == [(2, 0, 1, 1, False)]


def test_expert_without_a_slot_is_neither_pinned_nor_evicted(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    assert not pool.pin(5)
    assert not pool.evict(5)
    pool.unpin(5)


# ---- lru ----


def test_lru_evicts_what_was_used_the_most_events_ago(make_pool: MakePool) -> None:
    pool = make_pool(8, 3)
    play(pool, [0], [1], [2], [0])
    assert seen(pool, [5]) == [(5, 1, 1, 1, False)]
    assert seen(pool, [6]) == [(6, 2, 2, 1, False)]
    assert seen(pool, [7]) == [(7, 0, 0, 1, False)]


@pytest.mark.parametrize("last", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_lru_takes_the_lower_slot_of_those_that_one_event_used(make_pool: MakePool, last: list[int]) -> None:
    pool = make_pool(8, 3)
    play(pool, [0, 1, 2], [2], last)
    assert seen(pool, [5, 6, 7]) == [(5, 0, 0, 1, False), (6, 1, 1, 1, False), (7, 2, 2, 1, False)]


def test_lru_takes_a_miss_and_a_hit_of_one_event_as_equally_recent(make_pool: MakePool) -> None:
    pool = make_pool(8, 3)
    play(pool, [0], [1], [2])
    assert seen(pool, [5, 2]) == [(5, 0, 0, 1, False), (2, 2, NONE, 1, True)]
    assert seen(pool, [1, 6]) == [(1, 1, NONE, 1, True), (6, 0, 5, 1, False)]


def test_find_is_not_a_use(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    play(pool, [0], [1])
    assert pool.find(0) == 0
    assert seen(pool, [2]) == [(2, 0, 0, 1, False)]


# ---- decay ----


def test_decay_evicts_the_smallest_score(make_pool: MakePool) -> None:
    pool = make_pool(8, 3, "decay", 0.9)
    play(pool, [0], [0], [1], [2])  # 0.73 + 0.81, 0.9, 1.0
    assert seen(pool, [3]) == [(3, 1, 1, 1, False)]


def test_decay_takes_the_lower_slot_on_a_tie(make_pool: MakePool) -> None:
    pool = make_pool(8, 3, "decay", 1.0)
    play(pool, [0, 1, 2], [2, 1, 0])
    assert seen(pool, [5, 6]) == [(5, 0, 0, 1, False), (6, 1, 1, 1, False)]


def test_decay_remembers_experts_without_a_slot(make_pool: MakePool) -> None:
    pool = make_pool(8, 2, "decay", 1.0)
    play(pool, [0], [0], [1], [2])  # 2 takes the place of 1
    assert seen(pool, [1]) == [(1, 1, 2, 1, False)]
    assert seen(pool, [3]) == [(3, 0, 0, 1, False)], "0 and 1 have two each: 1 came back with what it had"


def test_decay_of_one_is_plain_frequency(make_pool: MakePool) -> None:
    pool = make_pool(8, 2, "decay", 1.0)
    play(pool, [0], [0], *([1],) * 1, *([2],) * 3)
    assert seen(pool, [3]) == [(3, 0, 0, 1, False)]


def test_decay_of_a_half_puts_the_last_event_first(make_pool: MakePool) -> None:
    pool = make_pool(8, 2, "decay", 0.5)
    play(pool, *([0],) * 20, [1])
    assert seen(pool, [2]) == [(2, 0, 0, 1, False)]


def test_decay_counts_what_was_asked_for_while_its_slot_was_filled(make_pool: MakePool) -> None:
    pool = make_pool(4, 2, "decay", 1.0)
    pool.event([0], publish=False)
    play(pool, [0], [1])
    pool.publish(0)
    assert seen(pool, [2]) == [(2, 1, 1, 1, False)], "0 was asked for twice, 1 once"


def test_decay_takes_the_lower_slot_when_scores_have_sunk_to_nothing(make_pool: MakePool) -> None:
    pool = make_pool(8, 3, "decay", 0.5)
    play(pool, [0], [1], [2], [0], *([2],) * 2000)  # 1 was last used before 0; now both scores are 0.0
    assert seen(pool, [3]) == [(3, 0, 0, 1, False)]


@pytest.mark.parametrize(("n_empty", "gone"), [(5, 1), (6, 0)])
def test_empty_event_ages_scores_once(make_pool: MakePool, n_empty: int, gone: int) -> None:
    pool = make_pool(8, 2, "decay", 0.9)
    play(pool, [0], [0], *([],) * n_empty, [1])  # 0 has 1.9 * 0.9 ** (n_empty + 1), that is 1.01 or 0.91; 1 has 1
    assert seen(pool, [2]) == [(2, gone, gone, 1, False)]


# ---- making them ----


def test_reference_refuses_to_publish_or_abandon_what_is_not_being_filled() -> None:
    pool = ReferencePool(8, 2, make_policy("lru", 0.97, 8, 2))
    pool.event([0])
    for slot in (-1, 0, 1, 2):
        with pytest.raises(ValueError, match="expected a slot that is being filled"):
            pool.publish(slot)
        with pytest.raises(ValueError, match="expected a slot that is being filled"):
            pool.abandon(slot)


@pytest.mark.parametrize("n_slots", [-1, 0, 9])
def test_reference_refuses_slots_out_of_range(n_slots: int) -> None:
    with pytest.raises(SlotpoolError, match="expected 1 to 8 slots for 8 experts"):
        ReferencePool(8, n_slots, make_policy("lru", 0.97, 8, 1))


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.5, float("nan"), float("inf")])
def test_decay_out_of_range_is_refused(decay: float) -> None:
    with pytest.raises(SlotpoolError, match="expected a decay above 0 and at most 1"):
        make_policy("decay", decay, 8, 2)


def test_unknown_policy_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(SlotpoolError, match=r'unknown policy "lruk" \(valid: decay, lru\). Did you mean lru\?'):
        make_policy("lruk", 0.97, 8, 2)


# ---- belady ----


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


class Farthest:
    """A policy that is told the future: the victim's expert is asked for the latest. Otherwise it knows what lru knows."""

    def __init__(self, events: Events, n_slots: int) -> None:
        self.events, self.n_slots, self.event = events, n_slots, -1

    def begin_event(self) -> None:
        self.event += 1

    def asked(self, expert: int) -> None: ...
    def hit(self, expert: int, slot: int) -> None: ...
    def admitted(self, expert: int, slot: int) -> None: ...
    def evicted(self, expert: int, slot: int) -> None: ...

    def victim(self, view: ReferencePool) -> int:
        slots = [slot for slot in range(self.n_slots) if view.is_victim(slot)]
        return max(slots, key=lambda slot: self.next_use(view.expert_in(slot)), default=NONE)

    def next_use(self, expert: int) -> int:
        later = range(self.event + 1, len(self.events))
        return next((event for event in later if expert in self.events[event]), len(self.events))


def hits_of(events: Events, pool: Pool) -> list[int]:
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


def test_lookup_says_where_what_and_whom() -> None:
    assert Lookup(expert=3, slot=1, evicted=NONE, n_rows=2, is_hit=True).slot == 1
