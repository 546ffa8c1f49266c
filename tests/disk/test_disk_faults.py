"""Files and disks that go wrong while experts are read from them: one clear error for the request, right logits before and after it.

Never other logits, no crash, no hang. Each fault is met by single tokens and by a prompt, whose experts take another way.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

from slotpool import loading, model, plan
from slotpool.errors import REFUSED, SlotpoolError
from testkit import syn
from tests.disk.conftest import CONTEXT, SMALL, Plain, RunChild
from tests.disk.test_disk_loading import HEADER
from tests.disk.watch import MIB, PROMPT, STEPS, digest, logits

Llama = loading.PooledLlama
TOKENS = ((7,), (30,), (99,), (140,))
REQUESTS = [pytest.param(TOKENS, id="tokens"), pytest.param((PROMPT,), id="prompt")]
CHANGED = (
    r"Expected the file as it was when the model was loaded \(\d+ bytes\), found it changed \(\d+ bytes\)"
    r" - at {path}\. Load the model again"
)
CUT = r"Expected \d+ bytes at offset \d+, found the end of the file after \d+ - at {path}\. The file was cut\?"
BAD_BYTE = r"Expected \d+ bytes at offset \d+, found an error after \d+: Input/output error - at {path}"

Steps = tuple[tuple[int, ...], ...]


@pytest.fixture
def own(small: Path, tmp_path: Path) -> Path:
    """A file that a test may spoil."""
    return Path(shutil.copy(small, tmp_path / "own.gguf"))


@pytest.fixture
def llm(own: Path, small: Path, plain: Plain) -> Iterator[Llama]:
    """The model of `own`, in use: its pool is full of experts of other tokens."""
    with pytest.warns(UserWarning, match="fewer than twice"):
        made = loading.load(own, 4, ram_budget="auto", poison=True, **CONTEXT, n_ubatch=64)
    assert digest(logits(made)) == plain(small)
    yield made
    made.close()


def fails(llm: Llama, steps: Steps, *expected: str) -> None:
    """A request that fails, in one line and in the words that are expected, and leaves no other failure behind."""
    with pytest.raises(SlotpoolError) as caught:
        logits(llm, steps)
    said = str(caught.value)
    assert any(re.fullmatch(one, said) for one in expected), said
    assert caught.value.exit_code == REFUSED
    assert llm.slotpool_session is not None
    assert llm.slotpool_session.take_failure() == ""


@pytest.mark.parametrize("steps", REQUESTS)
def test_a_file_that_is_cut_fails_until_it_is_whole_again(own: Path, small: Path, llm: Llama, plain: Plain, steps: Steps) -> None:
    whole, facts = own.read_bytes(), own.stat()
    os.truncate(own, model.read(small).experts[0].offset + 100)
    path = re.escape(str(own))
    for _ in range(3):
        fails(llm, steps, CHANGED.format(path=path), CUT.format(path=path))
    own.write_bytes(whole)
    fails(llm, steps, CHANGED.format(path=path))  # the same bytes, but who knows
    os.utime(own, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert digest(logits(llm, steps)) == plain(small, steps)
    assert digest(logits(llm)) == plain(small)


@pytest.mark.parametrize("steps", REQUESTS)
def test_a_file_that_is_written_to_fails(own: Path, small: Path, llm: Llama, plain: Plain, steps: Steps) -> None:
    facts, tensor = own.stat(), model.read(small).experts[0]
    with own.open("r+b") as file:
        file.seek(tensor.offset)
        kept = file.read(tensor.slab_bytes * tensor.n_expert)
        file.seek(tensor.offset)
        file.write(bytes(reversed(kept)))
    fails(llm, steps, CHANGED.format(path=re.escape(str(own))))
    with own.open("r+b") as file:
        file.seek(tensor.offset)
        file.write(kept)
    os.utime(own, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert digest(logits(llm, steps)) == plain(small, steps)
    assert digest(logits(llm)) == plain(small)


def test_a_file_that_is_only_touched_fails_too(own: Path, llm: Llama) -> None:
    os.utime(own)
    fails(llm, TOKENS, CHANGED.format(path=re.escape(str(own))))


def replaced(path: Path, model_file: Callable[[syn.Spec], Path]) -> None:
    other = Path(shutil.copy(model_file(replace(SMALL, seed=9)), path.with_suffix(".new")))
    assert other.stat().st_size == path.stat().st_size
    other.replace(path)


def deleted(path: Path, _: object) -> None:
    path.unlink()


def moved(path: Path, _: object) -> None:
    path.rename(path.with_name("moved.gguf"))


@pytest.mark.parametrize("change", [replaced, deleted, moved])
def test_a_file_whose_name_means_another_or_nothing_goes_on_being_used(
    own: Path, small: Path, llm: Llama, plain: Plain, change: Callable[..., None], model_file: Callable[[syn.Spec], Path]
) -> None:
    change(own, model_file)
    misses = loading.read_stats(llm)["misses"]
    for steps in (TOKENS, (PROMPT,), STEPS):
        assert digest(logits(llm, steps)) == plain(small, steps)
    assert loading.read_stats(llm)["misses"] > misses + 20


def test_a_file_that_changes_while_it_is_planned_for_is_not_loaded(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan.make

    def make_and_touch(*arguments: Any, **options: Any) -> Any:
        planned = made(*arguments, **options)
        os.utime(own)
        return planned

    monkeypatch.setattr(plan, "make", make_and_touch)
    with pytest.raises(SlotpoolError, match="found it changed"):
        loading.load(own, 8, ram_budget="auto", **CONTEXT)


# ---- a disk that fails: reads of one file are spoiled by a library in a process of its own ----

SPOILED = """
import ctypes, os, sys
from slotpool import loading
from slotpool.errors import SlotpoolError
from tests.disk import watch
from tests.disk.conftest import CONTEXT, expert_ranges
from tests.disk.test_disk_faults import TOKENS
from tests.disk.test_disk_loading import HEADER

