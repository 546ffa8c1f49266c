"""A context that drafts with the target's own model (MTP) leaves the pool to the target: its layer is off, nothing else is different."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotpool import model, plan
from testkit import syn
from tests.exec.conftest import SPEC, pool_lines
from tests.exec.test_llama_cpp import serving

MTP = replace(SPEC, arch="glm4moe", n_layer=4, drafts=True)
OFF = "off: its layer only drafts (MTP), and drafts have no pool"


def test_a_layer_that_only_drafts_is_off(model_file: Callable[[syn.Spec], Path]) -> None:
    facts = model.read(model_file(MTP))
    for options in ({}, {"devices": ("CUDA0",)}, {"ram_budget": "auto"}):
        made = plan.make(facts, 8, **options)  # type: ignore[arg-type]
        assert [group.layer for group in made.groups] == [0, 1, 2]
        assert [(off.tensor.split(".")[1], off.reason) for off in made.off] == [("3", OFF)] * 3
    # the same file without the word for it: a layer like the others
    assert len(plan.make(model.read(model_file(replace(MTP, drafts=False))), 8).groups) == 4


@pytest.mark.parametrize("slots", [8, "all"])
@pytest.mark.parametrize("where", ["memory", "disk", "rpc"])
def test_a_server_that_drafts_answers_the_same(
    programs: Path,
    model_file: Callable[[syn.Spec], Path],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    slots: object,
    where: str,
) -> None:
    program: list[Any] = [programs / "llama-server", "-m", model_file(MTP), "--spec-type", "draft-mtp", "--spec-draft-n-max", 3]
    options: tuple[object, ...] = ("--slots", slots)
    if where == "disk":
        options += ("--ram-budget", "auto")
    if where == "rpc":
        program += ["--rpc", request.getfixturevalue("rpc_server")]
        options += ("--device", "RPC0", "--miss", "copy", "--rail", 0)
    with serving(program, None, tmp_path) as server:
        alone = server.complete()
        server.end(signal.SIGINT)
    with serving(program, options, tmp_path) as server:
        answer = server.complete()
        said = server.end(signal.SIGINT)
    assert answer["tokens"] == alone["tokens"]
    # drafts were made, and judged alike
    assert answer["timings"]["draft_n"] == alone["timings"]["draft_n"] > 0
    (line,) = pool_lines(said)
    assert line.startswith("slotpool: pool 9 of 12 expert tensors, ")
    assert line.endswith(f"; 3 of 12 expert tensors {OFF}")
    if slots == "all":
        assert int(re.findall(r"(\d+) lookups", line)[0]) > 0
