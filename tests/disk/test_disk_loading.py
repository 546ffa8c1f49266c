"""Loading with experts on disk: dense weights are read once, experts are neither read, cached nor held, and the logits are plain's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slotpool import loading, model
from testkit import syn
from tests.disk.conftest import CONTEXT, SMALL, WIDE, Plain, RunChild, on_a_disk
from tests.disk.watch import MIB, digest, logits

HEADER = 2 * MIB
"""Headers are read a MiB at a time, and the system reads ahead of that: the first bytes of a file may be read and cached, expert or not."""
SLACK = MIB
"""A row of each expert tensor, blocks around tensors, and what Python itself opens while a model loads."""
LOAD = """
import sys, warnings
warnings.simplefilter("error", UserWarning)
warnings.filterwarnings("ignore", "[^ ]+ of weights may be locked")  # where the limit is low and binds: the machine's own
from slotpool import loading
from tests.disk import watch
from tests.disk.conftest import CONTEXT, expert_ranges
from tests.disk.test_disk_loading import HEADER

path, tiny, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
loading.load(tiny, 8, ram_budget="auto", **CONTEXT).close()  # what a first load of anything costs is not counted
ranges = expert_ranges(path)
def cached():
    return sum(watch.cached_bytes(file, [(max(begin, HEADER), end) for begin, end in where]) for file, where in ranges.items())
for file in ranges:
    watch.forget_pages(file)
