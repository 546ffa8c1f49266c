"""The core's pool against its specification, step by step: the same lookups, the same table, and the invariants of `core/pool/pool.h`."""

from __future__ import annotations

import random
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from slotpool import native
from slotpool.policies import NONE, Lookup, ReferencePool, make_policy

POLICIES = [("lru", 0.97), ("follow", 0.97), ("follow", 1e-30), ("decay", 0.97), ("decay", 1.0), ("decay", 0.5), ("decay", 1e-30)]
"""A decay of 1e-30 rescales every fourth event and forgets a score after a dozen."""
OUTSIDE = [-(2**31), -1, 2**31 - 1]


def twins(policy: str, decay: float, n_expert: int, n_slots: int) -> tuple[native.Pool, ReferencePool]:
    """The core's pool and the reference, both empty."""
    reference = ReferencePool(n_expert, n_slots, make_policy(policy, decay, n_expert, n_slots))
    return native.Pool(n_expert, n_slots, policy, decay), reference


def both_event(core: native.Pool, reference: ReferencePool, ids: list[int], publish: bool, may_refuse: bool = False) -> list[Lookup]:
    """One event in both, which must find the same."""
    found = reference.event(ids, publish=publish, may_refuse=may_refuse)
    assert [astuple(lookup) for lookup in core.event(ids, publish=publish, may_refuse=may_refuse)] == [astuple(lookup) for lookup in found]
    return found


