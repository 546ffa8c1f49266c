"""The plan file: what `slotpool.plan` writes the core reads, and what the core does not know it refuses, with line and reason."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotpool import plan
from slotpool.errors import SlotpoolError
from slotpool.model import ROLES, ExpertTensor, GgufFile, Model
from slotpool.native import GroupCounts, Session, fit_slots

ROOT = Path(__file__).parents[2]
HEAD = "slotpool-plan 1\n"
DEVICE = "device CUDA0 slots=4 budget=auto rail=auto\n"
GROUP = "group layer=0 pass=exps device=CPU slots=4 n_expert=8\n"
TENSOR = "tensor blk.0.ffn_up_exps.weight role=up slab=64\n"
MEMORY = "memory budget=auto rail=auto reserve=0\n"
FILE = "file 0 size=512 mtime=1 path=/models/a.gguf\n"
PLACED = TENSOR.replace("\n", " file=0 offset=0\n")
MANY = GROUP.replace("n_expert=8", "n_expert=65536")
SOON = 10.0
"""Seconds. Any refusal takes a fraction of one; this much is a hang, on a loaded machine too."""
MAX_BYTES = 16 << 20


@contextmanager
def opened(text: str) -> Iterator[Session]:
    """A session under the plan, ended as a load ends it."""
    session = Session(text)
    try:
        yield session
    finally:
        session.loaded()
        session.close()


def groups_of(text: str) -> list[GroupCounts]:
    with opened(text) as session:
        return session.counts()


def test_what_will_be_taken_before_the_slots_is_counted_once() -> None:
    """The planner's number and what the loading process says mean the same compute buffers."""
    with opened(HEAD + MEMORY.replace("reserve=0", "reserve=100")) as session:
        assert session.reserve() == 100
        session.add_reserve(60)
        assert session.reserve() == 100
        session.add_reserve(60)  # of another context
        assert session.reserve() == 120


def refusal(text: str) -> str:
    """Why the core does not take the plan."""
    began = time.monotonic()
    with pytest.raises(SlotpoolError) as caught, opened(text):
        pass
    assert time.monotonic() - began < SOON
    return caught.value.message


# ---- what is written is read ----


def expert_tensor(layer: int, role: str, n_expert: int = 8, slab_bytes: int = 96) -> ExpertTensor:
    name = f"blk.{layer}.ffn_{role.replace('_ch', '')}_{'chexps' if role.endswith('_ch') else 'exps'}.weight"
    return ExpertTensor(name, layer, role, "F32", (4, 6, n_expert, 1), n_expert, slab_bytes, 0, 0, n_expert * slab_bytes)


def model_of(*experts: ExpertTensor, n_expert_used: int = 2) -> Model:
    n_expert = max((tensor.n_expert for tensor in experts), default=0)
    n_bytes = sum(tensor.n_bytes for tensor in experts)
    return Model((), 1, "qwen3moe", 2, n_expert, n_expert_used, experts, n_bytes, 0, ())


TWO_LAYERS = model_of(*(expert_tensor(layer, role, slab_bytes=96 + layer) for layer in (0, 1) for role in ("gate", "up", "down")))


@pytest.mark.parametrize("policy", plan.POLICIES)
@pytest.mark.parametrize("poison", [False, True])
def test_core_reads_back_every_group_that_was_planned(policy: str, poison: bool) -> None:
    made = plan.make(TWO_LAYERS, 5, policy=policy, poison=poison)
    found = groups_of(plan.to_text(made))
    assert [(group.layer, group.pass_, group.device, group.slots, group.n_expert, group.slab_bytes) for group in found] == [
        (0, "exps", "CPU", 5, 8, 3 * 96),
        (1, "exps", "CPU", 5, 8, 3 * 97),
    ]


def test_plan_file_is_this_text() -> None:
    model = model_of(expert_tensor(0, "up"), expert_tensor(0, "down"))
    made = replace(plan.make(model, 4), off=(plan.Off("blk.9.ffn_up_exps.weight", "off: budget"),))
    assert plan.to_text(made) == (
        "slotpool-plan 1\n"
        "policy follow 0.97\n"
        "poison off\n"
        "group layer=0 pass=exps device=CPU slots=4 n_expert=8\n"
        "tensor blk.0.ffn_up_exps.weight role=up slab=96\n"
        "tensor blk.0.ffn_down_exps.weight role=down slab=96\n"
        "off blk.9.ffn_up_exps.weight off: budget\n"
    )
    assert len(groups_of(plan.to_text(made))) == 1


@pytest.mark.parametrize("decay", [1.0, 0.97, 0.5, 1 / 3, 1e-300, 5e-324])
def test_every_decay_a_policy_takes_is_read_back(decay: float) -> None:
    assert groups_of(plan.to_text(plan.Plan(decay=decay))) == []


@pytest.mark.parametrize("slots", [0, "auto"])
def test_plan_without_slots_is_read_and_pools_nothing(slots: plan.Slots) -> None:
    made = plan.make(TWO_LAYERS, slots)
    assert groups_of(plan.to_text(made)) == []
    assert len(made.off) == 6
    assert made.reason.startswith("off: ")


