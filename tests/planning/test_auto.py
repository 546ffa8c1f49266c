"""`load(slots="auto")` on a device, and plan files under `run`: the planner's own decision is what is loaded, go or no-go."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import llama_cpp
import pytest

import slotpool
from slotpool import model, plan
from slotpool.cli import main
from slotpool.errors import SlotpoolError
from testkit import syn
from testkit.chaos.process import process
from tests.planning import on_chaos

ModelFile = Callable[[syn.Spec], Path]
SPEC = syn.Spec(n_layer=6, n_expert=32, n_expert_used=4, n_ff_exp=512)


def plain_tokens(path: Path) -> list[int]:
    """What plain llama.cpp writes, without repacking."""
    with slotpool.engine.model_defaults(use_extra_bufts=False):
        llm = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, verbose=False)
    llm.eval([3, 1, 4])
    tokens = []
    for _ in range(8):
        tokens.append(int(llm.sample(temp=0.0)))
        llm.eval(tokens[-1:])
    llm.close()
    return tokens


@pytest.mark.parametrize("gain", [0.0, 99.0], ids=["go", "no-go"])
def test_auto_is_the_planners_decision_and_the_tokens_are_plain(gain: float, model_file: ModelFile, tmp_path: Path) -> None:
    path = model_file(SPEC)
    with process({}) as chaos:
        found = chaos.submit(on_chaos.auto_loaded, path, tmp_path, gain).result()
    assert found["tokens"] == plain_tokens(path)
    assert found["hazard"] == ""
    stats = found["stats"]
    if gain:
        assert (stats["pooled_tensors"], stats["lookups"]) == (0, 0)
        assert all(one["reason"].startswith("off: slots would not pay") for one in stats["tensors"])
        assert found["experts"] // 6 < found["peak"]  # a layer's experts at least are on the device
    else:
        assert stats["pooled_tensors"] == 18
        assert stats["lookups"] > 0
    assert found["peak"] < found["experts"]


def test_a_plan_file_is_what_run_runs(model_file: ModelFile, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, file = model_file(SPEC), tmp_path / "plan"
    file.write_text(plan.to_text(plan.make(model.read(path), 6, slots_per_layer="1=off,2=9")))
    asked = ["run", str(path), "-p", "hello", "-n", "4", "--threads", "1", "--json", "--plan", str(file)]
    assert main(asked) == 0
    stats = json.loads(capsys.readouterr().out)["stats"]
    assert [layer["slots"] for layer in stats["layers"]] == [6, 9, 6, 6, 6]
    assert stats["lookups"] > 0
    assert {one["reason"] for one in stats["tensors"] if one["state"] == "off"} == {"off: 0 slots asked for"}
    assert main([*asked, "--slots", "8"]) == 2
    assert "found both (--plan, --slots)" in capsys.readouterr().err


def test_a_plan_for_a_device_that_is_not_there_or_another_model_is_refused(model_file: ModelFile, tmp_path: Path) -> None:
    path, file = model_file(SPEC), tmp_path / "plan"
    file.write_text(plan.to_text(plan.make(model.read(path), 6, devices=["CUDA7"])))
    with pytest.raises(SlotpoolError, match='unknown device "CUDA7"'):
        slotpool.load(path, plan_file=file)
    other = model_file(syn.Spec(n_layer=2, n_expert=8))
    with pytest.raises(SlotpoolError, match="expected a plan of this model"):
        slotpool.load(other, plan_file=file)
