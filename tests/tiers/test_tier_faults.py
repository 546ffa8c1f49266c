"""Disks that go wrong below a device: one clear error for the request, both pools as consistent as before, right logits after it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from slotpool import model
from tests.disk.conftest import Plain, RunChild
from tests.disk.conftest import plain as plain
from tests.disk.conftest import run_child as run_child
from tests.disk.conftest import shim as shim
from tests.disk.conftest import small as small
from tests.disk.test_disk_faults import BAD_BYTE, CHANGED, CUT, TOKENS, bad_place
from tests.disk.watch import PROMPT

MIB = 2**20

SPOILED = """
import ctypes, os, sys
from testkit.chaos import Chaos
chaos = Chaos.load()
from slotpool import loading
from slotpool.errors import SlotpoolError
from tests.disk import watch
from tests.disk.conftest import CONTEXT
from tests.disk.test_disk_faults import TOKENS

path, misses, slots, budget, change, later = *sys.argv[1:4], int(sys.argv[4]), sys.argv[5], dict(one.split("=") for one in sys.argv[6:])
def attempt(steps):
    try:
        return watch.digest(watch.logits(llm, steps))
    except SlotpoolError as error:
        return str(error)

llm = loading.load(path, int(slots), device="CHAOS0", miss=misses, rail=0, ram_budget=budget, poison=True, **CONTEXT, n_ubatch=64)
watch.forget_pages(path)
before = attempt(watch.STEPS)
facts = os.stat(path)
if change == "touch":
    os.utime(path)
os.environ.update(later)
during = {"tokens": attempt(TOKENS), "prompt": attempt((watch.PROMPT,)), "again": attempt((watch.PROMPT,))}
for name in later:
    del os.environ[name]
if change == "touch":
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
after, stats = attempt(watch.STEPS), loading.read_stats(llm)
llm.close()
watch.answer(before=before, during=during, after=after, hazards=chaos.counters().hazards, stats=stats)
"""


@pytest.fixture(params=["copy", "cpu"])
def misses(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[4, 6])
def slots(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def spoiled(run_child: RunChild, path: Path, *arguments: object, **environment: object) -> dict[str, Any]:
    return run_child(SPOILED, path, *arguments, **environment)


def check(found: dict[str, Any], path: Path, plain: Plain, *expected: str) -> None:
    assert found["before"] == found["after"] == plain(path)
    assert found["hazards"] == 0
    assert any(isinstance(said, str) for said in found["during"].values()), "the fault was not met"
    for name, said in found["during"].items():
        if isinstance(said, str):
            assert any(re.fullmatch(one.format(path=re.escape(str(path))), said) for one in expected), said
        else:  # whoever found everything in slots met no fault
            assert said == plain(path, TOKENS if name == "tokens" else (PROMPT,))


@pytest.mark.parametrize("budget", [MIB, 2 * MIB])
@pytest.mark.parametrize("role", ["gate", "down"])
def test_a_bad_byte_fails_the_requests_that_need_it(
    small: Path, plain: Plain, shim: Path, run_child: RunChild, misses: str, slots: int, budget: int, role: str
) -> None:
    bad = f"FAULT_EIO_AT={bad_place(small, role)}"
    check(spoiled(run_child, small, misses, slots, budget, "none", bad, LD_PRELOAD=shim, FAULT_FILE=small), small, plain, BAD_BYTE)


def test_an_early_end_fails_the_requests_that_meet_it(
    small: Path, plain: Plain, shim: Path, run_child: RunChild, misses: str, slots: int
) -> None:
    cut = f"FAULT_EOF_AT={bad_place(small, 'gate')}"
    check(spoiled(run_child, small, misses, slots, MIB, "none", cut, LD_PRELOAD=shim, FAULT_FILE=small), small, plain, CUT)


def test_a_file_that_was_touched_fails_until_it_is_as_it_was(
    small: Path, plain: Plain, run_child: RunChild, misses: str, slots: int
) -> None:
    check(spoiled(run_child, small, misses, slots, MIB, "touch"), small, plain, CHANGED)


def test_short_and_interrupted_reads_are_right(small: Path, plain: Plain, shim: Path, run_child: RunChild, misses: str) -> None:
    faults = {"FAULT_EINTR": 1, "FAULT_SHORT": 5}
    found = spoiled(run_child, small, misses, 6, 2 * MIB, "none", LD_PRELOAD=shim, FAULT_FILE=small, **faults)
    assert found["before"] == found["after"] == plain(small)
    assert found["during"]["tokens"] == plain(small, TOKENS)


def test_stats_tell_the_tiers_apart(small: Path, run_child: RunChild) -> None:
    stats = spoiled(run_child, small, "cpu", 6, 3 * MIB, "none")["stats"]
    facts = model.read(small)
    slab = sum(tensor.slab_bytes for tensor in facts.experts if tensor.layer == 0)
    ram = stats["ram"]
    assert ram["hits"] + ram["misses"] == ram["lookups"]
    assert ram["bytes_read"] == ram["misses"] * slab
    assert ram["hits"] > 0
    assert sum(layer["ram"]["misses"] for layer in stats["layers"]) == ram["misses"]
    assert stats["store"] == "disk"
    assert not stats["exact"]  # the CPU computed rows of the device's layers
    memory = {one["name"]: one for one in stats["devices"]}
    assert memory["CPU"]["taken"] <= 3 * MIB == memory["CPU"]["budget"]
    assert memory["CHAOS0"]["taken"] == stats["slot_bytes"] == 6 * 2 * slab