def test_plan_of_a_dense_model_says_so() -> None:
    made = plan.make(model_of(), 4)
    assert groups_of(plan.to_text(made)) == []
    assert "dense" in made.reason


@pytest.mark.parametrize("slots", [8, 9, 1 << 40, "all"])
def test_slots_are_at_most_the_experts(slots: plan.Slots) -> None:
    assert [group.slots for group in groups_of(plan.to_text(plan.make(TWO_LAYERS, slots)))] == [8, 8]


def test_chunk_experts_are_a_group_of_their_own() -> None:
    model = model_of(expert_tensor(0, "up"), expert_tensor(0, "up_ch", n_expert=4))
    found = groups_of(plan.to_text(plan.make(model, 6)))
    assert [(group.pass_, group.slots, group.n_expert) for group in found] == [("exps", 6, 8), ("chexps", 4, 4)]


@pytest.mark.parametrize("role", ROLES)
def test_every_role_of_an_expert_tensor_is_read_back(role: str) -> None:
    assert len(groups_of(plan.to_text(plan.make(model_of(expert_tensor(0, role)), 4)))) == 1


@pytest.mark.parametrize("slots", [-1, 1, True, None, 4.0, "4", "some", ""])
def test_slots_that_one_token_cannot_use_are_refused(slots: plan.Slots) -> None:
    with pytest.raises(SlotpoolError, match=r"expected (at least 2 slots|slots as a number).*--slots"):
        plan.make(TWO_LAYERS, slots)


def test_few_slots_are_a_warning() -> None:
    assert plan.make(TWO_LAYERS, 4).warnings == ()
    (warning,) = plan.make(TWO_LAYERS, 3).warnings
    assert "slow end" in warning


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "a\tb"])
def test_tensor_name_that_the_format_cannot_hold_is_refused(name: str) -> None:
    made = plan.make(model_of(replace(expert_tensor(0, "up"), name=name)), 4)
    with pytest.raises(SlotpoolError, match="expected a tensor name without spaces"):
        plan.to_text(made)


@pytest.mark.parametrize("text", [HEAD, "# first\n\n" + HEAD + "   \n# last", HEAD.replace("\n", "\r\n") + GROUP.replace("\n", "\r\n")])
def test_comments_blank_lines_and_line_ends_of_other_systems_are_read(text: str) -> None:
    groups_of(text)


# ---- experts on disk ----


def file_model(folder: Path, *names: str | bytes, n_expert: int = 8, slab_bytes: int = 96) -> Model:
    """A model of one layer a file, whose files are there with the right size and hold nothing."""
    files, experts = [], []
    for shard, name in enumerate(names):
        path = folder / os.fsdecode(name)
        experts.append(replace(expert_tensor(shard, "up", n_expert, slab_bytes), shard=shard, offset=32 * (shard + 1)))
        size = experts[-1].offset + experts[-1].n_bytes
        path.write_bytes(b"\0" * size)
        files.append(GgufFile(path, size, 3, 32, 32, {}, {}, (), (), True, shard))
    return replace(model_of(*experts), files=tuple(files), n_shards=len(files))


def test_plan_with_files_is_this_text(tmp_path: Path) -> None:
    made = plan.make(file_model(tmp_path, "a b.gguf", "c.gguf"), 4, ram_budget=10**9, rail=5)
    times = [os.stat(tmp_path / name).st_mtime_ns for name in ("a b.gguf", "c.gguf")]
    assert plan.to_text(made) == (
        "slotpool-plan 1\n"
        "policy follow 0.97\n"
        "poison off\n"
        "memory budget=1000000000 rail=5 reserve=0\n"
        f"file 0 size=800 mtime={times[0]} path={tmp_path}/a b.gguf\n"
        f"file 1 size=832 mtime={times[1]} path={tmp_path}/c.gguf\n"
        "group layer=0 pass=exps device=CPU slots=4 n_expert=8\n"
        "tensor blk.0.ffn_up_exps.weight role=up slab=96 file=0 offset=32\n"
        "group layer=1 pass=exps device=CPU slots=4 n_expert=8\n"
        "tensor blk.1.ffn_up_exps.weight role=up slab=96 file=1 offset=64\n"
    )


NAMES = [
    "plain.gguf",
    "two words.gguf",
    " first and last ",
    "path= size=3.gguf",
    "#no comment",
    "\u00fc\u2028.gguf",
    b"\xff\xfe \x80.gguf",
    "'\"\\",
]


@pytest.mark.parametrize("name", NAMES)
def test_core_opens_the_file_of_every_name(tmp_path: Path, name: str | bytes) -> None:
    # the core opens planned files when it takes the plan, so a path that came out changed is refused
    made = plan.make(file_model(tmp_path, name), "auto", ram_budget="auto")
    assert [group.slots for group in groups_of(plan.to_text(made))] == [8]


