"""Slots by layer and by role: how they are written, who gets a table of its own, and who comes first when not all fit."""

from __future__ import annotations

from typing import Any

import pytest

from slotpool import plan
from slotpool.cli import main
from slotpool.errors import SlotpoolError
from slotpool.native import fit_slots
from slotpool.plan.asked import asked_of
from tests.unit.test_plan_file import expert_tensor, file_model, groups_of, model_of

MODEL = model_of(*(expert_tensor(layer, role) for layer in range(4) for role in ("gate", "up", "down")))
FUSED = model_of(*(expert_tensor(0, role) for role in ("gate_up", "down")))


def made(slots: plan.Slots = 4, **asked: Any) -> list[tuple[int, str, int, str]]:
    """(layer, roles, slots, claim) of each group."""
    found = plan.make(MODEL, slots, **asked)
    assert plan.from_text(plan.to_text(found)).plan.groups
    return [(group.layer, " ".join(one.role for one in group.tensors), group.slots, group.claim) for group in found.groups]


# ---- how they are written ----


def test_layers_are_numbers_and_spans() -> None:
    asked = asked_of(MODEL, "0-1=off, 2=6,3=all", None)
    assert asked.layers == {0: 0, 1: 0, 2: 6, 3: "all"}
    assert asked_of(MODEL, {2: 6}, {"down": "all"}).roles == {"down": "all"}
    assert not asked_of(MODEL, None, None)


BAD_LAYERS = ["", "0", "=4", "0=", "a=4", "0-=4", "1-0=4", "0=4,0=5", "0=x", "0=-1", "0=4;1=4", "9999999=4", "0-65537=4", "0=" + "9" * 30]


@pytest.mark.parametrize("text", BAD_LAYERS)
def test_what_is_no_layer_and_slots_is_quoted(text: str) -> None:
    with pytest.raises(SlotpoolError, match=r"expected LAYERS=SLOTS, as in .* found \".*--slots-per-layer"):
        asked_of(MODEL, text, None)


@pytest.mark.parametrize("text", ["", "down", "=4", "down=", "down=4,down=5", "down=some"])
def test_what_is_no_role_and_slots_is_quoted(text: str) -> None:
    with pytest.raises(SlotpoolError, match=r"expected ROLE=SLOTS, as in .* found \".*--slots-per-role"):
        asked_of(MODEL, None, text)


def test_a_layer_or_role_that_the_model_does_not_have_is_said_with_those_it_has() -> None:
    with pytest.raises(SlotpoolError, match=r"expected a layer with experts \(0 to 3\), found layer 4"):
        asked_of(MODEL, "2-4=6", None)
    with pytest.raises(SlotpoolError, match=r'unknown role of expert tensors "gate" \(valid: gate_up, down\)'):
        asked_of(FUSED, None, "gate=4")


@pytest.mark.parametrize(("layers", "roles", "where"), [("0=1", None, "--slots-per-layer"), (None, {"up": 1}, "--slots-per-role")])
def test_slots_that_one_token_cannot_use_are_refused(layers: Any, roles: Any, where: str) -> None:
    with pytest.raises(SlotpoolError, match=f"expected at least 2 slots, which one token uses, found 1 .at {where}"):
        asked_of(MODEL, layers, roles)


# ---- what follows ----


def test_layers_get_their_own_number_and_the_others_the_common_one() -> None:
    assert made(slots_per_layer="0=off,1=6,2=all", devices=["CUDA0"]) == [
        (0, "gate up down", 0, "explicit"),
        (1, "gate up down", 6, "explicit"),
        (2, "gate up down", 8, "whole"),
        (3, "gate up down", 4, "dynamic"),
    ]


def test_roles_of_a_layer_with_other_numbers_have_tables_of_their_own() -> None:
    assert made(slots_per_role="down=6,gate=5")[:3] == [(0, "gate", 5, "explicit"), (0, "up", 4, "dynamic"), (0, "down", 6, "explicit")]
    assert made(slots_per_role="up=6,gate=6")[:2] == [(0, "gate up", 6, "explicit"), (0, "down", 4, "dynamic")]


