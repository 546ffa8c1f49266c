"""Predictions: exact budgets, seconds of an event, slots where they pay, verdicts on grids of bandwidths."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotpool.predict import (
    AUTO,
    COPY,
    CPU,
    FAULTING,
    FROM_DISK,
    Curve,
    Event,
    Found,
    Layer,
    Outlook,
    Rates,
    Replayer,
    Terms,
    Token,
    Want,
    assumed,
    event_seconds,
    flat,
    judge,
    link_of,
    mean_seconds,
    over_link,
    recorded,
    share_out,
)
from slotpool.trace import GENERATION, Facts, Group, Trace, single_events

EVENT = Event(4, 1000)
SLOW_LINK = Rates(1.0, 16.0, 0.25)
GRID = list(itertools.product((0.05, 0.25, 1.0, 4.0), (4.0, 16.0, 64.0)))
"""Link and device over the speed at which the CPU reads experts."""


def zipf(n_expert: int) -> Curve:
    """A static hot set under Zipf's law with exponent 1.2."""
    weights = 1 / np.arange(1, n_expert + 1) ** 1.2
    shares = np.concatenate([[0.0], np.cumsum(weights / weights.sum())])
    return lambda slots: float(shares[min(slots, n_expert)])


# ---- budgets ----


def test_budget_is_free_less_every_term() -> None:
    assert Terms("X", 100, weights=20, kv=10, compute=5, reserved=3, rail=2).budget == 60


@pytest.mark.parametrize("wanted", [0, 59, 60, 61, None])
def test_budget_is_never_more_than_wanted_and_never_more_than_there_is(wanted: int | None) -> None:
    assert Terms("X", 100, 20, 10, 5, 3, 2, wanted).budget == (60 if wanted is None else min(60, wanted))


def test_a_budget_that_the_terms_exceed_is_zero() -> None:
    assert Terms("X", 100, 90, 10, 5, 0, 0).budget == 0


# ---- an event ----


def test_break_even_is_one_less_link_over_ram() -> None:
    assert Rates(cpu=136.0, link=12.24).break_even == pytest.approx(0.91)
    assert Rates(cpu=10.0, link=20.0).break_even == 0.0


@pytest.mark.parametrize(("link", "device"), GRID)
def test_copying_every_miss_equals_plain_cpu_experts_at_the_break_even_rate(link: float, device: float) -> None:
    rates = Rates(cpu=1.0, link=link)  # the device costs nothing: the formula's own assumption
    plain = event_seconds(EVENT, 4, Rates(cpu=1.0), CPU)
    if rates.break_even > 0:
        assert mean_seconds(EVENT, rates.break_even, rates, COPY) == pytest.approx(plain)


@pytest.mark.parametrize(("link", "device"), GRID)
def test_auto_is_never_slower_than_copy_or_cpu(link: float, device: float) -> None:
    rates = Rates(cpu=1.0, device=device, link=link)
    for misses in range(5):
        best = min(event_seconds(EVENT, misses, rates, way) for way in (COPY, CPU))
        assert event_seconds(EVENT, misses, rates, AUTO) <= best


def test_hits_and_misses_overlap_in_the_way_cpu_and_add_up_in_the_way_copy() -> None:
    rates = Rates(cpu=1.0, device=2.0, link=4.0)
    assert event_seconds(EVENT, 1, rates, CPU) == max(4000 / 2, 1000 / 1)  # the device computes a row for the miss too
    assert event_seconds(EVENT, 1, rates, COPY) == 4000 / 2 + 1000 / 4


def test_the_device_computes_a_whole_call_whoever_serves_its_rows() -> None:
    """A call keeps its shape: rows of the CPU have idle slots. Without a row of its own the device has no call."""
    rates = Rates(cpu=1e9, device=2.0, link=1e9)
    assert [event_seconds(EVENT, misses, rates, CPU) for misses in range(5)] == pytest.approx([2000] * 4 + [4e-6])
    # two copied beside two on the CPU, then a call as long as one with nothing but hits
    assert event_seconds(EVENT, 4, Rates(cpu=1.0, device=4.0, link=1.0), AUTO) == 2000 + 1000


