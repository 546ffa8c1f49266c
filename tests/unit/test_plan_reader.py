"""Reading a plan file back: what was written is found again, and every damage that the core refuses is refused in the same words."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotpool import plan
from slotpool.cli import main
from slotpool.errors import SlotpoolError
from slotpool.model import ROLES, ExpertTensor
from slotpool.native import fit_slots
from tests.unit.test_plan_file import ACCEPTED, HEAD, MAX_BYTES, REJECTIONS

SIZES = st.none() | st.integers(0, 2**62)
NAMES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x2FF, exclude_categories=("Z", "C")), min_size=1, max_size=20)
PATHS = st.binary(min_size=1, max_size=60).filter(lambda raw: not any(byte < 0x20 or byte == 0x7F for byte in raw))


@pytest.mark.parametrize(("text", "line", "expected", "found"), REJECTIONS)
def test_every_damage_that_the_core_refuses_is_refused_with_its_line(text: str, line: int, expected: str, found: str) -> None:
    with pytest.raises(SlotpoolError) as caught:
        plan.from_text(text.encode())
    said = re.fullmatch(r"expected (.*), found (.*)", caught.value.message)
    assert said
    assert said[1] == expected
    assert found in said[2]
    assert caught.value.where == f"the plan, line {line}"
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ACCEPTED)
def test_every_number_of_its_range_is_read(text: str) -> None:
    found = plan.from_text(text).plan
    assert not found.groups


@pytest.mark.parametrize(
    ("text", "n_lines"),
    [("\n" * MAX_BYTES, MAX_BYTES), (HEAD + "x" * 2**20, 2), (HEAD + "group" + " x" * 10**6, 2), (HEAD + "#\n" * 10**6 + "x\n", 10**6 + 2)],
    ids=["empty lines", "one word", "a million words", "a million lines"],
)
def test_a_plan_made_to_hurt_is_refused_soon(text: str, n_lines: int) -> None:
    began = time.monotonic()
    with pytest.raises(SlotpoolError) as caught:
        plan.from_text(text)
    assert caught.value.where == f"the plan, line {n_lines}"
    assert len(str(caught.value)) < 1000
    assert time.monotonic() - began < 30


def test_more_than_16_mib_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SlotpoolError, match="expected a plan of at most 16 MiB, found more"):
        plan.read_plan(path)


@pytest.mark.parametrize("name", ["none", ""])
def test_a_file_that_cannot_be_read_is_a_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(SlotpoolError, match=r"cannot read the plan file: (No such file|Is a directory)"):
        plan.read_plan(tmp_path / name)


@given(st.binary(max_size=200) | st.builds(lambda raw: HEAD.encode() + raw, st.binary(max_size=200)))
def test_any_bytes_are_a_plan_or_an_error_of_ours(data: bytes) -> None:
    with suppress(SlotpoolError):
        plan.from_text(data)


# ---- what is written is read ----


@st.composite
def plans(draw: Any) -> plan.Plan:
    """Any plan that can be written: with devices or without, with experts on disk or not."""
    devices = tuple(
        plan.PlannedDevice(name, draw(st.integers(0, 65536)), draw(SIZES), draw(SIZES))
        for name in draw(st.lists(NAMES.filter(lambda name: name not in ("CPU", "auto")), max_size=3, unique=True))
    )
    files = tuple(
        plan.PlannedFile(raw.decode("utf-8", "surrogateescape"), 2**62, draw(st.integers(-(2**63), 2**63 - 1)), shard)
        for shard, raw in enumerate(draw(st.lists(PATHS, max_size=2)))
    )
    names = iter(draw(st.lists(NAMES, max_size=8, unique=True)))
    groups = []
    for layer in range(draw(st.integers(0, 3))):
        device = draw(st.sampled_from(["CPU", *(one.name for one in devices), *(["auto"] if devices else [])]))
        n_expert = draw(st.integers(1, 65536))
        slots = draw(st.integers(1 if device == "CPU" else 0, n_expert))
        mine = [name for name in (next(names, "") for _ in range(draw(st.integers(0, 3)))) if name]
        shard = draw(st.integers(0, max(0, len(files) - 1)))
        tensors = tuple(tensor(name, layer, draw(st.sampled_from(ROLES)), n_expert, shard, draw) for name in mine)
        claim = draw(st.sampled_from([plan.WHOLE, plan.EXPLICIT, plan.DYNAMIC]))
        groups.append(plan.Group(layer, draw(st.sampled_from(plan.PASSES)), device, slots, n_expert, tensors, claim=claim))
    words = st.lists(NAMES, min_size=1, max_size=3).map(" ".join)
    return plan.Plan(
        groups=tuple(groups),
        off=tuple(plan.Off(name, draw(words)) for name in names),
        policy=draw(st.sampled_from(["lru", "decay", "follow"])),
        decay=draw(st.floats(0, 1, exclude_min=True)),
        poison=draw(st.booleans()),
        is_bypassed=draw(st.booleans()),
        is_repacked=draw(st.booleans()),
        files=files,
        memory=plan.PlannedMemory(draw(SIZES), draw(SIZES), draw(st.integers(0, 2**62))) if files else None,
        devices=devices,
        misses=draw(st.sampled_from(plan.MISSES)),
        is_settled=draw(st.booleans()),
        prefill=draw(st.sampled_from(plan.PREFILL)),
        contexts=draw(st.sampled_from(["all", "first"])),
    )


def tensor(name: str, layer: int, role: str, n_expert: int, shard: int, draw: Any) -> ExpertTensor:
    slab = draw(st.integers(1, 2**40))
    return ExpertTensor(name, layer, role, "", (0, 0, n_expert, 1), n_expert, slab, shard, draw(st.integers(0, 2**60)), slab * n_expert)


@given(plans(), st.just("") | PATHS.map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_what_is_written_is_read_and_written_again_the_same(made: plan.Plan, report: str) -> None:
    text = plan.to_text(made, report=report)
    found = plan.from_text(text.encode("utf-8", "surrogateescape"))
    assert plan.to_text(found.plan, report=found.report) == text
    assert found.report == report
    assert found.plan == as_written(made)
    if not made.files:  # the core opens them
        assert len(fit_slots(text, 0, [1] * len(made.groups))) == len(made.groups)


def as_written(made: plan.Plan) -> plan.Plan:
    """What of a plan is in its text: without files no offsets, with lru no decay."""
    kept = made if made.policy != "lru" else replace(made, decay=plan.DECAY)
    if made.files:
        return kept
    groups = [replace(group, tensors=tuple(replace(one, shard=0, offset=0) for one in group.tensors)) for group in made.groups]
    return replace(kept, groups=tuple(groups))


def test_a_reason_that_is_no_line_is_not_written() -> None:
    with pytest.raises(SlotpoolError, match="expected a reason of one line"):
        plan.to_text(plan.Plan(off=(plan.Off("x", "two\nlines"),)))


# ---- said to a person ----

SAID = """\
slotpool-plan 1
policy follow 0.97
misses auto background
device CUDA0 slots=6 budget=1048576 rail=auto
group layer=0 pass=exps device=CUDA0 slots=6 n_expert=8
tensor blk.0.ffn_up_exps.weight role=up slab=64
group layer=1 pass=exps device=CUDA0 slots=6 n_expert=8
tensor blk.1.ffn_up_exps.weight role=up slab=64
group layer=2 pass=exps device=CUDA0 slots=0 n_expert=8
tensor blk.2.ffn_up_exps.weight role=up slab=64
off blk.9.ffn_up_exps.weight off: its layer only drafts
"""


def explained(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plan", "--explain", str(path), *arguments]) == 0
    return capsys.readouterr().out


def test_a_plan_file_is_said_in_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan"
    path.write_text(SAID)
    lines = explained(path, capsys).splitlines()
    assert any(line.split() == ["policy", "follow,", "counts", "kept", "0.97", "an", "event"] for line in lines)
    assert [line.split() for line in lines if line.startswith(("CUDA0", "0-1", "2 ", "all"))] == [
        ["CUDA0", "6", "1MiB", "auto"],
        ["0-1", "up", "CUDA0", "6", "8", "768B"],
        ["2", "up", "CUDA0", "0", "8", "0B"],
        ["all", "slots:", "768B"],
    ]
    assert any("off: its layer only drafts" in line for line in lines)


def test_a_plan_file_as_json_has_a_state_for_every_tensor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan"
    path.write_text(SAID)
    found = json.loads(explained(path, capsys, "--json"))
    assert found["devices"] == [{"name": "CUDA0", "slots": 6, "budget": 1 << 20, "rail": None}]
    assert found["slot_bytes"] == 768
    assert [(one["state"], one["reason"]) for one in found["tensors"]] == [
        ("pooled", "pooled 6/8"),
        ("pooled", "pooled 6/8"),
        ("off", "off: budget"),
        ("off", "off: its layer only drafts"),
    ]
    assert set(found["tensors"][0]) == {"name", "device", "slots", "state", "reason"}


def test_what_is_no_plan_is_an_error_of_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan"
    path.write_text(SAID.replace("slots=0", "slots=9"))
    assert main(["plan", "--explain", str(path)]) == 2
    assert f"expected at most n_expert slots, found 9 slots for 8 experts (at {path}, line 9)" in capsys.readouterr().err
    assert main(["plan"]) == 2
    assert "expected a model, or --explain and a plan file, found neither" in capsys.readouterr().err
