"""Files that were cut, mutated or made to hurt: an answer in words, soon, and never another exception."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotpool import model
from slotpool.errors import SlotpoolError
from slotpool.model import values, walk
from tests.unit.test_model_builder import T, Typed, gguf_bytes, moe_bytes, moe_keys, moe_tensors, string, write

SEED = 20261001
RAW = gguf_bytes(moe_keys(**{"tokenizer.ggml.tokens": ["a", "bc"] * 40, "odd": [0.5] * 9}), moe_tensors())
DATA = len(RAW) - sum(t.n_bytes for t in moe_tensors())
# of CPU time, which a busy machine does not stretch; an unbounded loop would take hours
SECONDS = 30.0


@pytest.mark.parametrize("cut", [*range(28), *sorted(random.Random(SEED).sample(range(28, len(RAW)), 60))])
def test_cut_file_is_told_from_a_whole_one(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "m.gguf", RAW[:cut])
    if cut < 4:
        with pytest.raises(SlotpoolError, match="expected a GGUF file"):
            model.read(path)
    else:
        found = model.read(path).problems
        assert found[0].startswith("truncated: "), found
        assert cut >= DATA or "inside its header" in found[0]


def test_cut_header_still_tells_what_was_read(tmp_path: Path) -> None:
    facts = model.read(write(tmp_path / "m.gguf", RAW[: DATA - 100]))
    assert (facts.architecture, facts.n_layer, facts.n_expert, facts.files[0].is_complete) == ("qwen3moe", 2, 4, False)


def claim(raw: bytes, at: int, number: int) -> bytes:
    return raw[:at] + struct.pack("<Q", number) + raw[at + 8 :]


LONG = struct.pack("<Q", 2**63)
HOSTILE = {
    "2^60 keys": claim(RAW, 16, 2**60),
    "2^60 tensors": claim(RAW, 8, 2**60),
    "one key too many": claim(RAW, 16, walk.MAX_KEYS + 1),
    "more keys than bytes": claim(RAW, 16, walk.MAX_KEYS),
    "more tensors than bytes": claim(RAW, 8, walk.MAX_TENSORS),
    "array of 2^60 numbers": gguf_bytes({"a": Typed(9, struct.pack("<IQ", 4, 2**60))}, []),
    "array of 2^60 strings": gguf_bytes({"a": Typed(9, struct.pack("<IQ", 8, 2**60))}, []),
    "array of 2^64 - 1 bytes": gguf_bytes({"a": Typed(9, struct.pack("<IQ", 0, 2**64 - 1))}, []),
    "string of 2^63": gguf_bytes({"a": Typed(8, LONG)}, []),
    "string of 2^63 in an array": gguf_bytes({"a": Typed(9, struct.pack("<IQ", 8, 2) + string("x") + LONG)}, []),
    "key of 2^63": gguf_bytes([], [], n_keys=1)[:24] + LONG + bytes(64),
    "tensor name of 2^63": gguf_bytes({}, [], n_tensors=1)[:24] + LONG + bytes(64),
    "tensor of 2^32 - 1 dimensions": gguf_bytes({}, [], n_tensors=1)[:24] + string("t") + b"\xff" * 4 + bytes(64),
    "deep nesting": gguf_bytes({"a": Typed(9, struct.pack("<IQ", 9, 1) * 20000)}, []),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_count_ends_at_once_in_one_problem(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "m.gguf", HOSTILE[name])
    started = time.process_time()
    facts = model.read(path)
    assert time.process_time() - started < SECONDS
    assert (len(facts.files[0].problems), facts.files[0].is_complete, facts.experts) == (1, False, ())


@pytest.mark.parametrize("name", ["2^60 keys", "2^60 tensors", "one key too many"])
def test_hostile_count_is_told_before_the_walk(tmp_path: Path, name: str) -> None:
    (found,) = model.read(write(tmp_path / "m.gguf", HOSTILE[name])).problems
    assert "claims" in found


def test_all_values_of_a_file_share_one_allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_HEADER_BYTES", 1000)
    keys = {"a": "x" * 600, "b": "y" * 600, "c": [1] * 60, "d": "z"}
    facts = model.read_gguf(write(tmp_path / "m.gguf", gguf_bytes(keys, [])))
    assert (set(facts.metadata), facts.skipped) == ({"a", "d"}, {"b": 600, "c": 60})


def test_all_string_arrays_of_a_file_share_one_allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MAX_STRINGS", 10)
    (found,) = model.read_gguf(write(tmp_path / "m.gguf", gguf_bytes({"a": ["x"] * 6, "b": ["x"] * 6}, []))).problems
    assert found.startswith('the value of "b" (metadata key 2 of 2) claims 6 strings')


def sparse(path: Path, raw: bytes, size: int) -> Path:
    write(path, raw)
    os.truncate(path, size)
    return path


BIG = 1 << 36


HUGE_VALUES = [
    gguf_bytes({"a": Typed(9, struct.pack("<IQ", 8, 2**32))}, []),
    gguf_bytes({"a": Typed(9, struct.pack("<IQ", 0, 2**35))}, []),
    gguf_bytes({"a": Typed(9, struct.pack("<IQ", 0, 2**21))}, []),
    gguf_bytes({"a": Typed(8, struct.pack("<Q", 2**35))}, []),
    gguf_bytes({}, [], n_keys=1)[:24] + struct.pack("<Q", 2**35),
]
MANY_STRINGS = gguf_bytes({"a": Typed(9, struct.pack("<IQ", 8, 2**19))}, [])
HUGE_COUNTS = [claim(gguf_bytes({}, []), at, n) for at in (8, 16) for n in (2**32, walk.MAX_KEYS, walk.MAX_TENSORS)]


@pytest.mark.parametrize("raw", [MANY_STRINGS, *HUGE_VALUES, *HUGE_COUNTS])
def test_hostile_count_that_fits_a_huge_file_takes_little_time(tmp_path: Path, raw: bytes) -> None:
    path = sparse(tmp_path / "m.gguf", raw, BIG)
    started = time.process_time()
    model.read_gguf(path, keep=["a"])
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize("raw", HUGE_VALUES)
def test_hostile_value_in_a_huge_file_takes_little_memory(tmp_path: Path, raw: bytes) -> None:
    path = sparse(tmp_path / "m.gguf", raw, BIG)
    tracemalloc.start()
    try:
        model.read_gguf(path, keep=["a"])
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


def read_whatever(path: Path) -> None:
    with contextlib.suppress(SlotpoolError):
        assert all(text.isprintable() for text in model.read(path).problems)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "m.gguf"


interesting = st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**60, 2**63 - 1, 2**63, 2**64 - 1])
bytes_changed = st.lists(st.tuples(st.integers(4, DATA), st.integers(0, 255)), min_size=1, max_size=8)
words_changed = st.lists(st.tuples(st.integers(4, DATA - 8), interesting), max_size=2)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(bytes_changed, words_changed, st.integers(0, len(RAW)))
def test_mutated_header_never_raises_anything_else(
    scratch: Path, one: list[tuple[int, int]], eight: list[tuple[int, int]], cut: int
) -> None:
    raw = bytearray(RAW)
    for at, value in one:
        raw[at] = value
    for at, number in eight:
        raw[at : at + 8] = struct.pack("<Q", number)
    read_whatever(write(scratch, bytes(raw)))
    read_whatever(write(scratch, bytes(raw[:cut])))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.binary(max_size=400))
def test_garbage_after_the_magic_never_raises_anything_else(scratch: Path, garbage: bytes) -> None:
    read_whatever(write(scratch, b"GGUF\x03\x00\x00\x00" + garbage))
    read_whatever(write(scratch, garbage))


def test_file_that_shrinks_while_it_is_read_ends_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", RAW)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: real(fd, min(n, max(0, 200 - at)), at))
    assert model.read(path).problems[0].startswith("the file became shorter while it was read")


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", RAW)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: real(fd, min(n, 7), at))
    assert model.read(path).problems == ()


def test_failing_disk_is_the_systems_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, n: int, at: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    path = write(tmp_path / "m.gguf", RAW)
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(SlotpoolError, match="cannot read the model file: Input/output error"):
        model.read(path)


def test_no_file_stays_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    model.read(write(tmp_path / "m.gguf", RAW))
    read_whatever(write(tmp_path / "m.gguf", b"nothing"))
    assert len(os.listdir("/proc/self/fd")) == len(before)


NAMES = [
    b"plain.gguf",
    b"two words.gguf",
    "gr\u00fc\u00dfe.gguf".encode(),
    "\u3000.gguf".encode(),
    "\U0001f999.gguf".encode(),
    b"line\nend.gguf",
    b"\xff\xfe.gguf",
    b"x" * 250 + b".gguf",
    b"-00001-of-00002.gguf",
    b"%s{}[red].gguf",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_folder", [False, True], ids=["file", "folder"])
def test_any_path_is_opened(tmp_path: Path, name: bytes, is_folder: bool) -> None:
    folder = os.path.join(os.fsencode(tmp_path), name) if is_folder else os.fsencode(tmp_path)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, b"m.gguf" if is_folder else name)
    write(Path(os.fsdecode(path)), moe_bytes())
    for given_as in (path, os.fsdecode(path), Path(os.fsdecode(path))):
        facts = model.read(given_as)
        assert (facts.problems, os.fsencode(facts.files[0].path)) == ((), path)


@pytest.mark.parametrize("name", NAMES)
def test_path_that_is_not_there_is_named_printably(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(SlotpoolError) as caught:
        model.read(tmp_path / os.fsdecode(name))
    text = str(caught.value)
    assert "No such file or directory" in text
    assert len(text.splitlines()) == 1
    text.encode()


def test_link_to_a_model_is_read(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", RAW)
    (tmp_path / "link").symlink_to("m.gguf")
    assert model.read(tmp_path / "link").problems == ()


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    cases = {".": "a directory", "pipe": "a device, pipe", "loop": "symbolic links", "a/b": "No such", "y" * 256: "too long", "\0": "zero"}
    for name, expected in cases.items():
        with pytest.raises(SlotpoolError, match=expected):
            model.read(str(tmp_path / name))


def test_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    path = write(tmp_path / "m.gguf", RAW)
    # not chmod: the tests may run as root, who may read everything
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SlotpoolError, match="Permission denied"):
        model.read(path)


def test_many_bad_tensors_are_told_in_few_words_and_soon(tmp_path: Path) -> None:
    entry = T("blk.0.ffn_up_exps.weight", (33,), 31, 7)
    raw = gguf_bytes(moe_keys(), [entry] * 100)
    entries = raw[raw.index(string(entry.name)) :][: 100 * (8 + 24 + 4 + 8 + 4 + 8)]
    many = claim(raw[: raw.index(string(entry.name))], 8, 20000) + entries * 200
    started = time.process_time()
    found = model.read(write(tmp_path / "m.gguf", many)).problems
    assert time.process_time() - started < SECONDS
    assert len(found) < 40