def test_a_turn_costs_only_where_the_cpu_computes() -> None:
    rates = Rates(cpu=1.0, device=2.0, turn=7.0)
    assert event_seconds(EVENT, 0, rates, CPU) == 2000
    assert event_seconds(EVENT, 4, rates, CPU) == 4007


def test_copies_beside_slow_the_cpu_down() -> None:
    assert event_seconds(EVENT, 4, Rates(cpu=1.0, cpu_beside=0.5), CPU) == 8000


def test_disk_reads_hide_behind_the_compute_of_hits_and_page_faults_do_not() -> None:
    rates = Rates(cpu=10.0, disk=2.0, faults=0.5)
    assert event_seconds(EVENT, 1, rates, FROM_DISK) == pytest.approx(500 + 1000 / 30)
    assert event_seconds(EVENT, 1, rates, FAULTING) == 400 + 2000


@given(st.floats(0, 1), st.sampled_from([CPU, COPY, AUTO, FROM_DISK, FAULTING]))
def test_the_mean_lies_between_all_hits_and_all_misses(hit_rate: float, way: str) -> None:
    rates = Rates(cpu=1.0, device=8.0, link=0.5, disk=0.2, faults=0.1)
    best, worst = (event_seconds(EVENT, misses, rates, way) for misses in (0, 4))
    assert best * (1 - 1e-9) <= mean_seconds(EVENT, hit_rate, rates, way) <= worst * (1 + 1e-9)


# ---- hit rates ----


def test_the_assumption_is_the_recorded_skew_and_says_nothing_else() -> None:
    curve = assumed(32)
    assert [curve(n) for n in (0, 8, 12, 16, 32, 99)] == [0.0, 0.694, 0.836, 0.916, 1.0, 1.0]


def trace_of(ids: np.ndarray, n_expert: int) -> tuple[Trace, Group]:
    rows = np.ascontiguousarray(ids, np.int32)
    group = Group(0, "exps", n_expert, ids.shape[1], rows, single_events(rows, GENERATION))
    return Trace(Facts(), (group,)), group


def test_recorded_hit_rates_are_the_pools_own() -> None:
    # two experts by turns: with two slots all but the first two lookups hit, with one none do
    trace, group = trace_of(np.array([[0], [1]] * 50), 4)
    curve = recorded(trace, group, "lru")
    assert [curve(n, None).hit_rate for n in (0, 1, 2, 4)] == [0.0, 0.0, 0.98, 0.98]


def test_fewer_slots_than_a_token_uses_find_nothing() -> None:
    trace, group = trace_of(np.array([[0, 1]] * 50), 4)
    assert recorded(trace, group, "lru")(1, None).hit_rate == 0.0
    assert recorded(trace, group, "lru")(2, None).hit_rate == 0.98


def test_rows_that_the_cpu_computes_cross_the_link_and_hits_do_not() -> None:
    """The layer's input once, and a row back for each: over a slow link as much as a small slab."""
    bare, rows = Event(4, 1000), Event(4, 1000, row_bytes=50)
    rates = Rates(cpu=1.0, device=16.0, link=0.5)
    assert [event_seconds(rows, m, rates, CPU) - event_seconds(bare, m, rates, CPU) for m in range(5)] == [0, 200, 300, 400, 500]
    assert [event_seconds(rows, m, rates, COPY) - event_seconds(bare, m, rates, COPY) for m in range(5)] == [0] * 5


# ---- slots ----


def want(curve: Curve, most: int = 32, slot_bytes: int = 1000, rates: Rates = SLOW_LINK) -> Want:
    return Want(4, most, slot_bytes, lambda slots: mean_seconds(EVENT, curve(slots), rates, AUTO))


