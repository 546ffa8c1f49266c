"""A plan file under a model: the model's own tensors and files, or an error that says what the plan has and the model has not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slotpool import plan
from slotpool.errors import SlotpoolError
from slotpool.model import Model
from slotpool.plan.bind import check_alone
from tests.unit.test_plan_file import expert_tensor, file_model, model_of

MODEL = model_of(*(expert_tensor(layer, role) for layer in range(2) for role in ("gate", "up", "down")))


def read_back(made: plan.Plan) -> plan.Plan:
    return plan.from_text(plan.to_text(made).encode("utf-8", "surrogateescape")).plan


def test_a_plan_is_what_was_planned_once_it_is_bound() -> None:
    made = plan.make(MODEL, 4, slots_per_layer="1=6", slots_per_role="down=5", devices=["CUDA0"], misses="cpu", device_budget=10**6)
    found = plan.bind(read_back(made), MODEL)
    assert found == replace(made, devices=found.devices)  # the fewest slots are for programs that fit themselves
    assert [(one.name, one.slots, one.budget) for one in found.devices] == [("CUDA0", 4, 10**6)]


def test_a_plan_moves_with_its_model(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    text = plan.to_text(plan.make(file_model(tmp_path / "here", "a.gguf", "b.gguf"), 4, ram_budget=10**9))
    moved = file_model(tmp_path / "there", "a.gguf", "b.gguf")
    found = plan.bind(plan.from_text(text).plan, moved)
    assert [file.path for file in found.files] == [str(tmp_path / "there" / name) for name in ("a.gguf", "b.gguf")]
    assert found.groups == plan.make(moved, 4, ram_budget=10**9).groups


def test_a_tensor_that_the_plan_does_not_name_is_off() -> None:
    made = read_back(plan.make(model_of(*MODEL.experts[:3]), 4))
    found = plan.bind(made, MODEL)
    assert [(off.tensor, off.reason) for off in found.off] == [(one.name, "off: the plan does not name it") for one in MODEL.experts[3:]]


def changed(**changes: int) -> Model:
    """MODEL with another first tensor."""
    return model_of(replace(MODEL.experts[0], **changes), *MODEL.experts[1:])  # type: ignore[arg-type]


OTHERS = [
    (model_of(*MODEL.experts[1:]), r'"?blk.0.ffn_gate_exps.weight"?, which the model does not have'),
    (changed(slab_bytes=128), "8 experts of 96 bytes in layer 0 where the model has 8 experts of 128"),
    (changed(n_expert=16), "8 experts of 96 bytes in layer 0 where the model has 16 experts"),
    (changed(layer=1), "in layer 0 where the model has 8 experts of 96 bytes in layer 1"),
]


@pytest.mark.parametrize(("other", "said"), OTHERS, ids=["no such tensor", "slab", "experts", "layer"])
def test_a_plan_of_another_model_is_refused_with_the_first_difference(other: Model, said: str) -> None:
    with pytest.raises(SlotpoolError, match=f"expected a plan of this model, found .*{said}.*slotpool plan MODEL -o FILE"):
        plan.bind(read_back(plan.make(MODEL, 4)), other)


def test_an_off_tensor_or_a_bias_of_another_model_is_refused() -> None:
    with pytest.raises(SlotpoolError, match="x, which the model does not have"):
        plan.bind(plan.Plan(off=(plan.Off("x", "off: budget"),)), MODEL)
    made = plan.make(MODEL, 4, devices=["CUDA0"])
    with pytest.raises(SlotpoolError, match=r"bias x\.bias, which the model does not have"):
        plan.bind(replace(made, groups=tuple(replace(group, biases=("x.bias",)) for group in made.groups)), MODEL)


def test_slots_that_one_token_cannot_use_are_refused() -> None:
    with pytest.raises(SlotpoolError, match="expected at least 2 slots, which one token uses, found 1"):
        plan.bind(replace(made := plan.make(MODEL, 4), groups=tuple(replace(group, slots=1) for group in made.groups)), MODEL)


def test_nothing_else_may_be_said_beside_a_plan() -> None:
    check_alone({"slots": "auto", "policy": "default", "miss": "auto", "exact": False, "rail": None, "rpc": ["x:1"], "require_pool": True})
    for said in ({"slots": 8}, {"ram_budget": "auto"}, {"device": ["CUDA0"]}, {"exact": True}, {"slots_per_layer": "0=4"}):
        with pytest.raises(SlotpoolError, match=f"found both .--plan, --{next(iter(said)).replace('_', '-')}"):
            check_alone(said)