path, later = sys.argv[1], dict(one.split("=") for one in sys.argv[2:])
def attempt(steps):
    try:
        return watch.digest(watch.logits(llm, steps))
    except SlotpoolError as error:
        return str(error)

llm = loading.load(path, 4, ram_budget="auto", poison=True, **CONTEXT, n_ubatch=64)
(file, ranges), = expert_ranges(path).items()
watch.forget_pages(path)
before = attempt(watch.STEPS)
os.environ.update(later)  # the library looks at each read
during = {"tokens": attempt(TOKENS), "prompt": attempt((watch.PROMPT,)), "again": attempt((watch.PROMPT,))}
for name in later:
    del os.environ[name]
watch.answer(before=before, during=during, after=attempt(watch.STEPS), injected=ctypes.CDLL(None).faults_injected(),
             cached=watch.cached_bytes(path, [(max(begin, HEADER), end) for begin, end in ranges]),
             why=loading.read_stats(llm)["why_buffered"])
"""


def spoiled(run_child: RunChild, shim: Path, path: Path, *later: str, **faults: object) -> dict[str, Any]:
    return run_child(SPOILED, path, *later, LD_PRELOAD=shim, FAULT_FILE=path, **faults)


def bad_place(path: Path, role: str) -> int:
    """A byte inside a slab that the last of TOKENS needs and none before it: with four slots it is in none by then.

    Of the first layer, since of a prompt the last one sees a single row.
    """
    tensor = next(one for one in model.read(path).experts if one.layer == 0 and one.role == role)
    before, last = ({*syn.rigged_ids(SMALL, 0, token)} for (token,) in TOKENS[-2:])
    return tensor.offset + min(last - before) * tensor.slab_bytes + tensor.slab_bytes // 2


@pytest.mark.parametrize("role", ["gate", "up", "down"])
def test_a_bad_byte_fails_the_requests_that_need_it(small: Path, plain: Plain, shim: Path, run_child: RunChild, role: str) -> None:
    found = spoiled(run_child, shim, small, f"FAULT_EIO_AT={bad_place(small, role)}")
    assert found["before"] == found["after"] == plain(small)
    for said in found["during"].values():
        assert re.fullmatch(BAD_BYTE.format(path=re.escape(str(small))), said), said
    assert found["injected"] >= 3
    assert found["why"] == ""


def test_an_early_end_fails_the_requests_that_meet_it(small: Path, plain: Plain, shim: Path, run_child: RunChild) -> None:
    found = spoiled(run_child, shim, small, f"FAULT_EOF_AT={bad_place(small, 'gate')}")
    assert found["before"] == found["after"] == plain(small)
    for said in found["during"].values():
        assert re.fullmatch(CUT.format(path=re.escape(str(small))), said), said
    assert found["injected"] >= 3


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param({"FAULT_EINTR": 1, "FAULT_SHORT": 5}, id="short and interrupted"),
        pytest.param({"FAULT_OPEN_EINVAL": 1}, id="not to be opened directly"),
        pytest.param({"FAULT_EINVAL_AFTER": 20}, id="refused after twenty direct reads"),
    ],
)
def test_reads_that_are_only_awkward_are_right(small: Path, plain: Plain, shim: Path, run_child: RunChild, faults: dict[str, int]) -> None:
    found = spoiled(run_child, shim, small, **faults)
    assert found["before"] == found["after"] == plain(small)
    assert found["during"] == {
        "tokens": plain(small, TOKENS),
        "prompt": plain(small, (PROMPT,)),
        "again": plain(small, (PROMPT,)),
    }
    assert found["injected"] > 0
    refused = {"FAULT_OPEN_EINVAL": "the file system has no direct reads", "FAULT_EINVAL_AFTER": "the system refused a direct read"}
    assert found["why"] == next((reason for name, reason in refused.items() if name in faults), found["why"])
    assert sum(tensor.n_bytes for tensor in model.read(small).experts if tensor.offset > HEADER) > 2 * MIB, "too small to be seen"
    assert found["cached"] == 0  # what has to be read through the page cache does not stay there


# ---- a request that is aborted ----


def aborted(llm: Llama, steps: Steps, after: int) -> str:
    """What a request says whose abort callback says yes when it is asked for the `after`th time; empty when it was never asked so often."""
    asked = 0

    def is_aborted(_data: object) -> bool:
        nonlocal asked
        asked += 1
        return asked > after

    callback = llama_cpp.ggml_abort_callback(is_aborted)
    llama_cpp.llama_set_abort_callback(llm.ctx, callback, None)
    try:
        logits(llm, steps)
    except RuntimeError as error:
        return str(error)
    finally:
        llama_cpp.llama_set_abort_callback(llm.ctx, llama_cpp.ggml_abort_callback(), None)
    return ""


@pytest.mark.parametrize("steps", REQUESTS)
def test_an_aborted_request_changes_nothing_for_the_next(llm: Llama, small: Path, plain: Plain, steps: Steps) -> None:
    n_aborted = 0
    for after in range(0, 10_000, 7):
        if not aborted(llm, steps, after):
            break
        n_aborted += 1
        assert digest(logits(llm, steps)) == plain(small, steps)
    assert n_aborted > 3
    assert digest(logits(llm)) == plain(small)


@pytest.mark.parametrize("steps", REQUESTS)
def test_an_abort_is_told_as_one(llm: Llama, steps: Steps) -> None:
    said = {aborted(llm, steps, after) for after in range(0, 120, 3)}
    assert "llama_decode returned 2" in said
    assert said <= {"llama_decode returned 2", ""}
