"""Requests of several megabytes are read in pieces: right bytes, the first request first, and a piece that fails ends its request only."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from slotpool import native
from slotpool.errors import SlotpoolError

MIB = 1 << 20
SIZE = 6 * MIB + 777
DATA = random.Random(7).randbytes(SIZE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "large.bin"
    made.write_bytes(DATA)
    return made


@pytest.fixture(params=[True, False], ids=["direct", "buffered"])
def file(path: Path, request: pytest.FixtureRequest) -> native.File:
    return native.File(path, direct=request.param)


def places(file: native.File, count: int, seed: int = 1) -> list[tuple[int, int, int]]:
    """(offset, capacity, needed) of reads of up to five pieces at aligned places; the first is the whole file."""
    draw = random.Random(seed)
    block = file.alignment
    made = [(0, -(-SIZE // block) * block, SIZE)]
    while len(made) < count:
        offset = draw.randrange(SIZE - 1) // block * block
        needed = draw.randrange(1, min(SIZE - offset, 5 * MIB) + 1)
        made.append((offset, -(-needed // block) * block, needed))
    return made


@pytest.mark.parametrize("n_threads", [1, 3, 8])
def test_every_byte_of_every_request_is_right(file: native.File, n_threads: int) -> None:
    reader = native.Reader(n_threads)
    asked = places(file, 40)
    for (offset, _, needed), read in [(place, reader.submit(file, *place)) for place in asked]:
        assert reader.wait(read) == DATA[offset : offset + needed]


def inverted(data: bytes) -> bytes:
    return bytes(255 - byte for byte in data)


@pytest.mark.parametrize("unit", [1, 24, 1530, 3 * MIB])
def test_bytes_that_are_changed_on_their_way_come_in_whole_units_from_any_place(file: native.File, unit: int) -> None:
    draw = random.Random(unit)
    reader = native.Reader(3)
    asked = [(0, SIZE // unit * unit)] + [
        (offset := draw.randrange(SIZE - unit), draw.randint(1, (SIZE - offset) // unit) * unit) for _ in range(20)
    ]
    for (offset, n_bytes), read in [(place, reader.submit_inverted(file, *place, unit)) for place in asked]:
        assert reader.wait(read) == inverted(DATA[offset : offset + n_bytes])


def test_bytes_that_are_changed_on_their_way_and_do_not_come_are_said(file: native.File) -> None:
    reader = native.Reader(2)
    read = reader.submit_inverted(file, 0, SIZE + 100, 1)
    with pytest.raises(SlotpoolError, match="the end of the file"):
        reader.wait(read)
    assert reader.wait(reader.submit_inverted(file, 3, 1000, 8)) == inverted(DATA[3:1003])


def test_one_thread_serves_the_first_request_first(file: native.File) -> None:
    reader = native.Reader(1)
    reads = [reader.submit(file, *place) for place in places(file, 1) * 8]
    is_done = [False]
    while not all(is_done):
        # the last is looked at first: whoever was before it must be there by then, whatever happens in between
        is_done = [read.state == native.ReadState.DONE for read in reversed(reads)][::-1]
        assert is_done == sorted(is_done, reverse=True)


def test_requests_that_are_taken_back_at_any_moment_leave_the_others_right(file: native.File) -> None:
    draw = random.Random(3)
    reader = native.Reader(3)
    for _ in range(30):
        asked = places(file, 6, seed=draw.randrange(1000))
        reads = [reader.submit(file, *place) for place in asked]
        gone = set(draw.sample(range(6), 3))
        for index in gone:
            reader.cancel(reads[index])
            assert reads[index].state == native.ReadState.IDLE
        for index in set(range(6)) - gone:
            offset, _, needed = asked[index]
            assert reader.wait(reads[index]) == DATA[offset : offset + needed]


def test_a_reader_that_goes_leaves_no_request_waiting(file: native.File) -> None:
    for _ in range(20):
        reader = native.Reader(2)
        reads = [reader.submit(file, *place) for place in places(file, 6)]
        reader.close()
        assert {read.state for read in reads} <= {native.ReadState.DONE, native.ReadState.FAILED}


def test_a_piece_that_fails_fails_its_request_and_no_other(path: Path, file: native.File) -> None:
    os.truncate(path, 3 * MIB + 100)
    reader = native.Reader(3)
    block = file.alignment
    for _ in range(10):
        cut = reader.submit(file, 0, -(-SIZE // block) * block, SIZE)
        whole = reader.submit(file, MIB // 4096 * 4096, 2 * MIB, 2 * MIB)
        with pytest.raises(SlotpoolError, match=r"^Expected \d+ bytes at offset \d+, found the end of the file after \d+"):
            reader.wait(cut)
        assert reader.wait(whole) == DATA[MIB : 3 * MIB]
