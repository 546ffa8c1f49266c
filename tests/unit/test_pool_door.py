"""The door to the core's pool: bad input is refused in words, and nothing that a caller passes ends or damages the process."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from slotpool.errors import SlotpoolError
from slotpool.native import EventArrays, Link, Pool, Replayed, belady
from slotpool.native.replay import IS_PROMPT, PASSES, replay, replay_over


@pytest.mark.parametrize("policy", ["", "LRU", "lruk", "default", "decay ", "lfu", "läuft"])
def test_unknown_policy_is_refused(policy: str) -> None:
    with pytest.raises(SlotpoolError, match=f'expected policy lru, decay or follow.*found "{policy}"'):
        Pool(8, 4, policy)


@pytest.mark.parametrize(("n_expert", "n_slots"), [(8, 0), (8, -1), (8, 9), (0, 0), (0, 1), (-1, 1), (-8, -9), (1, 2)])
def test_slots_out_of_range_are_refused(n_expert: int, n_slots: int) -> None:
    with pytest.raises(SlotpoolError, match=rf"1 to n_expert slots.*found .* {n_slots} slots of {n_expert}"):
        Pool(n_expert, n_slots, "lru")


@pytest.mark.parametrize("policy", ["lru", "decay", "follow"])
@pytest.mark.parametrize("decay", [0.0, -0.0, -0.5, 1.0000001, 2.0, float("nan"), float("inf"), float("-inf")])
def test_decay_out_of_range_is_refused(policy: str, decay: float) -> None:
    with pytest.raises(SlotpoolError, match=r"a decay in \(0, 1\], found"):
        Pool(8, 4, policy, decay)


@pytest.mark.parametrize("decay", [1.0, 0.5, 1e-300, 5e-324])
def test_every_decay_in_range_is_taken(decay: float) -> None:
    pool = Pool(8, 2, "decay", decay)
    for expert in (0, 1, 2, 0, 3):
        pool.event([expert])
    assert pool.find(3) != -1


def test_smallest_pool_works() -> None:
    pool = Pool(1, 1, "lru")
    assert [pool.event([0])[0].is_hit for _ in range(3)] == [False, True, True]


@pytest.mark.parametrize("expert", [-1, 8, 2**31 - 1, -(2**31), 2**32, 2**32 + 3, -(2**32), 2**64])
def test_id_out_of_range_is_refused(expert: int) -> None:
    pool = Pool(8, 2, "lru")
    with pytest.raises(ValueError, match="expected expert ids from 0 to 7"):
        pool.event([1, expert])
    assert [pool.find(expert) for expert in range(8)] == [-1] * 8


def test_event_may_ask_for_more_rows_than_experts() -> None:
    (found,) = Pool(8, 2, "lru").event([3] * 10_000)
    assert (found.expert, found.slot, found.n_rows) == (3, 0, 10_000)


def events_of(*events: tuple[int, ...], marks: tuple[int, ...] = ()) -> EventArrays:
    ids = np.array([expert for event in events for expert in event], np.int32)
    first = np.cumsum([0, *map(len, events)], dtype=np.int64)
    return EventArrays(ids, first, np.array(marks or [0] * len(events), np.uint8))


def test_replay_counts_what_its_events_found() -> None:
    hits = np.full(4, -1, np.int32)
    generation, prompt = replay(Pool(4, 2, "lru"), events_of((0, 1), (1, 0), (2, 2), (0, 1)), hits=hits)
    assert hits.tolist() == [0, 2, 0, 1]  # 2 takes the place of 0
    assert generation == Replayed(events=4, lookups=7, hits=3, admitted=4)
    assert prompt == Replayed()
    assert replay(Pool(4, 2, "lru"), events_of()) == (Replayed(), Replayed())


def test_replay_counts_prompts_apart_and_lets_events_pass() -> None:
    events = events_of((0, 1), (2, 2, 3), (0, 1), marks=(0, PASSES | IS_PROMPT, 0))
    pool = Pool(4, 2, "lru")
    assert replay(pool, events) == (Replayed(2, 4, 2, 2), Replayed(1, 2, 0, 0))
    assert [pool.find(expert) for expert in range(4)] == [0, 1, -1, -1]


def test_replay_that_admits_nobody_leaves_the_slots_as_they_are() -> None:
    pool = Pool(4, 2, "lru")
    pool.event([3, 1])
    assert replay(pool, events_of((0, 1), (2, 3), (1,)), "none")[0] == Replayed(3, 5, 3, 0)
    assert [pool.find(expert) for expert in range(4)] == [-1, 1, -1, 0]


def test_replay_refuses_an_id_out_of_range() -> None:
    for bad in (4, -1):
        with pytest.raises(ValueError, match="expert ids from 0 to 3"):
            replay(Pool(4, 2, "lru"), events_of((0, 1), (bad, 0)))
        with pytest.raises(ValueError, match="expert ids from 0 to 3"):
            belady(events_of((0, 1), (bad, 0)), 4, 2)


def test_optimum_needs_a_slot() -> None:
    with pytest.raises(ValueError, match="at least one slot"):
        belady(events_of((0,)), 4, 0)


@pytest.mark.parametrize(
    ("ids", "first", "marks"),
    [([0], [0, 2], [0]), ([0], [1, 1], [0]), ([0, 1], [0, 2, 1], [0, 0]), ([0], [0, 1], []), ([0], [0, 1], [0, 0]), ([0, 1], [0, 1], [0])],
)
def test_events_that_do_not_cut_the_ids_are_refused(ids: list[int], first: list[int], marks: list[int]) -> None:
    with pytest.raises(ValueError, match=r"expected . events that cut"):
        EventArrays(np.array(ids, np.int32), np.array(first, np.int64), np.array(marks, np.uint8))


def test_arrays_of_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="contiguous int32 ids"):
        EventArrays(np.array([0]), np.array([0, 1], np.int64), np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="contiguous int32 ids"):
        EventArrays(np.zeros(4, np.int32)[::2], np.array([0, 1, 2], np.int64), np.zeros(2, np.uint8))
    with pytest.raises(ValueError, match="int32 hits of 1 events"):
        replay(Pool(4, 2, "lru"), events_of((0,)), hits=np.zeros(2, np.int32))


OUTSIDE = "(-1, -2**31, 8, 1000, 2**31 - 1)"
SCRIPTS = {
    "find": f"assert [pool.find(expert) for expert in {OUTSIDE}] == [-1] * 5",
    "pin": f"assert not any(pool.pin(expert) for expert in {OUTSIDE})",
    "unpin": f"[pool.unpin(expert) for expert in {OUTSIDE}]",
    "evict": f"assert not any(pool.evict(expert) for expert in {OUTSIDE})",
    "publish": f"[pool.publish(slot) for slot in {OUTSIDE}]",
    "abandon": f"[pool.abandon(slot) for slot in {OUTSIDE}]",
}


def run(script: str) -> subprocess.CompletedProcess[str]:
    """The script in a process of its own, which may die of it, with little memory."""
    head = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        f"sys.path[:] = {sys.path!r}\n"
        "from contextlib import suppress\n"
        "from slotpool.errors import SlotpoolError\n"
        "from slotpool.native import Pool\n"
        "pool = Pool(8, 4, 'decay'); pool.event([5, 6])\n"
    )
    return subprocess.run([sys.executable, "-c", head + script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("call", SCRIPTS)
def test_number_out_of_range_finds_nothing_and_touches_no_memory(call: str) -> None:
    check = "\nassert [pool.find(expert) for expert in range(8)] == [-1, -1, -1, -1, -1, 0, 1, -1]\nprint('alive')"
    result = run(SCRIPTS[call] + check)
    assert (result.returncode, result.stdout) == (0, "alive\n"), result.stderr


@pytest.mark.parametrize("policy", ["lru", "decay", "follow"])
@pytest.mark.parametrize("call", ["publish", "abandon"])
def test_slot_that_is_not_being_filled_is_neither_published_nor_abandoned(policy: str, call: str) -> None:
    result = run(
        f"pool = Pool(8, 3, {policy!r}); pool.event([5])\n"
        f"for slot in (0, 1, 2):\n  with suppress(ValueError): pool.{call}(slot)\n"
        "print(pool.find(5), [lookup.slot for lookup in pool.event([6, 7, 5, 4])])"
    )
    assert (result.returncode, result.stdout) == (0, "0 [1, 2, 0, -1]\n"), result.stderr


@pytest.mark.parametrize("n_expert", ["2**31 - 1", "2**32 + 8", "2**24"])
def test_more_experts_than_any_model_has_are_refused(n_expert: str) -> None:
    result = run(f"try: Pool({n_expert}, 1, 'decay')\nexcept SlotpoolError: print('refused')")
    assert (result.returncode, result.stdout) == (0, "refused\n"), result.stderr


# ---- slots that a link fills ----

AT_ONCE = Link(1.0, 1.0, 0, (0,))


def one_by_one(*experts: int) -> EventArrays:
    return EventArrays(np.array(experts, np.int32), np.arange(len(experts) + 1, dtype=np.int64), np.zeros(len(experts), np.uint8))


@pytest.mark.parametrize(
    ("link", "hits", "later"),
    [
        # 0 fills the only slot; 1 and 2 take turns for it
        (AT_ONCE, [0, 0, 1, 0, 1, 0, 1, 0, 1], 4),
        (Link(0.25, 1.0, 0, (0,)), [0, 0, 1, 0, 0, 1, 1, 0, 1], 2),
        (Link(1.0, 1.0, 1, (0,)), [0, 0, 0, 0, 0, 0, 0, 0, 0], 4),
        (Link(0.0, 0.0, 5, (0, 1)), [0, 0, 1, 0, 1, 0, 1, 0, 1], 0),
        (Link(0.0, 0.0, 0, (0,)), [0, 0, 1, 0, 0, 1, 1, 0, 0], 1),
    ],
    ids=["brings-all", "a-quarter-an-event", "comes-an-event-later", "copied-before-use", "brings-one"],
)
def test_slots_are_filled_as_the_link_brings_experts(link: Link, hits: list[int], later: int) -> None:
    found = np.zeros(9, np.int32)
    generation, prompt = replay_over(Pool(4, 1, "lru"), one_by_one(0, 1, 1, 2, 2, 1, 1, 2, 2), link, found)
    assert found.tolist() == hits
    assert (generation.lookups, generation.hits, generation.later, prompt) == (9, sum(hits), later, Replayed())


@pytest.mark.parametrize("policy", ["lru", "follow"])
@pytest.mark.parametrize(("n_copied", "admission"), [((0,), "wanted"), (tuple(range(9)), "all")])
def test_a_link_that_brings_everything_is_no_link(policy: str, n_copied: tuple[int, ...], admission: str) -> None:
    rng = np.random.default_rng(3)
    ids = np.concatenate([rng.permutation(16)[:4] // rng.integers(1, 4) for _ in range(500)]).astype(np.int32)
    events = EventArrays(ids, np.arange(0, 2001, 4, dtype=np.int64), np.zeros(500, np.uint8))
    over = replay_over(Pool(16, 6, policy), events, Link(9.0, 9.0, 0, n_copied))[0]
    alone = replay(Pool(16, 6, policy), events, admission)[0]
    assert over.lookups == alone.lookups > 0
    assert abs(over.hits - alone.hits) <= 0.02 * alone.lookups  # the most wanted first, not the first to appear


def test_what_a_link_brings_to_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="expected how many of no misses are copied"):
        replay_over(Pool(4, 1, "lru"), one_by_one(0), Link(1.0, 1.0, 0, ()))
    with pytest.raises(ValueError, match="expert ids from 0 to 3"):
        replay_over(Pool(4, 1, "lru"), one_by_one(0, 4), AT_ONCE)