@pytest.mark.parametrize("evenly", [True, False])
@pytest.mark.parametrize("n_bytes", [0, 3999, 4000, 31_999, 64_000, 10**9])
def test_slots_never_take_more_than_the_bytes_there_are_nor_less_than_a_token_uses(n_bytes: int, evenly: bool) -> None:
    wants = [want(zipf(32)), want(flat(32)), want(zipf(16), most=16, slot_bytes=500)]
    slots = share_out(wants, n_bytes, evenly=evenly)
    assert sum(n * one.slot_bytes for n, one in zip(slots, wants, strict=True)) <= n_bytes
    assert all(n == 0 or one.least <= n <= one.most for n, one in zip(slots, wants, strict=True))


def test_evenly_uses_what_fits_and_no_slot_less() -> None:
    assert share_out([want(flat(32))] * 3, 3 * 17 * 1000, evenly=True) == [17, 17, 17]
    assert share_out([want(flat(32))] * 3, 3 * 17 * 1000 - 1, evenly=True) == [16, 16, 16]


def test_enough_bytes_are_slots_for_everybody_when_shared_evenly() -> None:
    assert share_out([want(flat(32))] * 2, 64_000, evenly=True) == [32, 32]


@pytest.mark.parametrize(("link", "device"), GRID)
def test_skewed_routing_ends_at_the_knee(link: float, device: float) -> None:
    """All hot experts have slots; the cold ones, of which none is asked for, have none though there is room."""
    hot: Curve = lambda slots: min(1.0, slots / 10)  # noqa: E731
    (slots,) = share_out([want(hot, rates=Rates(1.0, device, link))], 10**9, evenly=False)
    assert 9 <= slots <= 12  # the last misses may hide behind the hits


def test_the_skewed_layer_gets_its_slots_first() -> None:
    hot: Curve = lambda slots: min(1.0, slots / 8)  # noqa: E731
    skewed, level = share_out([want(hot), want(flat(32))], 12_000, evenly=False)
    assert (skewed, level) == (8, 4)


def test_bytes_too_few_for_the_best_step_go_to_smaller_ones() -> None:
    """Where the last slots save the most, the best step is to all of them; what does not reach so far is not left."""
    late: Curve = lambda slots: (slots / 32) ** 2  # noqa: E731
    assert sum(share_out([want(late)] * 2, 24_000, evenly=False)) == 24


# ---- verdicts ----


def outlook(curve: Callable[[int], float], slots: int, rates: Rates, way: str = AUTO) -> Outlook:
    layers = [Layer(EVENT, rates, slots, curve(slots), slots / 32)] * 4
    return judge(layers, 100.0, way, CPU)


@pytest.mark.parametrize(("link", "device"), GRID)
@pytest.mark.parametrize("slots", [4, 8, 16])
def test_flat_routing_is_a_no_go_where_copies_are_dear(link: float, device: float, slots: int) -> None:
    """Whole layers on the device hit as often; only what runs at the same time as the CPU can gain."""
    found = outlook(flat(32), slots, Rates(1.0, device, link), COPY)
    if link <= 1.0:
        assert (found.verdict, found.predicted and found.predicted.hit_rate) == ("no-go", slots / 32)
        assert "would not pay" in found.reason


@pytest.mark.parametrize("device", [16.0, 64.0])
@pytest.mark.parametrize("link", [0.05, 0.1])
def test_flat_routing_is_a_no_go_on_a_fast_device_behind_a_slow_link(link: float, device: float) -> None:
    assert not outlook(flat(32), 8, Rates(1.0, device, link)).is_go


@pytest.mark.parametrize(("link", "device"), GRID)
def test_skewed_routing_with_a_quarter_of_the_slots_is_a_go(link: float, device: float) -> None:
    found = outlook(zipf(32), 8, Rates(1.0, device, link))
    assert found.is_go, found.reason
    assert found.predicted
    assert found.plain
    assert found.predicted.generation_tps > 1.03 * found.plain.generation_tps


def test_layers_without_slots_count_as_plain_without_a_device() -> None:
    found = judge([Layer(EVENT, Rates(1.0, 16.0), 0, 0.9, 0.0)], 100.0, AUTO, CPU)
    assert found.predicted == found.plain
    assert found.predicted
    assert found.predicted.hit_rate == 0.0


