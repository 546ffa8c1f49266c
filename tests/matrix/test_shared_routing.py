"""Pools that share a routing: tensors of a layer whose roles have slot tables of their own, in host memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slotpool import model as files
from slotpool import plan as plans
from testkit import syn
from testkit.cases import LAYOUTS, varied_steps
from testkit.oracle import Oracle, Setup, check_pooled, total

ModelFile = Callable[[syn.Spec], Path]
SETUP = Setup(n_ubatch=12)
CELLS = [
    ("qwen3moe", "down=7"),
    ("qwen3moe", "gate=5,up=9,down=all"),
    ("granite_swa-fused", "gate_up=6,down=11"),
    ("gpt-oss-biases", "down=9"),
    ("grovemoe-chunk-experts", "up=6,down_ch=4"),
]


@pytest.mark.parametrize(("name", "roles"), CELLS)
def test_roles_with_tables_of_their_own_are_bit_equal_and_count_as_the_reference(
    name: str, roles: str, model_file: ModelFile, oracle: Oracle
) -> None:
    path = model_file(LAYOUTS[name])
    made = plans.make(files.read(path), 8, poison=True, slots_per_role=roles)
    assert len({(group.layer, group.pass_) for group in made.groups}) < len(made.groups)
    generated, prompted, refused = total(check_pooled(oracle, path, made, varied_steps(), SETUP))
    assert (generated + prompted).hits > 0
    assert refused > 0  # what fits one table may be too much for the other


@pytest.mark.parametrize("layers", ["0=off", "0=all,1=5"])
def test_layers_with_their_own_slots_are_bit_equal(layers: str, model_file: ModelFile, oracle: Oracle) -> None:
    path = model_file(LAYOUTS["qwen3moe"])
    made = plans.make(files.read(path), 8, poison=True, slots_per_layer=layers)
    generated, prompted, _ = total(check_pooled(oracle, path, made, varied_steps(), SETUP))
    assert (generated + prompted).hits > 0
