"""Budgets: what stays free, what fits, when experts stay on disk, and the core's own count of slots against a plain reference."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from slotpool import budget, model, plan
from slotpool.cli import main
from slotpool.cli.pool_options import pool_options
from slotpool.errors import MISUSED, REFUSED, SlotpoolError
from slotpool.model import Model
from slotpool.native import fit_slots
from slotpool.sizes import parse_bytes
from testkit import syn

MIB = 2**20
GIB = 2**30

# ---- formulas ----


@pytest.mark.parametrize(("available", "rail"), [(0, 64 * MIB), (GIB, 64 * MIB), (3200 * MIB, 64 * MIB), (64 * GIB, 64 * GIB // 50)])
def test_default_rail_is_the_larger_of_64_mib_and_two_percent(available: int, rail: int) -> None:
    assert budget.default_rail(available) == rail


@pytest.mark.parametrize(
    ("available", "rail", "wanted", "room"),
    [
        (GIB, None, None, GIB - 64 * MIB),
        (GIB, 0, None, GIB),
        (GIB, MIB, 5, 5),
        (GIB, MIB, GIB, GIB - MIB),
        (MIB, None, None, 0),
        (MIB, None, GIB, 0),
        (0, 0, 0, 0),
    ],
)
def test_room_never_touches_the_rail(available: int, rail: int | None, wanted: int | None, room: int) -> None:
    assert budget.room(available, rail, wanted) == room


@given(slab=st.integers(1, 3 * 4096), begin=st.integers(0, 2**40), power=st.integers(0, 12))
def test_slot_holds_the_blocks_of_its_slab_wherever_it_begins(slab: int, begin: int, power: int) -> None:
    block = 2**power
    span = -(-(begin + slab) // block) * block - begin // block * block
    assert span <= budget.slot_bytes(slab, block) < slab + 2 * block
    assert budget.slot_bytes(slab, block) <= budget.slot_bytes(slab)  # the largest block is the worst case


@given(slab=st.integers(1, 3 * 4096), power=st.integers(0, 12))
def test_slot_is_no_larger_than_the_worst_place_needs(slab: int, power: int) -> None:
    block = 2**power
    assert budget.slot_bytes(slab, block) == -(-(block - 1 + slab) // block) * block


@given(n_bytes=st.integers(0, 10**9), groups=st.lists(st.lists(st.integers(1, 10**6), min_size=1, max_size=3), min_size=1, max_size=4))
def test_slots_that_are_said_to_fit_do_and_one_more_does_not(n_bytes: int, groups: list[list[int]]) -> None:
    n_slots = budget.n_fitting(n_bytes, groups)
    assert n_slots == 0 or budget.needed(groups, [n_slots] * len(groups)) <= n_bytes
    assert budget.needed(groups, [n_slots + 1] * len(groups)) > n_bytes


def test_rail_is_the_cores() -> None:
    source = (Path(__file__).parents[2] / "core/dispatch/allotment.cpp").read_text()
    assert f"kLeastRail = {budget.MIN_RAIL >> 20}U << 20;" in source
    assert f"kRailShare = {budget.RAIL_SHARE};" in source


def test_ring_is_as_long_as_the_cores() -> None:
    source = (Path(__file__).parents[2] / "core/transfer/slab_stream.cpp").read_text()
    assert f"kLeastRing = {budget.LEAST_RING >> 20}U << 20;" in source
    assert f"kRunsInRing = {budget.RUNS_IN_RING};" in source
    assert budget.ring_bytes([[5], [100 * MIB, 7]]) == 4 * (100 * MIB + 2 * 4096)
    assert budget.ring_bytes([[5]]) == budget.ring_bytes([]) == 32 * MIB


@given(n_bytes=st.integers(0, 2**50))
def test_size_for_an_option_is_enough_and_can_be_read(n_bytes: int) -> None:
    found = parse_bytes(budget.as_option(n_bytes))
    assert n_bytes <= found <= n_bytes + max(1024, n_bytes // 16)


# ---- the core's count ----

GROUPS = st.lists(st.tuples(st.integers(1, 64), st.integers(0, 10**6)), max_size=8)


def plan_text(slots: list[int]) -> str:
    lines = [f"group layer={layer} pass=exps device=CPU slots={n} n_expert=65536" for layer, n in enumerate(slots)]
    return "\n".join(["slotpool-plan 1", *lines]) + "\n"


def reference(planned: list[int], n_bytes: int, slot_bytes: list[int]) -> list[int]:
    """As core/plan/fit.h says it."""
    total = sum(n * size for n, size in zip(planned, slot_bytes, strict=True))
    if total <= n_bytes:
        return planned
    slots = [n * n_bytes // total for n in planned]
    for i, size in enumerate(slot_bytes):
        left = n_bytes - sum(n * size for n, size in zip(slots, slot_bytes, strict=True))
        if size <= left and slots[i] < planned[i]:
            slots[i] += 1
    return slots


@given(groups=GROUPS, n_bytes=st.integers(0, 10**8))
def test_core_fits_slots_as_the_reference_does(groups: list[tuple[int, int]], n_bytes: int) -> None:
    planned, slot_bytes = [n for n, _ in groups], [size for _, size in groups]
    assert fit_slots(plan_text(planned), n_bytes, slot_bytes) == reference(planned, n_bytes, slot_bytes)


CLAIMS = ("whole", "explicit", "")


@given(
    groups=st.lists(st.tuples(st.integers(1, 64), st.integers(0, 10**6), st.sampled_from(CLAIMS)), max_size=8),
    n_bytes=st.integers(0, 10**8),
)
def test_claims_are_served_in_their_order_each_from_what_is_left(groups: list[tuple[int, int, str]], n_bytes: int) -> None:
    lines = plan_text([n for n, _, _ in groups]).splitlines()
    claimed = [line + f" claim={claim}" * bool(claim) for line, (*_, claim) in zip(lines[1:], groups, strict=True)]
    expected, left = [0] * len(groups), n_bytes
    for of in CLAIMS:
        mine = [index for index, (*_, claim) in enumerate(groups) if claim == of]
        for index, n in zip(mine, reference([groups[i][0] for i in mine], left, [groups[i][1] for i in mine]), strict=True):
            expected[index] = n
        left -= sum(expected[index] * groups[index][1] for index in mine)
    assert fit_slots("\n".join([lines[0], *claimed]), n_bytes, [size for _, size, _ in groups]) == expected


@given(groups=GROUPS, share=st.floats(0, 1.5))
def test_slots_fit_are_even_and_leave_less_than_a_slot(groups: list[tuple[int, int]], share: float) -> None:
    planned, slot_bytes = [n for n, _ in groups], [size for _, size in groups]
    total = sum(n * size for n, size in groups)
    n_bytes = int(total * share)
    found = fit_slots(plan_text(planned), n_bytes, slot_bytes)
    used = sum(n * size for n, size in zip(found, slot_bytes, strict=True))
    assert used <= n_bytes
    assert all(0 <= n <= most for n, most in zip(found, planned, strict=True))
    assert found == planned or n_bytes - used < max(slot_bytes)
    assert total == 0 or all(n >= min(most, most * n_bytes // total) for n, most in zip(found, planned, strict=True))


def test_rest_is_given_out_in_the_order_of_the_groups() -> None:
    assert fit_slots(plan_text([10, 10, 10]), 20, [1, 1, 1]) == [7, 7, 6]


def test_group_with_a_slot_too_large_for_the_rest_is_passed_over() -> None:
    assert fit_slots(plan_text([3, 3]), 28, [10, 1]) == [2, 3]


def test_group_that_nothing_fits_into_gets_none() -> None:
    assert fit_slots(plan_text([2, 2]), 5, [100, 5]) == [0, 1]
    assert fit_slots(plan_text([2, 2]), 0, [1, 1]) == [0, 0]


def test_sums_of_slots_do_not_overflow() -> None:
    most = 2**64 - 1
    assert fit_slots(plan_text([65536] * 3), most, [most] * 3) == [1, 0, 0]
    assert fit_slots(plan_text([65536] * 3), most, [2**47] * 3) == [43691, 43690, 43690]
    assert fit_slots(plan_text([65536]), most, [0]) == [65536]


def test_sizes_of_another_number_of_groups_are_refused() -> None:
    for sizes in ([], [1], [1, 1, 1]):
        with pytest.raises(SlotpoolError, match=f"Expected the bytes of a slot for each of 2 groups, found {len(sizes)}"):
            fit_slots(plan_text([1, 1]), 5, sizes)


def test_plan_that_cannot_be_read_has_no_slots() -> None:
    with pytest.raises(SlotpoolError, match="at line 1 of the plan"):
        fit_slots("hello\n", 5, [])


# ---- when experts stay on disk ----


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Model:
    spec = syn.Spec(n_layer=2, n_expert=16, n_expert_used=4)
    return model.read(syn.write(spec, tmp_path_factory.mktemp("models") / "small.gguf"))


def smallest(facts: Model) -> int:
    """Bytes of the slots that one token uses, rooms for direct reads, tails and the ring included."""
    return sum(4 * budget.slot_bytes(tensor.slab_bytes) + budget.TAIL for tensor in facts.experts) + budget.LEAST_RING


def test_auto_is_off_where_weights_and_rail_fit(facts: Model) -> None:
    needed = facts.expert_bytes + facts.other_bytes
    for made in (
        plan.make(facts, "auto"),
        plan.make(facts, "auto", available=needed + 64 * MIB),
        plan.make(facts, "auto", rail=5, available=needed + 5),
    ):
        assert not made.reads_files
        assert made.memory is None
        assert made.reason == "off: no device to pool on, and RAM suffices (slots would only double the memory)"


def test_auto_leaves_experts_on_disk_where_weights_and_rail_do_not_fit(facts: Model) -> None:
    big = replace(facts, other_bytes=GIB)  # what is dense counts as well
    for made in (plan.make(big, "auto", available=GIB), plan.make(big, "auto", rail=5, available=GIB + facts.expert_bytes + 4)):
        assert made.reads_files
        assert [group.slots for group in made.groups] == [16, 16]
        assert made.memory is not None
        assert made.memory.budget is None
        assert made.warnings == ()


def test_auto_is_off_where_not_even_one_token_fits(facts: Model) -> None:
    made = plan.make(replace(facts, other_bytes=GIB), "auto", rail=0, available=smallest(facts) - 1)
    assert not made.groups
    assert not made.reads_files
    assert made.reason.startswith("off: 4 slots per expert tensor, which one token uses, need ")


@pytest.mark.parametrize(("slots", "most"), [("auto", 16), ("all", 16), (9, 9), (4, 4), (99, 16)])
def test_slots_are_the_most_a_tensor_gets_with_a_budget(facts: Model, slots: plan.Slots, most: int) -> None:
    for ram_budget in ("auto", GIB):
        made = plan.make(facts, slots, ram_budget=ram_budget)
        assert {group.slots for group in made.groups} == {most}
        assert made.reads_files


def test_numbers_in_slots_keep_experts_in_memory_without_a_budget(facts: Model) -> None:
    made = plan.make(facts, 8, available=1)
    assert not made.reads_files
    assert {group.slots for group in made.groups} == {8}


def test_budget_and_rail_are_written_as_they_were_given(facts: Model) -> None:
    assert plan.make(facts, "auto", ram_budget="auto").memory == plan.PlannedMemory(None, None, 0)
    assert plan.make(facts, "auto", ram_budget=GIB, rail=MIB).memory == plan.PlannedMemory(GIB, MIB, 0)


def test_core_reads_a_plan_with_files(facts: Model) -> None:
    made = plan.make(facts, "auto", ram_budget="auto", poison=True, policy="lru")
    assert fit_slots(plan.to_text(made), 2**60, [1, 1]) == [16, 16]
    assert [(file.size, file.mtime_ns) for file in made.files] == [
        (os.stat(file.path).st_size, os.stat(file.path).st_mtime_ns) for file in facts.files
    ]


def test_no_slots_and_a_budget_is_a_contradiction(facts: Model) -> None:
    with pytest.raises(SlotpoolError, match=r"found --slots 0 with a RAM budget \(at --ram-budget\)\. Leave out --slots, or"):
        plan.make(facts, 0, ram_budget="auto")


def test_fewer_slots_than_one_token_uses_are_refused_with_a_budget(facts: Model) -> None:
    with pytest.raises(SlotpoolError, match=r"expected at least 4 slots.*found 3"):
        plan.make(facts, 3, ram_budget="auto")


def test_budget_that_cannot_hold_one_token_names_the_smallest_that_works(facts: Model) -> None:
    with pytest.raises(
        SlotpoolError, match=r"4 slots per expert tensor.*the RAM budget is .*\(at --ram-budget\)\. Try --ram-budget "
    ) as caught:
        plan.make(facts, "auto", ram_budget=smallest(facts) - 1)
    assert caught.value.exit_code == MISUSED
    named = parse_bytes(caught.value.do.split()[2].rstrip(","))
    assert smallest(facts) <= named < smallest(facts) + MIB
    assert plan.make(facts, "auto", ram_budget=named).reads_files
    assert plan.make(facts, "auto", ram_budget=smallest(facts)).reads_files


def test_slots_that_were_said_to_work_do_fit(facts: Model) -> None:
    made = plan.make(facts, "auto", ram_budget=smallest(facts))
    per_slot = [sum(budget.slot_bytes(tensor.slab_bytes) for tensor in group.tensors) for group in made.groups]
    tails = sum(budget.TAIL * len(group.tensors) for group in made.groups)
    assert min(fit_slots(plan.to_text(made), smallest(facts) - tails - budget.LEAST_RING, per_slot)) >= 4


@pytest.mark.parametrize("ram_budget", ["auto", GIB])
def test_machine_that_cannot_hold_one_token_says_what_is_missing(facts: Model, ram_budget: plan.RamBudget) -> None:
    with pytest.raises(SlotpoolError, match=r"4 slots per expert tensor.* are available less the rail.*Free memory") as caught:
        plan.make(facts, "auto", ram_budget=ram_budget, rail=0, available=smallest(facts) - 1)
    assert caught.value.exit_code == REFUSED


def test_budget_above_what_is_available_will_be_cut(facts: Model) -> None:
    (warning,) = plan.make(facts, "auto", ram_budget=8 * GIB, available=4 * GIB).warnings
    assert warning == "a RAM budget of 8GiB is more than the 4GiB available less a rail of 81.92MiB: it will be cut"
    assert plan.make(facts, "auto", ram_budget=3 * GIB, available=4 * GIB).warnings == ()
    assert plan.make(facts, "auto", ram_budget=8 * GIB).warnings == ()
    assert plan.make(facts, "auto", ram_budget=4 * GIB, rail=0, available=4 * GIB).warnings == ()
    assert "a rail of 1B" in plan.make(facts, "auto", ram_budget=4 * GIB, rail=1, available=4 * GIB).warnings[0]


def test_budget_for_fewer_than_twice_what_a_token_uses_is_a_warning(facts: Model) -> None:
    (warning,) = plan.make(facts, "auto", ram_budget=smallest(facts)).warnings
    assert warning.startswith("about 4 slots per expert tensor fit into ")
    assert "fewer than twice the 4 experts a token uses" in warning
    assert plan.make(facts, "auto", ram_budget=2 * smallest(facts)).warnings == ()
    (few,) = plan.make(facts, 5, ram_budget=GIB).warnings
    assert few.startswith("5 slots are fewer")


def test_rail_without_a_budget_is_not_dropped_in_silence(facts: Model) -> None:
    for slots in (8, "all", 0):
        (warning,) = plan.make(facts, slots, rail=5).warnings
        assert "a rail has no effect" in warning
    assert plan.make(facts, "auto", rail=5).warnings == ()  # it decided


@pytest.mark.parametrize("ram_budget", [-1, True, False, 1.5, "", "1GiB", "all", 2**62 + 1, b"auto", [], "\x1b"])
def test_budget_that_is_none_is_refused(facts: Model, ram_budget: plan.RamBudget) -> None:
    with pytest.raises(SlotpoolError, match=r"expected a number of bytes or auto, found .*\(at --ram-budget\)") as caught:
        plan.make(facts, "auto", ram_budget=ram_budget)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("rail", [-1, True, 1.5, "auto", 2**62 + 1])
def test_rail_that_is_none_is_refused(facts: Model, rail: int) -> None:
    with pytest.raises(SlotpoolError, match=r"expected a number of bytes, found .*\(at --rail\)"):
        plan.make(facts, "auto", rail=rail)


def test_dense_model_with_a_budget_is_off(facts: Model) -> None:
    made = plan.make(replace(facts, experts=()), "auto", ram_budget=GIB)
    assert not made.reads_files
    assert "dense" in made.reason


# ---- options ----


def given_to_the_verb(*arguments: str) -> dict[str, object]:
    taken: dict[str, object] = {}

    @click.command()
    @pool_options("auto")
    def verb(**options: object) -> None:
        taken.update(options)

    result = CliRunner().invoke(verb, arguments)
    if result.exception:
        raise result.exception
    return taken


@pytest.mark.parametrize(
    ("arguments", "ram_budget", "rail"),
    [
        ((), None, None),
        (("--ram-budget", "auto"), "auto", None),
        (("--ram-budget", "20GiB", "--rail", "512MiB"), 20 * GIB, 512 * MIB),
        (("--ram-budget", "0", "--rail", "0"), 0, 0),
    ],
)
def test_options_reach_the_verb_in_bytes(arguments: tuple[str, ...], ram_budget: object, rail: object) -> None:
    taken = given_to_the_verb(*arguments)
    assert (taken["ram_budget"], taken["rail"]) == (ram_budget, rail)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ram-budget", "much"), r"expected a size such as 20GiB or 512MiB, found .much.*--ram-budget\)\. auto is what is available"),
        (("--ram-budget", "-1"), r"expected a size.*--ram-budget"),
        (("--ram-budget", ""), r"expected a size.*--ram-budget"),
        (("--ram-budget", "20G"), r"unknown unit .G.*--ram-budget.*Write GiB.*auto is what"),
        (("--rail", "auto"), r"expected a size such as 20GiB or 512MiB, found .auto.*--rail"),
    ],
)
def test_size_that_is_none_is_refused_with_its_option(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(SlotpoolError, match=said):
        given_to_the_verb(*arguments)


def test_run_says_what_a_budget_needs(facts: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(facts.files[0].path), "-p", "a", "--ram-budget", "1"]) == MISUSED
    assert "Try --ram-budget " in capsys.readouterr().err