def test_speed_is_tokens_over_the_experts_and_the_rest() -> None:
    found = judge([Layer(EVENT, Rates(1000.0, 2000.0), 4, 1.0, 0.0)] * 3, 1.0, CPU, CPU)
    assert found.predicted
    assert found.plain
    assert found.predicted.generation_tps == pytest.approx(1 / (1.0 + 3 * 2.0))
    assert found.plain.generation_tps == pytest.approx(1 / (1.0 + 3 * 4.0))


def test_disk_slots_pay_where_page_faults_are_slower_than_reads() -> None:
    layer = Layer(EVENT, Rates(10.0, disk=2.0, faults=0.1), 8, 0.7, 0.7)
    assert judge([layer], 1.0, FROM_DISK, FAULTING).is_go


# ---- what the link brings ----

LINKED = Event(4, 1000)


@pytest.mark.parametrize(("link", "copied"), [(0.1e6, (0, 0, 0, 0, 0)), (0.5e6, (0, 0, 0, 1, 1)), (4e6, (0, 1, 2, 3, 4))])
def test_auto_copies_more_over_a_faster_link(link: float, copied: tuple[int, ...]) -> None:
    # an expert takes 1 ms on the CPU; over the middle link 2 ms: one of three or four misses comes while the CPU computes the others
    assert link_of(LINKED, Rates(cpu=1e6, device=16e6, link=link, turn=1e-6), AUTO).n_copied == copied


def test_a_link_brings_what_is_left_of_a_token_after_what_events_wait_for() -> None:
    # two layers, all four missed and one of them waited for, 2 ms an expert: 0.25 ms the device and 3 ms the CPU beside the copy; with
    # 1.75 ms a layer beside the experts 5 ms, 2 of them for that copy, and half a millisecond for the logits
    found = link_of(LINKED, Rates(cpu=1e6, device=16e6, link=0.5e6), AUTO, 0.0, Token(0.0035, 0.001, 2))
    assert found.experts_per_event == pytest.approx((5 - 2 - 0.5) / 2)
    assert (found.experts_per_miss, found.n_events_on_the_way) == (0.5, 0)


def test_rows_of_the_cpu_take_the_link_from_copies_for_later() -> None:
    # four rows and the input, 0.1 ms each, beside 4 ms of the CPU; an expert takes 10 ms
    event, rates = Event(4, 1000, row_bytes=10), Rates(cpu=1e6, device=16e6, link=0.1e6)
    assert link_of(event, rates, CPU, 0.0, Token(0.0)).experts_per_event == pytest.approx((4.5 - 0.5) / 10)
    assert link_of(LINKED, rates, CPU, 0.0, Token(0.0005)).experts_per_event == pytest.approx(4.5 / 10)


def test_a_link_that_is_always_waited_for_brings_nothing_for_later() -> None:
    found = link_of(LINKED, Rates(cpu=1e6, device=16e6, link=0.1e6), CPU, 0.0, Token(0.001, 0.005))
    assert (found.experts_per_event, found.n_events_on_the_way) == (0.0, 0)


def test_a_copy_that_takes_longer_than_a_token_is_missed_meanwhile() -> None:
    # 25 ms an expert, 10 ms a token: 4 ms the CPU's experts and the rest beside them
    found = link_of(LINKED, Rates(cpu=1e6, device=16e6, link=40e3), CPU, 0.0, Token(0.006))
    assert (found.experts_per_event, found.n_events_on_the_way) == (pytest.approx(0.4), 2)


@given(st.floats(0.0, 1.0), st.floats(1e3, 1e9), st.floats(1.0, 10.0))
def test_a_faster_link_brings_no_less(hit_rate: float, link: float, faster: float) -> None:
    """Where no event waits for copies; with `auto` a faster link has more to do before use."""
    slow, fast = (link_of(LINKED, Rates(1e6, 16e6, one), CPU, hit_rate, Token(0.001)).experts_per_event for one in (link, link * faster))
    assert slow <= fast * (1 + 1e-9)


