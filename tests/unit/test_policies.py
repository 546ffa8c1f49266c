"""The rules of the pool and its policies by small exact cases, for the specification and for the core alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple

import pytest

from slotpool import native
from slotpool.errors import SlotpoolError
from slotpool.policies import NONE, POLICIES, ReferencePool, make_policy

Pool = native.Pool | ReferencePool
MakePool = Callable[..., Pool]


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


def admitted(pool: Pool, expert: int, may_refuse: bool = False) -> tuple[int, int, int, int, bool]:
    """A miss of the last event, which must be admitted."""
    found = pool.admit(expert, may_refuse=may_refuse)
    assert found is not None
    return found.expert, found.slot, found.evicted, found.n_rows, found.is_hit


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


# ---- an event in two halves ----


def test_looking_up_tells_policy_and_recency_and_takes_no_slot(make_pool: MakePool) -> None:
    pool = make_pool(8, 2, "lru")
    play(pool, [0], [1])
    found = pool.look_up([0, 5, 5])
    assert [astuple(one) for one in found] == [(0, 0, NONE, 1, True), (5, NONE, NONE, 2, False)]
    assert [pool.find(expert) for expert in (0, 1, 5)] == [0, 1, NONE]
    assert seen(pool, [2]) == [(2, 1, 1, 1, False)], "the hit on 0 was not told"


def test_more_experts_than_slots_can_be_looked_up_and_some_admitted(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    play(pool, [0, 1])
    pool.look_up([2, 3, 4, 5, 0])
    assert admitted(pool, 4) == (4, 1, 1, 1, False)
    assert pool.admit(5) is None, "no expert of the event, hit or admitted, is a victim"
    assert [pool.find(expert) for expert in (0, 4)] == [0, 1]


def test_misses_are_ranked_by_score_then_rows_then_appearance(make_pool: MakePool) -> None:
    pool = make_pool(9, 1, "decay", 1.0)
    play(pool, [7], [7], [3], [0])  # only 0 has the slot; 7 was asked for twice, 3 once
    pool.look_up([1, 2, 5, 5, 3, 7, 0])
    assert pool.rank() == [7, 3, 5, 1, 2]


def test_lru_ranks_by_rows_then_appearance(make_pool: MakePool) -> None:
    pool = make_pool(9, 1, "lru")
    play(pool, [7], [0])
    pool.look_up([1, 2, 5, 5, 7])
    assert pool.rank() == [5, 1, 2, 7]


def test_who_has_a_slot_is_not_ranked(make_pool: MakePool) -> None:
    pool = make_pool(9, 3)
    pool.event([4], publish=False)
    pool.look_up([4, 5, 6, 7])
    assert pool.rank() == [5, 6, 7], "4 is on its way"
    assert pool.admit(4) is None
    pool.admit(6)
    assert pool.rank() == [5, 7]


def test_decay_refuses_a_miss_that_is_not_above_the_victim(make_pool: MakePool) -> None:
    pool = make_pool(8, 2, "decay", 1.0)
    play(pool, [0], [1], [0], [1])
    pool.look_up([2])
    assert pool.admit(2, may_refuse=True) is None
    pool.look_up([2])
    assert pool.admit(2, may_refuse=True) is None, "a tie keeps what is there"
    assert [pool.find(expert) for expert in (0, 1, 2)] == [0, 1, NONE]
    pool.look_up([2])
    assert admitted(pool, 2, may_refuse=True) == (2, 0, 0, 1, False)


def test_nothing_is_refused_while_a_slot_is_free_or_the_caller_insists(make_pool: MakePool) -> None:
    pool = make_pool(8, 2, "decay", 1.0)
    play(pool, [0], [0])
    pool.look_up([2])
    assert pool.admit(2, may_refuse=True) is not None
    play(pool, [2])
    pool.look_up([3])
    assert pool.admit(3, may_refuse=False) is not None


def test_lru_never_refuses(make_pool: MakePool) -> None:
    pool = make_pool(8, 1, "lru")
    play(pool, *([0],) * 5)
    pool.look_up([1])
    assert pool.admit(1, may_refuse=True) is not None


def test_hits_strangers_and_what_passed_are_not_admitted(make_pool: MakePool) -> None:
    pool = make_pool(8, 2)
    play(pool, [0, 1])
    pool.look_up([0])
    assert pool.evict(0)
    assert pool.admit(0) is None, "it was a hit"
    assert pool.admit(5) is None, "nobody asked for it"
    pool.passing([5, 6])
    assert pool.admit(6) is None, "it passed"
    assert pool.rank() == []


def test_miss_whose_slot_was_freed_is_admitted_again_and_displaces_nobody(make_pool: MakePool) -> None:
    pool = make_pool(8, 1)
    play(pool, [0])
    pool.look_up([2])
    assert admitted(pool, 2) == (2, 0, 0, 1, False)
    assert pool.evict(2)
    assert admitted(pool, 2) == (2, 0, NONE, 1, False)


@pytest.mark.parametrize("expert", [-1, 8, 2**31 - 1, -(2**31)])
def test_admitting_outside_the_experts_is_no_miss(make_pool: MakePool, expert: int) -> None:
    assert make_pool(8, 2).admit(expert) is None


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


# ---- follow ----


@pytest.mark.parametrize(("policy", "gone"), [("decay", 1), ("follow", 2)])
def test_follow_keeps_what_usually_follows_the_event(make_pool: MakePool, policy: str, gone: int) -> None:
    pool = make_pool(8, 3, policy, 0.5)
    play(pool, *([0], [1]) * 10, [2], [2])
    assert seen(pool, [0, 5])[1] == (5, gone, gone, 1, False), "1 was asked for longer ago than 2, and after every 0"


@pytest.mark.parametrize(("size", "gone"), [(15, 1), (16, 0)])
def test_follow_learns_nothing_from_events_of_more_than_16_experts(make_pool: MakePool, size: int, gone: int) -> None:
    """`size` strangers and 0, then 1: whether 1 is known to follow them decides between 1, asked for once, and 0, asked for six times."""
    pool = make_pool(40, 2, "follow", 1.0)
    many = [0, *range(10, 10 + size)]
    play(pool, [0], [1])
    for _ in range(5):
        pool.look_up(many)
        pool.look_up([1])
    for _ in range(9):
        pool.look_up([0])
    pool.look_up([*range(10, 10 + size)])
    found = pool.admit(10)
    assert found is not None
    assert found.evicted == (0 if gone == 1 else 1)


@pytest.mark.parametrize(("policy", "gone"), [("decay", 2), ("follow", 3)])
def test_follow_recalls_what_came_after_the_same_event(make_pool: MakePool, policy: str, gone: int) -> None:
    """2 and 3 are asked for equally often, and follow 0 and 1 equally often each; but after both together comes 2."""
    pool = make_pool(9, 2, policy, 1.0)
    for _ in range(6):
        for ids in ([2], [7], [0, 1], [2], [8], [0, 4], [3], [8], [1, 6], [3]):
            pool.look_up(ids)
    pool.look_up([2, 3])
    assert [admitted(pool, expert)[1] for expert in (2, 3)] == [0, 1]
    pool.look_up([7])
    pool.look_up([0, 1])
    assert admitted(pool, 0)[2] == gone


def test_follow_refuses_what_is_not_worth_more_and_only_where_it_may(make_pool: MakePool) -> None:
    pool = make_pool(8, 1, "follow", 1.0)
    play(pool, [0], [0], [0])
    assert [astuple(one) for one in pool.event([5], may_refuse=True)] == [(5, NONE, NONE, 1, False)]
    assert pool.find(0) == 0
    assert [astuple(one) for one in pool.event([5])] == [(5, 0, 0, 1, False)]


def test_decay_and_lru_do_not_refuse_in_an_event_that_may(make_pool: MakePool) -> None:
    for policy in ("decay", "lru"):
        pool = make_pool(8, 1, policy, 1.0)
        play(pool, [0], [0], [0])
        assert [astuple(one) for one in pool.event([5], may_refuse=True)] == [(5, 0, 0, 1, False)]


def test_event_that_may_refuse_admits_the_most_wanted_first(make_pool: MakePool) -> None:
    pool = make_pool(8, 2, "follow", 1.0)
    play(pool, [0], [0])
    pool.look_up([5])
    found = pool.event([4, 5], may_refuse=True)
    assert [astuple(one) for one in found] == [(4, 0, 0, 1, False), (5, 1, NONE, 1, False)], "5 came first"


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
    with pytest.raises(SlotpoolError, match=r'unknown policy "lruk" \(valid: decay, follow, lru\). Did you mean lru\?'):
        make_policy("lruk", 0.97, 8, 2)