def test_a_layers_own_number_comes_before_its_roles() -> None:
    assert made(slots_per_layer={0: 6}, slots_per_role="down=5")[:2] == [(0, "gate up down", 6, "explicit"), (1, "gate up", 4, "dynamic")]


def test_a_layer_that_is_off_without_a_device_is_loaded_by_the_engine() -> None:
    found = plan.make(MODEL, 4, slots_per_layer="1-3=off")
    assert [group.layer for group in found.groups] == [0]
    assert {off.reason for off in found.off} == {"off: 0 slots asked for"}
    assert len(found.off) == 9


@pytest.mark.parametrize(("slots", "reason"), [(0, "off: 0 slots asked for"), ("auto", "off: no device to pool on")])
def test_where_nothing_else_has_slots_the_layers_asked_for_have(slots: plan.Slots, reason: str) -> None:
    found = plan.make(MODEL, slots, slots_per_layer="2=6")
    assert [(group.layer, group.slots) for group in found.groups] == [(2, 6)]
    assert all(off.reason.startswith(reason) for off in found.off)
    assert len(found.off) == 9


def test_nothing_else_has_slots_on_a_device_either() -> None:
    found = made(0, slots_per_layer="2=6", devices=["CUDA0"])
    assert [(layer, slots) for layer, _, slots, _ in found] == [(0, 0), (1, 0), (2, 6), (3, 0)]
    states = plan.tensor_states(plan.make(MODEL, 0, slots_per_layer="2=6", devices=["CUDA0"]))
    assert {one["reason"] for one in states} == {"off: 0 slots asked for", "pooled 6/8"}


def test_experts_on_disk_need_slots_in_every_layer(tmp_path: Any) -> None:
    model = file_model(tmp_path, "a.gguf", "b.gguf")
    found = plan.make(model, 4, ram_budget=10**9, slots_per_layer="1=6")
    assert [group.slots for group in found.groups] == [4, 6]
    with pytest.raises(SlotpoolError, match="expected slots for every expert tensor, since experts stay on disk"):
        plan.make(model, 4, ram_budget=10**9, slots_per_layer="1=off")


def test_few_slots_of_a_layer_are_a_warning() -> None:
    assert "slow end" in plan.make(MODEL, 4, slots_per_layer="1=2").warnings[0]


def test_biases_go_with_their_tensors() -> None:
    names = ("blk.0.ffn_gate_exps.bias", "blk.0.ffn_down_exps.bias")
    (group,) = plan.make(model_of(*(expert_tensor(0, role) for role in ("gate", "up", "down"))), 4).groups
    asked = asked_of(MODEL, None, "down=6")
    parts = plan.asked.applied(plan.Plan(groups=(plan.Group(0, "exps", "G", 4, 8, group.tensors, names),)), asked, MODEL, "").groups
    assert [part.biases for part in parts] == [names[:1], names[1:]]


def test_the_core_serves_what_is_whole_first_and_the_rest_last() -> None:
    found = plan.make(MODEL, 8, slots_per_layer="2=all,3=4", devices=["CUDA0"])
    text = plan.to_text(found)
    assert fit_slots(text, 100, [1] * 4) == [8, 8, 8, 4]
    assert fit_slots(text, 16, [1] * 4) == [2, 2, 8, 4]
    assert fit_slots(text, 10, [1] * 4) == [0, 0, 8, 2]
    assert fit_slots(text, 6, [1] * 4) == [0, 0, 6, 0]


def test_the_core_reads_groups_that_share_a_routing() -> None:
    text = plan.to_text(plan.make(MODEL, 4, slots_per_role="down=6"))
    assert [(one.layer, one.pass_, one.slots) for one in groups_of(text)][:2] == [(0, "exps", 4), (0, "exps", 6)]


@pytest.mark.parametrize("verb", [["plan", "x.gguf"], ["run", "x.gguf", "-p", ""], ["exec", "--", "x"]])
def test_every_verb_with_a_pool_takes_both(verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb[:1], "--slots-per-layer", "0=4", "--slots-per-role", "down=4", *verb[1:]]) == 2
    assert "No such option" not in capsys.readouterr().err