def found_of(hit_rate: float, later: float) -> Replayer:
    return lambda slots, link: Found(hit_rate, later)


def test_transfers_wait_for_half_a_piece_where_copies_for_later_hold_the_link() -> None:
    # all missed: 4 ms on the CPU and 6 beside; a quarter of an expert of 20 ms each event holds the link for half the time, in pieces of
    # 1024 bytes, more than 0.1 ms; an event has four transfers, and the token seven
    event, rates = Event(4, 100_000), Rates(cpu=1e8, device=16e8, link=5e6)
    filled = over_link(found_of(0.0, 0.25), event, rates, CPU, Token(0.006))(8)
    assert filled.waits == pytest.approx(0.5 * (1024 / 5e6) * (4 / 2 + 7))


def test_pieces_take_a_tenth_of_a_millisecond_over_a_link_that_is_fast_enough() -> None:
    # 100 layers, hits alone: ids there and back, and a hundredth of a token's seven
    event, rates = Event(4, 10_000_000), Rates(cpu=1e9, device=16e9, link=1e9)
    filled = over_link(found_of(1.0, 0.05), event, rates, CPU, Token(0.25, n_layers=100))(8)
    assert filled.waits == pytest.approx(0.05 * 0.010 / 0.005 * 100e-6 * (2 / 2 + 7 / 100))


def test_over_an_infinitely_fast_link_nobody_waits_and_the_old_formula_holds() -> None:
    filled = over_link(found_of(0.5, 2.0), LINKED, Rates(1e6, 16e6), CPU, Token(0.001))(8)
    assert (filled.hit_rate, filled.waits) == (0.5, 0.0)
    layer = Layer(LINKED, Rates(1e6, 16e6), 8, 0.5, 0.0, waits=filled.waits)
    found = judge([layer], 0.001, CPU, CPU).predicted
    assert found
    assert found.generation_tps == pytest.approx(1 / (0.001 + mean_seconds(LINKED, 0.5, Rates(1e6, 16e6), CPU)))


def test_what_an_event_waits_is_part_of_a_token() -> None:
    layers = [Layer(LINKED, Rates(1e6, 16e6), 8, 1.0, 0.0, waits=waits) for waits in (0.001, 0.002)]
    found = judge(layers, 0.0, CPU, CPU).predicted
    assert found
    assert found.generation_tps == pytest.approx(1 / (0.003 + 2 * 4000 / 16e6))


def test_only_where_the_cpu_serves_misses_a_link_decides() -> None:
    with pytest.raises(KeyError):
        link_of(LINKED, Rates(cpu=1e6, link=1e6), COPY)


@pytest.mark.parametrize("way", [AUTO, CPU])
def test_over_a_link_that_brings_next_to_nothing_the_pool_finds_less(way: str) -> None:
    rng = np.random.default_rng(5)
    trace, group = trace_of(((rng.zipf(1.4, 4000) + np.arange(4000) // 500 * 5) % 16)[:, None], 16)
    found = recorded(trace, group, "lru")
    rates = [
        over_link(found, Event(1, 1000), Rates(cpu=1e6, device=16e6, link=link), way, Token(1e-3, n_layers=4))(4).hit_rate
        for link in (2e3, 2e4, 2e5, float("inf"))
    ]
    assert rates[0] < 0.6 * rates[-1]  # what slots hold is old: every 500 tokens others are hot
    assert rates[-1] == found(4, None).hit_rate  # an LRU refuses nobody


def test_auto_is_never_slower_than_either_and_has_the_cores_formula_between() -> None:
    event, rates = Event(4, 1000), Rates(cpu=1e6, device=16e6, link=1e6, turn=1e-4)
    for m in range(5):
        assert event_seconds(event, m, rates, AUTO) <= min(event_seconds(event, m, rates, way) for way in (COPY, CPU))
    # two copied beside two on the CPU, and what the device computes behind the copies: all four rows
    assert event_seconds(event, 4, rates, AUTO) == pytest.approx(4 * 1000 / 16e6 + 2 * 1000 / 1e6 + 1e-4)