before, cached_before, resident = watch.bytes_read(), cached(), watch.status("VmRSS")
llm = loading.load(path, 8, ram_budget="auto", **CONTEXT | options)
after = watch.bytes_read()
found = {name: after[name] - before[name] for name in before}
found |= {"resident": watch.status("VmRSS") - resident, "locked": watch.status("VmLck"), "cached": [cached_before, cached()]}
bits = watch.digest(watch.logits(llm))
watch.answer(**found, bits=bits, cached_after_use=cached(), stats=loading.read_stats(llm))
"""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    paths = syn.write_shards(WIDE, tmp_path_factory.mktemp("shards") / "wide", 3)
    return [on_a_disk(path) for path in paths]


def check_loading(found: dict[str, Any], path: Path, bits: list[str]) -> None:
    facts = model.read(path)
    assert facts.expert_bytes > 3 * (facts.other_bytes + len(facts.files) * HEADER + SLACK), "experts would not be seen"
    for count in ("rchar", "read_bytes"):
        assert found[count] < facts.other_bytes + len(facts.files) * HEADER + SLACK
    assert found["rchar"] > facts.other_bytes // 2, "nothing was measured"
    assert found["cached"] == [0, 0]
    assert found["cached_after_use"] == 0
    assert found["resident"] < facts.other_bytes + 8 * MIB
    assert found["bits"] == bits
    assert found["stats"]["why_buffered"] == ""
    assert found["stats"]["misses"] > 0


def test_loading_reads_and_keeps_no_experts(wide: Path, small: Path, plain: Plain, run_child: RunChild) -> None:
    check_loading(run_child(LOAD, wide, small, {}), wide, plain(wide))


def test_shards_from_another_folder(shards: list[Path], small: Path, plain: Plain, run_child: RunChild) -> None:
    found = run_child(LOAD, f"../{shards[0].parent.name}/{shards[0].name}", small, {}, cwd=small.parent)
    check_loading(found, shards[0], plain(shards[0]))


def test_any_shard_names_the_model(shards: list[Path], plain: Plain) -> None:
    llm = loading.load(shards[1], 8, ram_budget="auto", **CONTEXT)
    assert digest(logits(llm)) == plain(shards[0])
    llm.close()


def test_shards_behind_the_links_of_a_download_cache(
    shards: list[Path], small: Path, plain: Plain, run_child: RunChild, tmp_path: Path
) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123abcd"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, shard in enumerate(shards):
        os.link(shard, blobs / f"{number:064x}")
        (snapshot / shard.name).symlink_to(f"../../blobs/{number:064x}")
    check_loading(run_child(LOAD, snapshot / shards[0].name, small, {}), snapshot / shards[0].name, plain(shards[0]))


def test_locking_memory_locks_dense_weights_and_no_experts(wide: Path, small: Path, plain: Plain, run_child: RunChild) -> None:
    found = run_child(LOAD, wide, small, {"use_mlock": True})
    facts = model.read(wide)
    assert found["bits"] == plain(wide)
    assert found["rchar"] < facts.other_bytes + HEADER + SLACK
    assert found["locked"] < facts.other_bytes + SLACK
    if os.geteuid() == 0:
        assert found["locked"] > facts.other_bytes // 2


def test_mapping_that_was_asked_for_changes_nothing(wide: Path, small: Path, plain: Plain, run_child: RunChild) -> None:
    check_loading(run_child(LOAD, wide, small, {"use_mmap": True}), wide, plain(wide))


# ---- stats ----


def test_stats_say_where_experts_are_and_what_was_read(small: Path, plain: Plain) -> None:
    llm = loading.load(small, 8, ram_budget="auto", **CONTEXT)
    before = loading.read_stats(llm)
    bits = digest(logits(llm))
    stats = loading.read_stats(llm)
    llm.close()
    facts = model.read(small)
    assert bits == plain(small)
    assert (before["lookups"], before["bytes_copied"], before["generation"]["wait_ms"]) == (0, 0, 0.0)
    assert (stats["store"], stats["why_buffered"], stats["exact"]) == ("disk", "", True)
    assert [tensor["state"] for tensor in stats["tensors"]] == ["pooled 8/16"] * 6
    assert {tensor["reason"] for tensor in stats["tensors"]} == {"slots on CPU, experts on disk"}
    assert stats["slot_bytes"] == 8 * sum(tensor.slab_bytes for tensor in facts.experts)
    slabs = sum(tensor.slab_bytes for tensor in facts.experts if tensor.layer == 0)
    assert stats["bytes_copied"] == stats["misses"] * slabs
    assert stats["bytes_saved"] == stats["hits"] * slabs
    assert stats["hits"] > 0
    assert stats["generation"]["wait_ms"] > 0
    assert stats["prompt"]["wait_ms"] > 0
    assert stats["refused"] == 0


def test_all_experts_of_a_budget_that_holds_them(small: Path, plain: Plain) -> None:
    llm = loading.load(small, ram_budget="auto", **CONTEXT)
    assert digest(logits(llm)) == plain(small)
    assert digest(logits(llm)) == plain(small)
    stats = loading.read_stats(llm)
    assert {tensor["state"] for tensor in stats["tensors"]} == {"pooled 16/16"}
    assert stats["misses"] <= 2 * 16
    llm.close()


def test_without_a_budget_experts_are_in_memory(small: Path) -> None:
    llm = loading.load(small, 8, **CONTEXT)
    llm.eval([1])
    stats = loading.read_stats(llm)
    assert (stats["store"], stats["why_buffered"]) == ("memory", "")
    assert not any("disk" in tensor["reason"] for tensor in stats["tensors"])
    llm.close()


# ---- a file system in memory ----


@pytest.fixture
def in_memory(model_file: Callable[[syn.Spec], Path]) -> Iterator[Path]:
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK):
        pytest.skip("no file system in memory here")
    path = folder / f"slotpool-test-{os.getpid()}.gguf"
    shutil.copy(model_file(SMALL), path)
    yield path
    path.unlink()


def test_a_file_system_in_memory_is_right_and_says_how_it_is_read(in_memory: Path, small: Path, plain: Plain) -> None:
    try:
        os.close(os.open(in_memory, os.O_RDONLY | os.O_DIRECT))
        reads_directly = True
    except OSError:
        reads_directly = False
    llm = loading.load(in_memory, 8, ram_budget="auto", **CONTEXT)
    assert digest(logits(llm)) == plain(small)
    why = loading.read_stats(llm)["why_buffered"]
    llm.close()
    assert (why == "") == reads_directly
    assert reads_directly or "no direct reads" in why