@pytest.mark.parametrize("name", ["a\nb", "a\tb", "a\x7fb", "\x1b[2J"])
def test_path_with_a_control_character_is_refused(tmp_path: Path, name: str) -> None:
    made = plan.make(file_model(tmp_path, name), 4, ram_budget="auto")
    with pytest.raises(SlotpoolError, match=r"expected a path without control characters.*Rename the file") as caught:
        plan.to_text(made)
    assert str(caught.value).isprintable()


def test_paths_of_a_plan_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = file_model(tmp_path, "a.gguf")
    monkeypatch.chdir(tmp_path)
    relative = replace(model, files=(replace(model.files[0], path=Path("a.gguf")),))
    assert [file.path for file in plan.make(relative, 4, ram_budget="auto").files] == [str(tmp_path / "a.gguf")]


def test_tensor_finds_its_file_where_a_shard_before_it_is_not_listed(tmp_path: Path) -> None:
    model = file_model(tmp_path, "a.gguf", "b.gguf")
    without_first = replace(model, files=model.files[1:], experts=model.experts[1:])
    text = plan.to_text(plan.make(without_first, 4, ram_budget="auto"))
    assert "file=0 offset=64" in text
    assert "file=1" not in text


def test_device_and_ram_budget_together_are_two_tiers(tmp_path: Path) -> None:
    made = plan.make(file_model(tmp_path, "a.gguf"), 4, devices=["CUDA0"], ram_budget=10**6, rail=5, misses="cpu")
    lines = plan.to_text(made).splitlines()
    assert "device CUDA0 slots=4 budget=auto rail=5" in lines
    assert "memory budget=1000000 rail=auto reserve=0" in lines  # the rail is the device's
    assert "group layer=0 pass=exps device=CUDA0 slots=4 n_expert=8" in lines
    assert lines[-1].endswith("slab=96 file=0 offset=32")
    assert [group.device for group in groups_of(plan.to_text(made))] == ["CUDA0"]


def test_ram_behind_a_device_has_room_for_two_experts(tmp_path: Path) -> None:
    model = file_model(tmp_path, "a.gguf")
    smallest = 2 * 8192  # a slab of 96 bytes with the blocks around it, in whole pages
    assert plan.make(model, 4, devices=["CUDA0"], ram_budget=smallest).memory == plan.PlannedMemory(smallest)
    with pytest.raises(SlotpoolError, match=r"an expert that is computed and one that is read need 16KiB.*--ram-budget 16KiB"):
        plan.make(model, 4, devices=["CUDA0"], ram_budget=smallest - 1)
    assert plan.make(model, 0, devices=["CUDA0"], ram_budget=smallest).groups == ()


def test_file_of_another_size_than_was_read_is_refused(tmp_path: Path) -> None:
    model = file_model(tmp_path, "a.gguf")
    with (tmp_path / "a.gguf").open("ab") as file:
        file.write(b"x")
    with pytest.raises(
        SlotpoolError, match=r"expected the file of 800 bytes that was read, found 801 bytes: it was changed while.*a\.gguf"
    ):
        plan.make(model, 4, ram_budget="auto")


