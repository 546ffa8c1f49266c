"""Memory with experts on disk: a model larger than the memory there is runs within it, slots are cut to what fits, nothing grows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slotpool import loading, model
from testkit import syn
from tests.disk.conftest import CONTEXT, SMALL, Plain, RunChild, on_a_disk
from tests.disk.watch import MIB, digest, logits, status
from tests.unit.test_memory import make_group

LARGE = syn.Spec(n_layer=4, n_expert=64, n_expert_used=4, n_embd=512, n_head=8, n_ff_exp=768)
"""306 MiB of experts."""
CAP = 150
"""MiB that a process gets beside what it holds before it loads."""
RAIL = 64 * MIB

IN_GROUP = """
import sys
from pathlib import Path
group, version, path, tiny, before_plan, after_plan = Path(sys.argv[1]), *sys.argv[2:]
(group / "cgroup.procs").write_text("0")
from slotpool import loading, plan
from slotpool.errors import SlotpoolError
from tests.disk import watch
from tests.disk.conftest import CONTEXT
LIMIT, USED, PEAK = {
    "1": ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes"),
    "2": ("memory.max", "memory.current", "memory.peak"),
}[version]
number = lambda name: int((group / name).read_text())

llm = loading.load(tiny, 8, ram_budget="auto", **CONTEXT)
watch.logits(llm)
llm.close()
base = number(USED)
def cap(mib):
    global limit
    limit = base + int(mib) * watch.MIB
    (group / LIMIT).write_text(str(limit))
make = plan.make
def make_and_cap(*arguments, **options):
    made = make(*arguments, **options)
    cap(after_plan)
    return made
plan.make = make_and_cap
cap(before_plan)
if version == "1":
    (group / PEAK).write_text("0")
llm = loading.load(path, "all", ram_budget="auto", **CONTEXT)
try:
    bits, again = watch.digest(watch.logits(llm)), watch.digest(watch.logits(llm))
except SlotpoolError as error:
    watch.answer(failed=str(error))
    raise SystemExit
