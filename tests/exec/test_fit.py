"""Programs that fit themselves into their devices (`--fit`, on unless told otherwise) leave room for slots, and no more than was asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slotpool import model, plan
from slotpool.exec.fit_target import fit_target, reserved
from slotpool.plan import Plan
from testkit import syn
from tests.exec.conftest import SPEC, Exec, chaos_counts, environment, pool_lines
from tests.exec.test_devices import completion, text_of

MIB = 2**20
GIB = 2**30
LARGE = replace(SPEC, n_ff_exp=1024, n_ctx=16384)
"""Slots of some MiB, and a context that fit can make smaller: fit counts in MiB, and leaves 1 GiB unless told otherwise."""


def planned(path: Path, slots: plan.Slots, devices: tuple[str, ...] = ("D0",), **options: object) -> Plan:
    return plan.make(model.read(path), slots, devices=devices, **options)  # type: ignore[arg-type]


def mib(n_bytes: int) -> int:
    return -(-n_bytes // MIB)


# ---- the variable ----


def test_the_slots_bytes_go_on_top_of_the_margin(model_file: Callable[[syn.Spec], Path]) -> None:
    made = planned(model_file(LARGE), 8)
    assert fit_target(made, [], {}) == str(mib(GIB + made.slot_bytes))
    assert made.slot_bytes > 10 * MIB


def test_prompts_that_stream_need_a_layer_more(model_file: Callable[[syn.Spec], Path]) -> None:
    made = planned(model_file(LARGE), 8, prefill="stream")
    layer = made.groups[0].n_expert * made.groups[0].slab_bytes
    assert made.staging_bytes == layer
    assert fit_target(made, [], {}) == str(mib(GIB + made.slot_bytes + layer))
    assert planned(model_file(LARGE), 8).staging_bytes == 0


def test_a_budget_is_what_is_reserved(model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(LARGE)
    assert fit_target(planned(path, 8, device_budget=3 * MIB), [], {}) == "1027"
    # more than all slots take nobody needs
    made = planned(path, 8, device_budget=GIB)
    assert fit_target(made, [], {}) == str(mib(GIB + made.slot_bytes))
    whole = planned(path, "auto", device_budget=GIB)
    assert reserved(whole, whole.devices[0]) == whole.slot_bytes


def test_auto_reserves_the_fewest_slots_that_are_useful(model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(LARGE)
    assert fit_target(planned(path, "auto"), [], {}) == fit_target(planned(path, 2 * LARGE.n_expert_used), [], {})
    assert planned(path, "auto").slot_bytes == planned(path, "all").slot_bytes
    assert fit_target(planned(path, "all"), [], {}) == str(mib(GIB + planned(path, "all").slot_bytes))


def test_a_rail_above_the_margin_takes_its_place(model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(LARGE)
    made = planned(path, 8, rail=3 * GIB)
    assert fit_target(made, [], {}) == str(mib(3 * GIB + made.slot_bytes))
    assert fit_target(planned(path, 8, rail=0), [], {}) == fit_target(planned(path, 8), [], {})


def test_several_devices_share_the_layers(model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(LARGE)
    made = planned(path, [8, 4], ("D0", "D1"))
    half = 2 * 8 * made.groups[0].slab_bytes  # two of three layers
    assert [reserved(made, device) for device in made.devices] == [half, half // 2]
    assert fit_target(made, [], {}) == str(mib(GIB + half))
    # a program that names its devices has them in that order, others among them
    assert fit_target(made, ["--device", "D1,D7,D0"], {}) == f"{mib(GIB + half // 2)},1024,{mib(GIB + half)}"
    assert fit_target(made, [], {"LLAMA_ARG_DEVICE": "D0,D1"}) == f"{mib(GIB + half)},{mib(GIB + half // 2)}"


def test_a_device_without_slots_has_nothing_reserved(model_file: Callable[[syn.Spec], Path]) -> None:
    made = planned(model_file(LARGE), [8, 0], ("D0", "D1"))
    assert [reserved(made, device) for device in made.devices] == [made.slot_bytes, 0]


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (("-fitt", "2000"), {}),
        (("--fit-target=2000",), {}),
        (("--fit_target", "2000"), {}),
        ((), {"LLAMA_ARG_FIT_TARGET": "2000"}),
        (("--fit", "off"), {}),
        (("-fit", "0"), {}),
        ((), {"LLAMA_ARG_FIT": "disabled"}),
    ],
)
def test_what_the_user_says_about_fit_stays(
    model_file: Callable[[syn.Spec], Path], arguments: tuple[str, ...], variables: dict[str, str]
) -> None:
    made = planned(model_file(LARGE), 8)
    assert fit_target(made, arguments, variables) is None
    assert fit_target(made, ("--fit", "off", "--fit", "on"), {}) is not None  # the last one counts


def test_slots_in_ram_reserve_nothing(model_file: Callable[[syn.Spec], Path]) -> None:
    assert fit_target(plan.make(model.read(model_file(LARGE)), 8), [], {}) is None


# ---- programs on a small device ----


class Small:
    """llama-completion on one chaos device of some size."""

    def __init__(self, run: Exec, slotpool_exec: Exec, program: list[object], variables: dict[str, str], counts: Path) -> None:
        self.run, self.exec, self.program, self.variables, self.counts = run, slotpool_exec, program, variables, counts

    def text(self, total_bytes: int, options: tuple[object, ...] = (), *more: object) -> tuple[str, str, int]:
        """What the program wrote, what was said, and the most bytes that it had on the device."""
        env = environment(**self.variables, CHAOS_TOTAL_BYTES=str(total_bytes), CHAOS_COUNTS=str(self.counts), CHAOS_POISON="0")
        run = (lambda program, **given: self.exec(options, program, **given)) if options else self.run
        out, said = text_of(run, [*self.program, *more], env=env)
        return out, said, chaos_counts(self.counts)[0]["bytes_peak"]


@pytest.fixture
def small(
    run: Exec,
    slotpool_exec: Exec,
    programs: Path,
    model_file: Callable[[syn.Spec], Path],
    chaos_variables: dict[str, str],
    tmp_path: Path,
) -> Small:
    return Small(run, slotpool_exec, completion(programs, model_file(LARGE)), chaos_variables, tmp_path / "counts")


OPTIONS = ("--slots", 8, "--miss", "copy", "--device", "CHAOS0")


def slot_mib(said: str) -> float:
    (line,) = pool_lines(said)
    found = re.search(r"pool 9 of 9 expert tensors, ([\d.]+)MiB of slots", line)
    assert found, line
    return float(found[1])


def test_fit_leaves_room_for_the_slots(small: Small, model_file: Callable[[syn.Spec], Path]) -> None:
    slots = planned(model_file(LARGE), 8).slot_bytes
    _, _, with_slots = small.text(8 * GIB, OPTIONS)
    # as much as the program wants for itself, and half of the slots
    total = GIB + with_slots - slots // 2
    alone, _, _ = small.text(total)
    pooled, said, peak = small.text(total, OPTIONS)
    assert pooled == alone
    assert slot_mib(said) == pytest.approx(slots / MIB, abs=0.01)
    assert peak <= total - GIB
    # whose own target leaves less room gets fewer slots, and the rail is kept all the same
    pooled, said, peak = small.text(total, OPTIONS, "-fitt", 1024)
    assert pooled == alone
    assert slot_mib(said) < 0.75 * slots / MIB
    assert peak <= total - GIB


def test_auto_slots_take_what_is_left(small: Small, model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(LARGE)
    options = ("--slots", "auto", *OPTIONS[2:])
    _, _, with_slots = small.text(8 * GIB, options)
    least = planned(path, 2 * LARGE.n_expert_used).slot_bytes
    total = GIB + with_slots - planned(path, "all").slot_bytes  # none for slots, where fit is not told
    _, said, peak = small.text(total, options)
    assert slot_mib(said) >= int(least / MIB)
    assert peak <= total - GIB


@pytest.mark.parametrize("mib_left", [40, 46])  # op offload alone takes 34
def test_fit_that_moves_layers_to_the_cpu_still_leaves_room(small: Small, model_file: Callable[[syn.Spec], Path], mib_left: int) -> None:
    slots = planned(model_file(LARGE), 8).slot_bytes
    total = GIB + slots + mib_left * MIB  # less than the layers and the smallest context take
    alone, _, _ = small.text(total - slots)
    pooled, said, peak = small.text(total, OPTIONS)
    assert pooled == alone
    assert slot_mib(said) == pytest.approx(slots / MIB, abs=0.01)
    assert peak <= total - GIB


def test_what_is_reserved_is_shown(slotpool_exec: Exec, script: Callable[[str], list[str]], model_file: Callable[[syn.Spec], Path]) -> None:
    path = model_file(LARGE)
    program = [*script("import os; print(os.environ.get('LLAMA_ARG_FIT_TARGET'))"), "-m", path]
    done = slotpool_exec(("-v", *OPTIONS), program)
    wanted = str(mib(GIB + planned(path, 8).slot_bytes))
    assert done.stdout == f"{wanted}\n"
    assert f"slotpool: LLAMA_ARG_FIT_TARGET={wanted}" in pool_lines(done.stderr)
    done = slotpool_exec(("-v", *OPTIONS), [*program, "--fit-target", 2000])
    assert done.stdout == "None\n"
    assert "slotpool: the program's own fit target stays: slots get what it leaves free, less the rail" in pool_lines(done.stderr)


@pytest.mark.parametrize(("room_mib", "n_slots"), [(0, 0), (6, 2)])
def test_a_device_without_room_for_what_a_token_uses_says_so(
    small: Small, model_file: Callable[[syn.Spec], Path], room_mib: int, n_slots: int
) -> None:
    """Nobody fitted anything: the layers take what they take, and the rail stays free."""
    slots = planned(model_file(LARGE), 8).slot_bytes
    alone, _, _ = small.text(8 * GIB)
    _, _, with_slots = small.text(8 * GIB, OPTIONS)
    total = GIB + with_slots - slots + room_mib * MIB
    pooled, said, peak = small.text(total, OPTIONS, "--fit", "off")
    assert pooled == alone
    assert peak <= total - GIB
    (line,) = pool_lines(said)
    left = rf"\({room_mib} MiB are for slots, {1024 + room_mib} MiB are free\)"
    assert re.fullmatch(rf"slotpool: pool off: CHAOS0 has room for {n_slots} slots, a token uses {LARGE.n_expert_used} {left}", line), line