class PoolMachine(RuleBasedStateMachine):
    """Drives both pools. What it knows itself, from lookups and answers alone: which slots are being filled, who is pinned."""

    @initialize(policy=st.sampled_from(POLICIES), n_expert=st.integers(1, 9), data=st.data())
    def build(self, policy: tuple[str, float], n_expert: int, data: Any) -> None:
        self.n_expert = n_expert
        self.n_slots = data.draw(st.integers(1, n_expert), label="n_slots")
        self.core, self.reference = twins(*policy, n_expert, self.n_slots)
        self.filling: set[int] = set()
        self.pinned: set[int] = set()
        self.kept: set[int] = set()
        self.resident: set[int] = set()  # of those that are kept
        if data.draw(st.booleans(), label="warm"):
            self.warm(data)

    def warm(self, data: Any) -> None:
        experts = data.draw(st.lists(self.experts(), unique=True), label="hottest")
        shares = sorted((data.draw(st.floats(0, 1), label="share") for _ in experts), reverse=True)
        n_kept, publish = data.draw(st.integers(0, self.n_slots), label="n_kept"), data.draw(st.booleans(), label="publish")
        hottest = list(zip(experts, shares, strict=True))
        found = self.reference.warm(hottest, n_kept=n_kept, publish=publish)
        assert [astuple(one) for one in self.core.warm(hottest, n_kept=n_kept, publish=publish)] == [astuple(one) for one in found]
        assert [one.expert for one in found] == experts[: self.n_slots]
        assert [one.slot for one in found] == list(reversed(range(len(found))))
        self.kept = set(experts[:n_kept])
        if not publish:
            self.filling.update(one.slot for one in found)

    @rule(data=st.data(), publish=st.booleans(), may_refuse=st.booleans())
    def event(self, data: Any, publish: bool, may_refuse: bool) -> None:
        ids = data.draw(st.lists(self.experts(), max_size=12), label="ids")
        before = [self.core.find(expert) for expert in range(self.n_expert)]
        found = both_event(self.core, self.reference, ids, publish, may_refuse)
        assert [lookup.expert for lookup in found] == list(dict.fromkeys(ids))
        for lookup in found:
            self.check_lookup(lookup, ids, before)
        if not publish:
            self.filling.update(lookup.slot for lookup in found if lookup.slot != NONE and not lookup.is_hit)

    @rule(data=st.data(), publish=st.booleans())
    def pass_by(self, data: Any, publish: bool) -> None:
        ids = data.draw(st.lists(self.experts(), max_size=30), label="ids")
        before = [self.core.find(expert) for expert in range(self.n_expert)]
        found = self.reference.passing(ids, publish=publish)
        assert [astuple(lookup) for lookup in self.core.passing(ids, publish=publish)] == [astuple(lookup) for lookup in found]
        for lookup in found:
            assert lookup.evicted == NONE, "an event that passes evicted somebody"
            self.check_lookup(lookup, ids, before)
        if not publish:
            self.filling.update(lookup.slot for lookup in found if lookup.slot != NONE and not lookup.is_hit)

    @rule(data=st.data(), n_admitted=st.integers(0, 9), may_refuse=st.booleans(), publish=st.booleans())
    def event_in_two_halves(self, data: Any, n_admitted: int, may_refuse: bool, publish: bool) -> None:
        ids = data.draw(st.lists(self.experts(), max_size=30), label="ids")
        before = [self.core.find(expert) for expert in range(self.n_expert)]
        found = self.reference.look_up(ids)
        assert [astuple(lookup) for lookup in self.core.look_up(ids)] == [astuple(lookup) for lookup in found]
        for lookup in found:
            self.check_lookup(lookup, ids, before)
        ranked = self.reference.rank()
        assert self.core.rank() == ranked
        assert all(lookup.slot == NONE or lookup.is_hit for lookup in found), "looking up took a slot"
        assert set(ranked) <= {lookup.expert for lookup in found if not lookup.is_hit}
        for expert in ranked[:n_admitted]:
            self.admit(expert, ids, before, may_refuse, publish)

    @rule(data=st.data(), may_refuse=st.booleans(), publish=st.booleans())
    def admit_anybody(self, data: Any, may_refuse: bool, publish: bool) -> None:
        self.admit(data.draw(self.experts()), None, [], may_refuse, publish)

    def admit(self, expert: int, ids: list[int] | None, before: list[int], may_refuse: bool, publish: bool) -> None:
        held = [self.core.find(one) for one in range(self.n_expert)]
        admitted = self.reference.admit(expert, may_refuse=may_refuse, publish=publish)
        by_core = self.core.admit(expert, may_refuse=may_refuse, publish=publish)
        assert (by_core and astuple(by_core)) == (admitted and astuple(admitted))
        if admitted is None:
            assert held == [self.core.find(one) for one in range(self.n_expert)], "a refusal changed the pool"
            return
        assert admitted.slot not in self.filling
        assert admitted.evicted not in self.pinned | self.kept
        if ids is not None:
            self.check_lookup(admitted, ids, before if admitted.evicted == NONE else held)
        if not publish:
            self.filling.add(admitted.slot)

    @rule(data=st.data(), times=st.integers(1, 40))
    def repeat_an_event(self, data: Any, times: int) -> None:
        ids = data.draw(st.lists(self.experts(), max_size=3), label="ids")
        for _ in range(times):
            both_event(self.core, self.reference, ids, True)

    @rule(data=st.data())
    def refuse_to_be_warmed_twice(self, data: Any) -> None:
        both_event(self.core, self.reference, [], True)
        for pool in (self.core, self.reference):
            with pytest.raises(ValueError, match="expected each expert once"):
                pool.warm([(data.draw(self.experts()), 0.5)])

    @rule(data=st.data(), bad=st.sampled_from(OUTSIDE) | st.integers(0, 3))
    def refuse_an_id_out_of_range(self, data: Any, bad: int) -> None:
        ids = data.draw(st.lists(self.experts(), max_size=4), label="ids")
        ids.insert(data.draw(st.integers(0, len(ids)), label="place"), bad if bad in OUTSIDE else self.n_expert + bad)
        for pool in (self.core, self.reference):
            for ask in (pool.event, pool.passing, pool.look_up):
                with pytest.raises(ValueError, match="expected expert ids from 0 to"):
                    ask(ids)

    @precondition(lambda self: self.filling)
    @rule(data=st.data(), comes=st.booleans())
    def end_a_filling(self, data: Any, comes: bool) -> None:
        slot = data.draw(st.sampled_from(sorted(self.filling)), label="slot")
        self.filling.remove(slot)
        for pool in (self.core, self.reference):
            pool.publish(slot) if comes else pool.abandon(slot)

    @rule(data=st.data())
    def pin(self, data: Any) -> None:
        expert = data.draw(self.experts())
        is_resident = self.core.find(expert) != NONE
        assert self.core.pin(expert) is self.reference.pin(expert) is is_resident
        if is_resident:
            self.pinned.add(expert)

    @rule(data=st.data())
    def unpin(self, data: Any) -> None:
        expert = data.draw(self.experts())
        self.core.unpin(expert)
        self.reference.unpin(expert)
        self.pinned.discard(expert)

    @rule(data=st.data())
    def evict(self, data: Any) -> None:
        expert = data.draw(self.experts())
        may_go = self.core.find(expert) != NONE and expert not in self.pinned | self.kept
        assert self.core.evict(expert) is self.reference.evict(expert) is may_go

    @invariant()
    def tables_are_equal(self) -> None:
        slots = [self.core.find(expert) for expert in range(self.n_expert)]
        assert slots == [self.reference.find(expert) for expert in range(self.n_expert)]
        taken = [slot for slot in slots if slot != NONE]
        assert len(taken) == len(set(taken)), "two experts in one slot"
        assert all(0 <= slot < self.n_slots for slot in taken)
        assert not self.filling.intersection(taken), "a slot that is being filled was found"
        assert all(slots[expert] != NONE for expert in self.pinned), "a pinned expert was evicted"
        resident = {expert for expert in self.kept if slots[expert] != NONE}
        assert self.resident <= resident, "a kept expert was evicted"
        self.resident = resident

    def experts(self) -> st.SearchStrategy[int]:
        return st.integers(0, self.n_expert - 1)

    def check_lookup(self, lookup: Lookup, ids: list[int], before: list[int]) -> None:
        assert lookup.n_rows == ids.count(lookup.expert)
        assert lookup.is_hit is (before[lookup.expert] != NONE)
        assert not lookup.is_hit or (lookup.slot, lookup.evicted) == (before[lookup.expert], NONE)
        assert lookup.slot not in self.filling
        if lookup.evicted != NONE:
            assert lookup.evicted not in ids, "an expert of the event was evicted by it"
            assert lookup.evicted not in self.pinned | self.kept
            assert before[lookup.evicted] == lookup.slot


PoolMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
TestPoolMachine = PoolMachine.TestCase


@pytest.mark.parametrize("n_slots", [1, 6, 24, 64])
@pytest.mark.parametrize(("policy", "decay"), [("lru", 0.97), ("decay", 0.97), ("follow", 0.97)])
def test_long_run_of_skewed_routing_is_equal_event_by_event(policy: str, decay: float, n_slots: int) -> None:
    draw = random.Random(f"{policy} {n_slots}")  # the seed is the case
    n_expert = 64
    core, reference = twins(policy, decay, n_expert, n_slots)
    hot = list(range(n_expert))
    for event in range(2500):
        if event % 500 == 0:
            draw.shuffle(hot)  # a topic ends
        ids = [hot[int(n_expert * draw.random() ** 3)] for _ in range(draw.choice([2, 4, 4, 4, 32]))]
        both_event(core, reference, ids, True)
    assert [core.find(expert) for expert in range(n_expert)] == [reference.find(expert) for expert in range(n_expert)]


@pytest.mark.parametrize(
    ("n_expert", "n_slots", "k", "n_events"), [(6, 2, 1, 1500), (12, 4, 2, 3000), (32, 8, 4, 6000), (2500, 40, 8, 3000)]
)
def test_follow_is_equal_on_routing_that_repeats_itself(n_expert: int, n_slots: int, k: int, n_events: int) -> None:
    """Phrases that come back, whole or with a change, between noise, large events and gaps; longer than what is remembered."""
    draw = random.Random(f"{n_expert} {n_slots}")
    core, reference = twins("follow", 0.97, n_expert, n_slots)
    hot = [draw.randrange(n_expert) for _ in range(4 * n_slots)]
    phrases = [[draw.sample(hot, k) for _ in range(draw.randint(3, 12))] for _ in range(40)]
    events: list[list[int]] = []
    while len(events) < n_events:
        for ids in draw.choice(phrases):
            events.append([draw.choice(hot) if draw.random() < 0.05 else expert for expert in ids])
        if draw.random() < 0.1:
            events.append(draw.choices(range(n_expert), k=draw.choice([0, 1, 15, 16, 17, 64])))
    for number, ids in enumerate(events):
        both_event(core, reference, ids, True, may_refuse=number % 7 != 0)
    assert [core.find(expert) for expert in range(n_expert)] == [reference.find(expert) for expert in range(n_expert)]


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.97])
def test_scores_are_rescaled_alike(decay: float) -> None:
    """At 0.5 the unit passes 1e100 every 333 events, and a score that is not renewed underflows to zero after four rescales."""
    draw = random.Random(5)
    core, reference = twins("decay", decay, 12, 5)
    for event in range(9000):
        is_quiet = event % 3000 < 2500  # a few experts at a time, so that the others' scores sink and tie
        ids = [event // 3000] if is_quiet else draw.sample(range(12), 3)
        both_event(core, reference, ids, True)


def test_lookups_of_core_and_reference_have_the_same_fields() -> None:
    assert list(native.Lookup.__dataclass_fields__) == list(Lookup.__dataclass_fields__)


HOTTEST = [(5, 1.0), (2, 0.75), (7, 0.5), (0, 0.25), (1, 0.1)]


@pytest.mark.parametrize(("policy", "decay"), POLICIES)
@pytest.mark.parametrize("n_kept", [0, 1, 3])
def test_a_warm_pool_that_keeps_some_is_equal_event_by_event(policy: str, decay: float, n_kept: int) -> None:
    draw = random.Random(f"{policy} {decay} {n_kept}")
    core, reference = twins(policy, decay, 16, 4)
    assert [astuple(one) for one in core.warm(HOTTEST, n_kept=n_kept)] == [astuple(one) for one in reference.warm(HOTTEST, n_kept=n_kept)]
    for number in range(400):
        ids = draw.sample(range(16), draw.randint(1, 4))
        found = both_event(core, reference, ids, True, may_refuse=number % 3 == 0)
        assert not {lookup.evicted for lookup in found} & {expert for expert, _ in HOTTEST[:n_kept]}


@pytest.mark.parametrize("policy", ["lru", "decay", "follow"])
def test_of_a_warm_set_the_coldest_goes_first(policy: str) -> None:
    for pool in twins(policy, 0.97, 16, 4):
        pool.warm(HOTTEST)
        gone = [pool.event([new])[0].evicted for new in (8, 9, 10)]
        assert gone == {"lru": [0, 7, 2], "decay": [0, 8, 9], "follow": [0, 8, 7]}[policy], "the hottest outweigh what came once"


@pytest.mark.parametrize("hottest", [[(16, 0.5)], [(-1, 0.5)], [(1, 0.5), (1, 0.5)], [(1, 1.5)], [(1, -0.1)], [(1, float("nan"))]])
def test_what_cannot_be_expected_is_refused(hottest: list[tuple[int, float]]) -> None:
    for pool in twins("decay", 0.97, 16, 4):
        with pytest.raises(ValueError, match="expected"):
            pool.warm(hottest)
        assert pool.event([3])[0].slot == 0, "a refusal changed the pool"