def test_file_that_was_written_since_it_was_read_is_refused(tmp_path: Path) -> None:
    model = file_model(tmp_path, "a.gguf")
    found = os.stat(tmp_path / "a.gguf")
    as_read = replace(model, files=(replace(model.files[0], mtime_ns=found.st_mtime_ns),))
    assert plan.make(as_read, 4, ram_budget="auto").files[0].mtime_ns == found.st_mtime_ns
    os.utime(tmp_path / "a.gguf", ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    with pytest.raises(SlotpoolError, match="it was changed while it was planned for"):
        plan.make(as_read, 4, ram_budget="auto")


def test_file_that_went_away_is_refused(tmp_path: Path) -> None:
    model = file_model(tmp_path, "a.gguf")
    (tmp_path / "a.gguf").unlink()
    with pytest.raises(SlotpoolError, match=r"cannot look at the model's file: No such file.*a\.gguf"):
        plan.make(model, 4, ram_budget="auto")


ACCEPTED = [
    HEAD + DEVICE + DEVICE.replace("CUDA0", "CUDA1").replace("slots=4", "slots=0"),
    HEAD + DEVICE.replace("budget=auto", f"budget={2**62}").replace("rail=auto", "rail=0"),
    *(HEAD + f"contexts {which}\n" for which in ("all", "first")),
    *(HEAD + f"prefill {way}\n" for way in ("bypass", "stream", "auto")),
    *(HEAD + f"repack {way}\n" for way in ("off", "on")),
    *(HEAD + f"misses {mode}{way}\n" for mode in ("copy", "cpu", "auto", "frozen") for way in ("", " background", " settled")),
    HEAD + MEMORY,
    HEAD + MEMORY.replace("auto", str(2**62)).replace("reserve=0", f"reserve={2**62}"),
    HEAD + FILE,
    HEAD + FILE.replace("path=", "path=   "),
    HEAD + FILE.replace("mtime=1", f"mtime={-(2**63)}"),
    HEAD + FILE.replace("mtime=1", f"mtime={2**63 - 1}"),
    HEAD + FILE.replace("size=512", f"size={2**62}") + FILE.replace("file 0", "file 1"),
    HEAD + FILE.replace("file 0 size=512", "  file\t0   size=512"),
    HEAD + FILE.replace("/models/a.gguf", "/" + "x" * 4095),
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_every_number_of_its_range_is_read(text: str) -> None:
    assert fit_slots(text, 0, []) == []


@pytest.mark.parametrize("offset", [0, 2**62 - 512])
def test_experts_may_end_where_their_file_ends(offset: int) -> None:
    text = HEAD + FILE.replace("size=512", f"size={offset + 512}") + GROUP + PLACED.replace("offset=0", f"offset={offset}")
    assert fit_slots(text, 4, [1]) == [4]


# ---- what is not known is refused: one row per rejection of core/plan/plan.cpp ----

BAD_DECAYS = ("nan", "-nan", "inf", "0", "-0.0", "-1", "1.0000001", "1e400", "0,9", "0.9x", "x")
BAD_BYTES = ("-1", "x", "1.5", "1KiB", str(2**62 + 1), str(2**63), str(2**64), "9" * 40)
BYTES = f"from 0 to {2**62}"
TIMES = f"from {-(2**63)} to {2**63 - 1}"
A_GROUP = "group layer= pass= device= slots= n_expert= [claim=]"
REJECTIONS = [
    # plan, line, expected, found
    ("", 0, '"slotpool-plan 1"', "no such line"),
    ("# only this\n\n", 2, '"slotpool-plan 1"', "no such line"),
    ("hello 1\n", 1, '"slotpool-plan 1"', "hello"),
    (GROUP, 1, '"slotpool-plan 1"', "group"),
    ("slotpool-plan\n", 1, '"slotpool-plan 1"', "slotpool-plan"),
    ("slotpool-plan 1 more\n", 1, '"slotpool-plan 1"', "slotpool-plan"),
    ("\ufeff" + HEAD, 1, '"slotpool-plan 1"', "???"),
    ("slotpool-plan 2\n", 1, "plan version 1", '"2"'),
    ("slotpool-plan 1.0\n", 1, "plan version 1", '"1.0"'),
    (
        HEAD + HEAD,
        2,
        "a statement (policy, poison, bypass, repack, misses, prefill, contexts, device, memory, file, group, tensor, bias, off, warm, "
        "pin, heat, report)",
        "slotpool-plan",
    ),
    (
        HEAD + "\n# x\nGroup\n",
        4,
        "a statement (policy, poison, bypass, repack, misses, prefill, contexts, device, memory, file, group, tensor, bias, off, warm, "
        "pin, heat, report)",
        '"Group"',
    ),
    (HEAD + "policy\n", 2, "policy lru, policy decay [DECAY] or policy follow [DECAY]", "no name"),
    (HEAD + "policy lruk\n", 2, "policy lru, policy decay [DECAY] or policy follow [DECAY]", "lruk"),
    (HEAD + "policy default\n", 2, "policy lru, policy decay [DECAY] or policy follow [DECAY]", "default"),
    (HEAD + "policy decay 0.9 0.9\n", 2, "policy lru, policy decay [DECAY] or policy follow [DECAY]", "decay"),
    *((HEAD + f"policy decay {word}\n", 2, "a decay above 0 and at most 1", f'"{word}"') for word in BAD_DECAYS),
    (HEAD + "policy lru 2\n", 2, "a decay above 0 and at most 1", '"2"'),
    (HEAD + "warm 1:2\n", 2, "a group before what it begins with", "warm"),
    (HEAD + GROUP + "warm\n", 3, "one line of experts for a group", "none"),
    (HEAD + GROUP + "warm 1:2\nwarm 2:1\n", 4, "one line of experts for a group", "another"),
    (HEAD + GROUP + "warm 1:9 2:8 3:7 4:6 5:5 6:4 7:3 0:2 8:1\n", 3, "at most n_expert experts", "9"),
    (HEAD + GROUP + "warm 1\n", 3, "EXPERT:MILLIONTHS", '"1"'),
    (HEAD + GROUP + "warm 8:1\n", 3, "an expert from 0 to 7", '"8"'),
    (HEAD + GROUP + "warm -1:1\n", 3, "an expert from 0 to 7", '"-1"'),
    (HEAD + GROUP + "warm :1\n", 3, "an expert from 0 to 7", '""'),
    (HEAD + GROUP + "warm 1:\n", 3, "millionths, the hottest first, from 0 to 1000000", '""'),
    (HEAD + GROUP + "warm 1:1000001\n", 3, "millionths, the hottest first, from 0 to 1000000", "1000001"),
    (HEAD + GROUP + "warm 1:5 2:6\n", 3, "millionths, the hottest first, from 0 to 5", "6"),
    (HEAD + GROUP + "warm 1:5 1:4\n", 3, "each expert once", "1 again"),
    (HEAD + "pin share=1 slots=1\n", 2, "pin share= slots= spare=", "2 fields"),
    (HEAD + "pin share=1 slots=1 spare=1\npin share=1 slots=1 spare=1\n", 3, "one line of pins", "another"),
    (HEAD + "pin share=1000001 slots=1 spare=1\n", 2, "share from 0 to 1000000", "1000001"),
    (HEAD + "pin share=1 slots=65537 spare=1\n", 2, "slots from 0 to 65536", "65537"),
    (HEAD + "pin share=1 slots=1 spare=0\n", 2, "spare from 1 to 65536", '"0"'),
    (HEAD + "heat\n", 2, "heat on or heat off", "heat"),
    (HEAD + "heat warm\n", 2, "heat on or heat off", "warm"),
    (HEAD + "poison\n", 2, "poison on or poison off", "poison"),
    (HEAD + "poison maybe\n", 2, "poison on or poison off", "maybe"),
    (HEAD + "poison on off\n", 2, "poison on or poison off", "on off"),
    (HEAD + "bypass\n", 2, "bypass on or bypass off", "bypass"),
    (HEAD + "bypass maybe\n", 2, "bypass on or bypass off", "maybe"),
    (HEAD + "group\n", 2, A_GROUP, "0 fields"),
    (HEAD + GROUP.replace(" pass=exps", ""), 2, A_GROUP, "4 fields"),
    (HEAD + GROUP.replace("CPU", "CPU 0 0"), 2, A_GROUP, "7 fields"),
    *(
        (HEAD + GROUP.replace("\n", f" {word}\n"), 2, "claim=whole or claim=explicit", f'"{word}"')
        for word in ("claim=", "claim=dynamic", "x")
    ),
    (HEAD + GROUP.replace("layer=0 pass=exps", "pass=exps layer=0"), 2, "layer=", '"pass=exps"'),
    (HEAD + GROUP.replace("layer=", "LAYER="), 2, "layer=", '"LAYER=0"'),
    (HEAD + GROUP.replace("layer=0", "layer="), 2, "layer=", '"layer="'),
    (HEAD + GROUP.replace("pass=exps", "pass="), 2, "pass=", '"pass="'),
    (HEAD + GROUP + "bias\n", 3, "bias NAME", "bias"),
    (HEAD + "bias blk.0.ffn_up_exps.bias\n", 2, "a group before its biases", "a bias"),
    (HEAD + GROUP + 2 * "bias blk.0.ffn_up_exps.bias\n", 4, "each tensor once", '"blk.0.ffn_up_exps.bias" again'),
    (HEAD + "contexts\n", 2, "contexts all or contexts first", "contexts"),
    (HEAD + "contexts second\n", 2, "contexts all or contexts first", "contexts second"),
    (HEAD + "contexts first all\n", 2, "contexts all or contexts first", "contexts first all"),
    (HEAD + "repack\n", 2, "repack on or repack off", "repack"),
    (HEAD + "repack never\n", 2, "repack on or repack off", "repack never"),
    (HEAD + "repack on now\n", 2, "repack on or repack off", "repack on now"),
    (HEAD + "prefill\n", 2, "prefill bypass|stream|auto", "prefill"),
    (HEAD + "prefill often\n", 2, "prefill bypass|stream|auto", "prefill often"),
    (HEAD + "prefill stream now\n", 2, "prefill bypass|stream|auto", "prefill stream now"),
    (HEAD + "misses\n", 2, "misses copy|cpu|auto|frozen [background|settled]", "misses"),
    (HEAD + "misses copy cpu\n", 2, "misses copy|cpu|auto|frozen [background|settled]", "misses copy cpu"),
    (HEAD + "misses never\n", 2, "misses copy|cpu|auto|frozen [background|settled]", "misses never"),
    (HEAD + "misses cpu settled now\n", 2, "misses copy|cpu|auto|frozen [background|settled]", "misses cpu settled now"),
    (HEAD + "device CUDA0\n", 2, "device NAME slots= budget= rail=", "1 fields"),
    (HEAD + GROUP + DEVICE, 3, "devices before groups", "a device"),
    (HEAD + "".join(DEVICE.replace("0", str(i), 1) for i in range(7)), 8, "at most 6 devices", "another"),
    (HEAD + DEVICE.replace("CUDA0", "CPU"), 2, "the name of a device other than the CPU", '"CPU"'),
    (HEAD + DEVICE.replace("CUDA0", "auto"), 2, "the name of a device other than the CPU", '"auto"'),
    (HEAD + DEVICE + DEVICE, 3, "each device once", '"CUDA0" again'),
    (HEAD + DEVICE.replace("slots=4", "slots=-1"), 2, "slots from 0 to 65536", '"-1"'),
    (HEAD + DEVICE.replace("budget=auto", "budget=x"), 2, f"budget {BYTES}", '"x"'),
    (HEAD + DEVICE.replace("rail=auto", "rail=x"), 2, f"rail {BYTES}", '"x"'),
    (HEAD + GROUP.replace("CPU", "CUDA0"), 2, "CPU, auto or a device that has a line of its own", 'device "CUDA0"'),
    (HEAD + GROUP.replace("CPU", "auto"), 2, "CPU, auto or a device that has a line of its own", 'device "auto"'),
    (HEAD + GROUP.replace("device=CPU", "device="), 2, "device=", '"device="'),
    (HEAD + GROUP.replace("device=CPU", "on=CPU"), 2, "device=", '"on=CPU"'),
    (HEAD + GROUP.replace("layer=0", "layer=-1"), 2, "layer from 0 to 65536", '"-1"'),
    (HEAD + GROUP.replace("layer=0", "layer=65537"), 2, "layer from 0 to 65536", '"65537"'),
    (HEAD + GROUP.replace("slots=4", "slots=0"), 2, "slots from 1 to 65536", '"0"'),
    (HEAD + GROUP.replace("slots=4", "slots=-4"), 2, "slots from 1 to 65536", '"-4"'),
    (HEAD + GROUP.replace("slots=4", "slots=4.0"), 2, "slots from 1 to 65536", '"4.0"'),
    (HEAD + GROUP.replace("slots=4", "slots=0x4"), 2, "slots from 1 to 65536", '"0x4"'),
    (HEAD + GROUP.replace("slots=4", "slots=four"), 2, "slots from 1 to 65536", '"four"'),
    (HEAD + GROUP.replace("slots=4", "slots=4294967297"), 2, "slots from 1 to 65536", '"4294967297"'),
    (HEAD + GROUP.replace("slots=4", "slots=18446744073709551617"), 2, "slots from 1 to 65536", '"18446744073709551617"'),
    (HEAD + GROUP.replace("slots=4", "slots=-18446744073709551615"), 2, "slots from 1 to 65536", '"-18446744073709551615"'),
    (HEAD + GROUP.replace("n_expert=8", "n_expert=65537"), 2, "n_expert from 1 to 65536", '"65537"'),
    (HEAD + GROUP.replace("n_expert=8", "n_expert=0"), 2, "n_expert from 1 to 65536", '"0"'),
    (HEAD + GROUP.replace("slots=4", "slots=9"), 2, "at most n_expert slots", "9 slots for 8 experts"),
    (HEAD + TENSOR, 2, "a group before its tensors", "a tensor"),
    (HEAD + GROUP + "tensor x role=up\n", 3, "tensor NAME role= slab= [file= offset=]", "2 fields"),
    (HEAD + GROUP + "tensor my name role=up slab=64\n", 3, "tensor NAME role= slab= [file= offset=]", "4 fields"),
    (HEAD + GROUP + "tensor x slab=64 role=up\n", 3, "role=", '"slab=64"'),
    (HEAD + GROUP + "tensor x role= slab=64\n", 3, "role=", '"role="'),
    (HEAD + GROUP + "tensor x role=up slab=\n", 3, "slab=", '"slab="'),
    (HEAD + GROUP + "tensor x role=up slab=0\n", 3, "slab from 1 to 1099511627776", '"0"'),
    (HEAD + GROUP + "tensor x role=up slab=1099511627777\n", 3, "slab from 1 to 1099511627776", '"1099511627777"'),
    (HEAD + GROUP + TENSOR + TENSOR, 4, "each tensor once", '"blk.0.ffn_up_exps.weight" again'),
    (HEAD + GROUP + TENSOR + GROUP + TENSOR, 5, "each tensor once", '"blk.0.ffn_up_exps.weight" again'),
    (HEAD + GROUP + "tensor x role=up slab=64 file=0\n", 3, "tensor NAME role= slab= [file= offset=]", "4 fields"),
    (HEAD + GROUP + "tensor x role=up slab=64 file=0 offset=0 x\n", 3, "tensor NAME role= slab= [file= offset=]", "6 fields"),
    (HEAD + "report\n", 2, "path=", '""'),
    (HEAD + "report /tmp/r\n", 2, "path=", '"/tmp/r"'),
    (HEAD + "report path=\n", 2, "a path of 1 to 4096 bytes", "0 bytes"),
    (HEAD + "report path=/a b\nreport path=/c\n", 3, "one line for the report", "another"),
    (HEAD + "memory\n", 2, "memory budget= rail= reserve=", "0 fields"),
    (HEAD + "memory budget=auto rail=auto\n", 2, "memory budget= rail= reserve=", "2 fields"),
    (HEAD + MEMORY.strip() + " x\n", 2, "memory budget= rail= reserve=", "4 fields"),
    (HEAD + MEMORY + MEMORY, 3, "one line for memory", "another"),
    (HEAD + MEMORY.replace("budget=", "Budget="), 2, "budget=", '"Budget=auto"'),
    (HEAD + MEMORY.replace("rail=", "rails="), 2, "rail=", '"rails=auto"'),
    (HEAD + MEMORY.replace("reserve=0", "reserve="), 2, "reserve=", '"reserve="'),
    *((HEAD + MEMORY.replace("budget=auto", f"budget={n}"), 2, f"budget {BYTES}", f'"{n}"') for n in BAD_BYTES),
    *((HEAD + MEMORY.replace("rail=auto", f"rail={n}"), 2, f"rail {BYTES}", f'"{n}"') for n in BAD_BYTES),
    *((HEAD + MEMORY.replace("reserve=0", f"reserve={n}"), 2, f"reserve {BYTES}", f'"{n}"') for n in (*BAD_BYTES, "auto")),
    (HEAD + "file 0 size=1 mtime=1\n", 2, "file INDEX size= mtime= path=", "3 fields"),
    (HEAD + "file\n", 2, "file INDEX size= mtime= path=", "0 fields"),
    (HEAD + FILE.replace("path=", "Path="), 2, "path=", '"Path=/models/a.gguf"'),
    (HEAD + FILE.replace("path=", "where /x path="), 2, "path=", '"where /x path=/models/a.gguf"'),
    (HEAD + FILE.replace("size=512 mtime=1", "mtime=1 size=512"), 2, "size=", '"mtime=1"'),
    (HEAD + FILE.replace("file 0", "file 1"), 2, "file 0", 'file "1"'),
    (HEAD + FILE.replace("file 0", "file -1"), 2, "file 0", 'file "-1"'),
    (HEAD + FILE.replace("file 0", "file 00"), 2, "file 0", 'file "00"'),
    (HEAD + FILE + FILE, 3, "file 1", 'file "0"'),
    (HEAD + FILE + FILE.replace("file 0", "file 2"), 3, "file 1", 'file "2"'),
    *((HEAD + FILE.replace("size=512", f"size={n}"), 2, f"size {BYTES}", f'"{n}"') for n in BAD_BYTES),
    *((HEAD + FILE.replace("mtime=1", f"mtime={n}"), 2, f"mtime {TIMES}", f'"{n}"') for n in ("x", "1.5", 2**63, -(2**63) - 1, 10**30)),
    (HEAD + FILE.replace("/models/a.gguf", ""), 2, "a path of 1 to 4096 bytes", "0 bytes"),
    (HEAD + FILE.replace("/models/a.gguf", "/" + "x" * 4096), 2, "a path of 1 to 4096 bytes", "4097 bytes"),
    (HEAD + FILE.replace("/models/a.gguf", "/" + "x" * 10**6), 2, "a path of 1 to 4096 bytes", "1000001 bytes"),
    *((HEAD + FILE.replace("a.gguf", f"a{c}b"), 2, "a path without control characters", '"/models/a?b"') for c in "\0\t\v\x1b\x7f"),
    (HEAD + FILE.replace("\n", "\r\n"), 2, "a path without control characters", '"/models/a.gguf?"'),
    (HEAD + GROUP + TENSOR + FILE, 4, "files before tensors", "a file"),
    (HEAD + GROUP + PLACED, 3, "files before a tensor with a file", "none"),
    (HEAD + FILE + GROUP + TENSOR, 4, "a file for every tensor", 'none for "blk.0.ffn_up_exps.weight"'),
    (HEAD + FILE + GROUP + PLACED + TENSOR.replace("up", "down"), 5, "a file for every tensor", 'none for "blk.0.ffn_down_exps.weight"'),
    (HEAD + FILE + GROUP + PLACED.replace("file=0", "file=1"), 4, "file from 0 to 0", '"1"'),
    (HEAD + FILE + GROUP + PLACED.replace("file=0", "file=-1"), 4, "file from 0 to 0", '"-1"'),
    (HEAD + FILE + GROUP + PLACED.replace("file=0", "file="), 4, "file=", '"file="'),
    (HEAD + FILE + GROUP + PLACED.replace("file=0 offset=0", "offset=0 file=0"), 4, "file=", '"offset=0"'),
    *((HEAD + FILE + GROUP + PLACED.replace("offset=0", f"offset={n}"), 4, f"offset {BYTES}", f'"{n}"') for n in BAD_BYTES),
    (HEAD + FILE + GROUP + PLACED.replace("offset=0", "offset=1"), 4, "experts inside their file", "their end at byte 513 of 512"),
    (HEAD + FILE + GROUP + PLACED.replace("slab=64", "slab=65"), 4, "experts inside their file", "their end at byte 520 of 512"),
    (
        HEAD + FILE + GROUP + PLACED.replace("offset=0", f"offset={2**62}"),
        4,
        "experts inside their file",
        f"their end at byte {2**62 + 512} of 512",
    ),
    (HEAD + FILE + MANY + PLACED.replace("slab=64", f"slab={2**40}"), 4, "experts inside their file", f"their end at byte {2**56} of 512"),
    (HEAD + "off\n", 2, "off NAME REASON", '"off"'),
    (HEAD + "off x\n", 2, "off NAME REASON", '"off x"'),
]


@pytest.mark.parametrize(("text", "line", "expected", "found"), REJECTIONS)
def test_refusal_names_what_was_expected_what_was_found_and_the_line(text: str, line: int, expected: str, found: str) -> None:
    said = re.fullmatch(r"Expected (.*), found (.*) - at line ([0-9]+) of the plan", refusal(text))
    assert said is not None
    assert said[1] == expected
    assert found in said[2]
    assert int(said[3]) == line


def test_every_rejection_of_the_parser_has_a_row_here() -> None:
    source = (ROOT / "core/plan/plan.cpp").read_text()
    literal = re.findall(r'fail\("((?:[^"\\]|\\.)*)"', source)
    assert len(literal) > 8
    expected = {row[2] for row in REJECTIONS} | {"at most 65536 files"}  # has a test of its own
    assert {text.replace('\\"', '"') for text in literal} <= expected


# ---- plans made to hurt ----


def test_plan_of_more_than_16_mib_is_refused() -> None:
    assert refusal(HEAD + "#" * MAX_BYTES) == f"Expected a plan of at most 16 MiB, found {MAX_BYTES + len(HEAD)} bytes"


def test_files_are_at_most_65536() -> None:
    files = "".join(f"file {index} size=1 mtime=1 path=x\n" for index in range(65537))
    assert refusal(HEAD + files) == f"Expected at most 65536 files, found another - at line {65536 + 2} of the plan"


def test_bad_line_is_found_behind_a_million_others() -> None:
    assert refusal(HEAD + "#\n" * 10**6 + "x\n").endswith('found "x" - at line 1000002 of the plan')


def test_plan_of_empty_lines_only_is_refused_soon() -> None:
    assert refusal("\n" * MAX_BYTES).endswith(f"at line {MAX_BYTES} of the plan")


def test_line_of_a_million_words_is_refused_soon() -> None:
    assert refusal(HEAD + GROUP.strip() + " x" * 10**6).endswith("found 1000005 fields - at line 2 of the plan")


def test_word_of_a_megabyte_is_cut_and_the_line_still_named() -> None:
    message = refusal(HEAD + "x" * 2**20)
    assert message.endswith("at line 2 of the plan")
    assert len(message) < 1000


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in refusal(HEAD + "\x1b[2J\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\0", 1),
        (HEAD.replace("1", "1\0"), 1),
        (HEAD + "policy decay 0.5\0\n", 2),
        (HEAD + "\0\n", 2),
        (HEAD + GROUP.replace("slots=4", "slots=4\0000"), 2),
        (HEAD + GROUP + "tensor x role=up slab=64\0\n", 3),
    ],
)
def test_zero_byte_is_refused_with_its_line(text: str, line: int) -> None:
    assert refusal(text).endswith(f"at line {line} of the plan")