peak = number(PEAK) if (group / PEAK).exists() else None
watch.answer(bits=bits, again=again, peak=peak, base=base, limit=limit, stats=loading.read_stats(llm))
"""


@pytest.fixture
def group() -> Iterator[tuple[Path, str]]:
    """A control group of its own and the version of its interface."""
    folder, limit = make_group()
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    try:
        try:
            (folder / limit).write_text(str(4096 * MIB))
        except OSError as error:
            pytest.skip(f"the memory controller cannot be used here: {error.strerror}")
        yield folder, "1" if limit == "memory.limit_in_bytes" else "2"
    finally:
        folder.rmdir()


@pytest.fixture(scope="session")
def large(model_file: Callable[[syn.Spec], Path]) -> Path:
    return on_a_disk(model_file(LARGE))


@pytest.mark.parametrize("before_plan", [CAP, 4 * CAP], ids=["planned under the cap", "capped after it was planned"])
def test_a_model_twice_the_cap_runs_within_it(
    group: tuple[Path, str], large: Path, small: Path, plain: Plain, run_child: RunChild, before_plan: int
) -> None:
    facts = model.read(large)
    assert facts.expert_bytes > 2 * CAP * MIB
    found = run_child(IN_GROUP, *group, large, small, before_plan, CAP)
    assert found["limit"] == found["base"] + CAP * MIB
    assert found["bits"] == found["again"] == plain(large)
    # the rail stayed free, whatever the kernel would have thrown out to make room
    assert found["peak"] is None or found["peak"] <= found["limit"] - RAIL // 2
    check_cut(found["stats"], CAP * MIB - RAIL)


def test_a_cap_that_leaves_room_for_no_slot_is_slow_and_right(
    group: tuple[Path, str], large: Path, small: Path, plain: Plain, run_child: RunChild
) -> None:
    found = run_child(IN_GROUP, *group, large, small, CAP, 90)  # less than the rail and the ring that prompts pass through
    assert found["bits"] == found["again"] == plain(large)
    assert found["peak"] is None or found["peak"] < found["limit"]
    assert found["stats"]["hits"] == found["stats"]["slot_bytes"] == 0
    assert found["stats"]["misses"] > 0


def test_a_cap_without_room_for_experts_on_their_way_fails_the_request(
    group: tuple[Path, str], large: Path, small: Path, run_child: RunChild
) -> None:
    found = run_child(IN_GROUP, *group, large, small, CAP, 42)  # less than the ring and what loading takes
    assert re.match(r"Expected at least \d+ bytes of memory for experts on their way from disk, found \d+\.", found["failed"])


def check_cut(stats: dict[str, Any], room: int) -> None:
    """All layers have about the same number of slots, more than a token uses, and the reason says how many were planned."""
    slots = [layer["slots"] for layer in stats["layers"]]
    assert LARGE.n_expert_used <= min(slots) <= max(slots) <= min(slots) + 1
    assert max(slots) < LARGE.n_expert
    assert room // 4 < stats["slot_bytes"] <= room
    for tensor in stats["tensors"]:
        state = re.fullmatch(r"pooled (\d+)/64", tensor["state"])
        assert state
        assert int(state[1]) in slots
        assert tensor["reason"] == f"slots on CPU, experts on disk; 64 were planned, {state[1]} fit the memory"


def test_slots_of_a_budget_take_no_more_than_it(large: Path, plain: Plain, run_child: RunChild, small: Path) -> None:
    budget = 80 * MIB
    found = run_child(RESIDENT, large, small, budget)
    assert found["bits"] == plain(large)
    assert found["grown"] <= budget + model.read(large).other_bytes + 16 * MIB
    check_cut(found["stats"], budget)


RESIDENT = """
import sys
from slotpool import loading
from tests.disk import watch
from tests.disk.conftest import CONTEXT
path, tiny, budget = sys.argv[1], sys.argv[2], int(sys.argv[3])
loading.load(tiny, 8, ram_budget="auto", **CONTEXT).close()
before = watch.status("VmRSS")
llm = loading.load(path, "all", ram_budget=budget, **CONTEXT)
bits = watch.digest(watch.logits(llm))
watch.answer(bits=bits, grown=watch.status("VmHWM") - before, stats=loading.read_stats(llm))
"""


def test_thousands_of_evictions_hold_no_more_memory(small: Path, plain: Plain) -> None:
    with pytest.warns(UserWarning, match="fewer than twice"):
        llm = loading.load(small, 4, ram_budget="auto", **CONTEXT)
    tokens = (*((token,) for token in range(0, 96, 5)), tuple(range(30)))

    def evict(n: int) -> int:
        until = loading.read_stats(llm)["misses"] + n
        while loading.read_stats(llm)["misses"] < until:
            logits(llm, tokens)
        return status("VmRSS")

    early = evict(1000)
    late = evict(3000)
    assert late - early < 2 * MIB
    slab_bytes = sum(tensor.slab_bytes for tensor in model.read(small).experts if tensor.layer == 0)
    assert 3000 * slab_bytes > 100 * MIB, "a leak would not be seen"
    assert digest(logits(llm)) == plain(small)
    llm.close()


WITHOUT_LOCKS = """
import ctypes, resource, sys
from slotpool import loading
from tests.disk import watch
from tests.disk.conftest import CONTEXT

CAP_IPC_LOCK = 14
class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
libc = ctypes.CDLL(None, use_errno=True)
header, sets = Header(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert libc.capget(ctypes.byref(header), sets) == 0
sets[0] &= ~(1 << CAP_IPC_LOCK)
assert libc.capset(ctypes.byref(header), sets) == 0
resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))
block = ctypes.create_string_buffer(1 << 20)
can_lock = libc.mlock(block, 1 << 20) == 0
llm = loading.load(sys.argv[1], 8, ram_budget="auto", use_mlock=sys.argv[2] == "lock", **CONTEXT)
watch.answer(bits=watch.digest(watch.logits(llm)), can_lock=can_lock, stats=loading.read_stats(llm))
"""


@pytest.mark.parametrize("how", ["lock", "do not lock"])
def test_a_process_that_may_lock_nothing_runs_as_any_other(small: Path, plain: Plain, run_child: RunChild, how: str) -> None:
    found = run_child(WITHOUT_LOCKS, small, how)
    assert not found["can_lock"]
    assert found["bits"] == plain(small)
    assert (found["stats"]["why_buffered"], found["stats"]["pooled_tensors"]) == ("", 3 * SMALL.n_layer)