def test_device_of_any_length_and_language_is_reported() -> None:
    device = "\u00fc" * 40  # the core keeps 63 bytes: the last character is cut
    (group,) = groups_of(HEAD + DEVICE.replace("CUDA0", device) + GROUP.replace("CPU", device))
    assert group.device[:31] == device[:31]


@pytest.mark.skipif(shutil.which("localedef") is None, reason="no tool to make a locale with a decimal comma")
def test_decay_is_read_in_a_locale_with_a_decimal_comma(tmp_path: Path) -> None:
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip("the sources of locales are not installed")
    script = (
        "import locale; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8'); from slotpool import native;"
        "native.Session('slotpool-plan 1\\npolicy decay 0.97\\n')"
    )
    environment = os.environ | {"LOCPATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


# ---- prompts that stream ----


@pytest.mark.parametrize("way", ["stream", "auto"])
def test_prompts_that_stream_are_a_line_of_the_plan(way: str) -> None:
    made = plan.make(model_of(expert_tensor(0, "up")), 4, devices=["CUDA0"], prefill=way)
    assert f"\nprefill {way}\n" in plan.to_text(made)


def test_bypass_is_what_is_meant_where_nothing_is_said() -> None:
    made = plan.make(model_of(expert_tensor(0, "up")), 4, devices=["CUDA0"])
    assert (made.prefill, "prefill" in plan.to_text(made)) == ("bypass", False)


def test_auto_prefill_is_bypass_without_a_device_and_over_a_disk(tmp_path: Path) -> None:
    assert plan.make(model_of(expert_tensor(0, "up")), 4, prefill="auto").prefill == "bypass"
    over_disk = plan.make(file_model(tmp_path, "a.gguf"), 4, devices=["CUDA0"], ram_budget=10**6, prefill="auto")
    assert over_disk.prefill == "bypass"


@pytest.mark.parametrize("options", [{}, {"devices": ["CUDA0"], "ram_budget": 10**6}])
def test_stream_without_slots_on_a_device_or_over_a_disk_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SlotpoolError, match="expected slots on a device and experts in host memory") as refused:
        plan.make(model_of(expert_tensor(0, "up")), 4, prefill="stream", **options)
    assert (refused.value.where, "--device" in refused.value.do) == ("--prefill", True)


def test_an_unknown_way_of_prompts_names_the_known_ones() -> None:
    with pytest.raises(SlotpoolError, match="bypass, stream, auto"):
        plan.make(model_of(expert_tensor(0, "up")), 4, devices=["CUDA0"], prefill="sometimes")
