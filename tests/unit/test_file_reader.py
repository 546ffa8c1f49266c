"""Files as the core reads them: the bytes are the file's, at any place and from any thread, and no page of it stays in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import slotpool
from slotpool import native
from slotpool.errors import SlotpoolError

SIZE = (3 << 20) + 777
"""No multiple of any block, and more than one piece of a bounce buffer."""
DATA = random.Random(1).randbytes(SIZE)
SHARED_MEMORY = Path("/dev/shm")
PAGE = mmap.PAGESIZE


@pytest.fixture(scope="module", params=["disk", "memory"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file of DATA: where pytest keeps its files, and in shared memory, which has no blocks."""
    if request.param == "memory" and not SHARED_MEMORY.is_dir():
        pytest.skip(f"no {SHARED_MEMORY}")
    folder = tmp_path_factory.mktemp("read") if request.param == "disk" else SHARED_MEMORY
    made = folder / f"slotpool-read-{os.getpid()}.bin"
    made.write_bytes(DATA)
    yield made
    made.unlink()


@pytest.fixture(params=[True, False], ids=["direct", "buffered"])
def file(path: Path, request: pytest.FixtureRequest) -> native.File:
    return native.File(path, direct=request.param)


def slabs(file: native.File, count: int, seed: int = 2) -> list[tuple[int, int, int]]:
    """(offset, capacity, needed) of reads at random aligned places; the first ends with the file."""
    draw = random.Random(seed)
    last = SIZE // file.alignment * file.alignment
    made = [(last, file.alignment, SIZE - last)] if last < SIZE else []
    while len(made) < count:
        offset = draw.randrange(SIZE) // file.alignment * file.alignment
        needed = draw.randrange(1, min(SIZE - offset, 300_000) + 1)
        made.append((offset, -(-needed // file.alignment) * file.alignment, needed))
    return made


# ---- bytes ----


def test_aligned_reads_have_the_bytes_of_the_file(file: native.File) -> None:
    for offset, capacity, needed in slabs(file, 150):
        assert file.read(offset, capacity, needed) == DATA[offset : offset + needed]


def test_read_anywhere_takes_any_offset_length_and_address(file: native.File) -> None:
    draw = random.Random(3)
    for _ in range(200):
        offset = draw.randrange(SIZE)
        size = draw.randrange(min(SIZE - offset, draw.choice([2, 600, 10_000, SIZE])) + 1)
        found = file.read_anywhere(offset, size, misalignment=draw.choice([0, 0, 1, offset % 4096, draw.randrange(4096)]))
        assert found == DATA[offset : offset + size], (offset, size)


def test_read_anywhere_writes_nothing_around_its_bytes(path: Path) -> None:
    file = native.File(path, direct=True)
    for misalignment in (0, 1, 511, 512):
        memory = (ctypes.c_char * (3 * PAGE))(*b"\xee" * (3 * PAGE))
        begin = -ctypes.addressof(memory) % PAGE + misalignment
        text = ctypes.create_string_buffer(100)
        assert native.io.core().slotpool_file_read_anywhere(file._file, ctypes.addressof(memory) + begin, 700, 1000, text, 100)
        assert bytes(memory) == b"\xee" * begin + DATA[700:1700] + b"\xee" * (3 * PAGE - begin - 1000)


def test_a_file_that_was_opened_is_read_though_another_takes_its_path(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(DATA)
    second.write_bytes(bytes(SIZE))
    file = native.File(first, direct=True)
    second.replace(first)
    assert file.read_anywhere(0, SIZE) == DATA


def test_identity_is_size_and_time_of_the_file_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(DATA)
    os.utime(path, ns=(5, 1_234_567_890_123_456_789))
    file = native.File(path, direct=True)
    assert file.identity == (SIZE, 1_234_567_890_123_456_789)
    os.truncate(path, 100)
    os.utime(path, ns=(5, 7))
    assert file.identity == (100, 7)


def test_direct_reads_are_aligned_and_buffered_ones_need_not_be(path: Path) -> None:
    direct, buffered = native.File(path, direct=True), native.File(path, direct=False)
    assert (direct.alignment == 1) == bool(direct.why_buffered)
    assert direct.alignment & (direct.alignment - 1) == 0
    assert (buffered.alignment, buffered.why_buffered) == (1, "direct reads were not asked for")


# ---- refusals ----


def refusal(path: Path) -> str:
    with pytest.raises(SlotpoolError) as raised:
        native.File(path, direct=True)
    return str(raised.value)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # to open it would be to wait for ever
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    assert refusal(tmp_path) == f"Expected a regular file, found a directory - at {tmp_path}"
    assert refusal(tmp_path / "socket") == f"Expected a regular file, found a socket - at {tmp_path}/socket"
    assert refusal(Path("/dev/zero")) == "Expected a regular file, found a device - at /dev/zero"
    assert refusal(tmp_path / "none") == f"Expected a file to read, found: No such file or directory - at {tmp_path}/none"
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        assert refusal_elsewhere(tmp_path / name) == f"Expected a regular file, found a pipe - at {tmp_path / name}"


def refusal_elsewhere(path: Path) -> str:
    code = "import sys, pathlib; from slotpool import native; native.File(pathlib.Path(sys.argv[1]), direct=True)"
    env = os.environ | {"PYTHONPATH": str(Path(slotpool.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=30, env=env)
    return done.stderr.splitlines()[-1].removeprefix("slotpool.errors.SlotpoolError: ")


def test_a_link_to_a_file_is_that_file(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    assert native.File(tmp_path / "link", direct=True).read_anywhere(3, 5) == DATA[3:8]


def test_a_path_stays_on_its_line(tmp_path: Path) -> None:
    assert refusal(tmp_path / "a\nb\x1b[0mc\x85d\u2028é").endswith(r" - at " + str(tmp_path) + r"/a\x0ab\x1b[0mc\xc2\x85d\xe2\x80\xa8é")


def test_a_read_past_the_end_says_what_is_there(file: native.File) -> None:
    offset = SIZE // 4096 * 4096 - 4096
    with pytest.raises(SlotpoolError) as raised:
        file.read(offset, 3 * 4096, 3 * 4096)
    assert f"Expected 12288 bytes at offset {offset}, found the end of the file after {SIZE - offset} - at /" in str(raised.value)
    assert str(raised.value).endswith(".bin. The file was cut?")
    with pytest.raises(SlotpoolError, match=r"Expected 4096 bytes at offset 1073741824, found the end of the file after 0 - at /"):
        file.read(1 << 30, 4096, 4096)


def test_a_place_no_file_has_is_refused(file: native.File) -> None:
    was = file.why_buffered
    for offset, capacity, needed in ((2**64 - 4096, 4096, 1), (2**63 - 4096, 8192, 1), (0, 4096, 4097)):
        with pytest.raises(
            SlotpoolError, match=r"^Expected \d+ bytes at offset \d+, found room for \d+ in a file of at most 2\^63 bytes - at /"
        ):
            file.read(offset, capacity, needed)
    assert file.why_buffered == was


def test_a_misaligned_read_is_refused_and_the_file_stays_direct(path: Path) -> None:
    file = native.File(path, direct=True)
    if file.why_buffered:
        pytest.skip(file.why_buffered)
    block = file.alignment
    for offset, capacity, misalignment in ((1, block, 0), (0, block + 1, 0), (0, block, 1)):
        with pytest.raises(SlotpoolError, match=f"^Expected offset, length and address in multiples of {block}, found offset {offset}, "):
            file.read(offset, capacity, 1, misalignment=misalignment)
    assert file.why_buffered == ""


# ---- the page cache ----


def resident_pages(path: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    n_pages = -(-path.stat().st_size // PAGE)
    found = (ctypes.c_ubyte * n_pages)()
    with path.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        base = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        assert libc.mincore(ctypes.c_void_p(base), ctypes.c_size_t(n_pages * PAGE), found) == 0
    return sum(page & 1 for page in found)


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A file of DATA of which no page is in memory."""
    path = tmp_path / "cold.bin"
    path.write_bytes(DATA)
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_pages(path):
        pytest.skip("this file system keeps its pages")
    return path


@pytest.mark.parametrize("direct", [True, False])
def test_no_page_of_what_was_read_stays_in_memory(cold: Path, direct: bool) -> None:
    file = native.File(cold, direct=direct)
    for offset in range(0, 1 << 20, 1 << 16):  # one after the other: the system is tempted to read ahead
        file.read(offset, 1 << 16, 1 << 16)
    assert resident_pages(cold) == 0
    for offset, capacity, needed in slabs(file, 40):
        assert file.read(offset, capacity, needed) == DATA[offset : offset + needed]
    assert file.read_anywhere(1, SIZE - 1) == DATA[1:]
    assert resident_pages(cold) == 0


def test_the_check_of_pages_sees_them(cold: Path) -> None:
    cold.read_bytes()
    assert resident_pages(cold) == -(-SIZE // PAGE)


# ---- the reader ----


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_many_reads_in_flight_have_the_bytes_of_the_file(file: native.File, n_threads: int) -> None:
    reader = native.Reader(n_threads)
    asked = slabs(file, 300, seed=n_threads)
    reads = [reader.submit(file, *one) for one in asked]
    for (offset, _, needed), read in reversed(list(zip(asked, reads, strict=True))):
        assert reader.wait(read) == DATA[offset : offset + needed]
        assert reader.wait(read) == DATA[offset : offset + needed]


def test_one_thread_serves_in_the_order_of_submission(file: native.File) -> None:
    reader = native.Reader(1)
    reads = [reader.submit(file, *one) for one in slabs(file, 100)]
    reader.wait(reads[60])
    assert {read.state for read in reads[:61]} == {native.ReadState.DONE}


def test_a_read_that_fails_fails_alone(file: native.File) -> None:
    reader = native.Reader(2)
    reads = [reader.submit(file, 1 << 30 if i == 4 else 0, 4096, 4096) for i in range(9)]
    with pytest.raises(SlotpoolError, match="found the end of the file after 0"):
        reader.wait(reads[4])
    assert reads[4].state == native.ReadState.FAILED
    assert all(reader.wait(read) == DATA[:4096] for i, read in enumerate(reads) if i != 4)


def test_a_read_can_be_cancelled_in_any_state(file: native.File) -> None:
    reader = native.Reader(1)
    done = reader.submit(file, 0, 4096, 4096)
    reader.wait(done)
    rest = [reader.submit(file, *one) for one in slabs(file, 50)]
    for read in (done, *rest, done):
        reader.cancel(read)
        assert read.state == native.ReadState.IDLE
    assert reader.wait(reader.submit(file, 4096, 4096, 4096)) == DATA[4096:8192]


def test_a_reader_can_go_with_its_queue_full(file: native.File) -> None:
    for _ in range(20):
        reader = native.Reader(2)
        asked = slabs(file, 60)
        reads = [reader.submit(file, *one) for one in asked]
        reader.close()
        for (offset, _, needed), read in zip(asked, reads, strict=True):
            assert read.state in (native.ReadState.DONE, native.ReadState.FAILED)
            if read.state == native.ReadState.DONE:
                assert read.bytes_read == DATA[offset : offset + needed]
            else:
                assert read.error == "Expected the read to be served, found its reader closed"


def test_several_threads_submit_wait_and_cancel_at_a_time(file: native.File) -> None:
    reader = native.Reader(3)
    wrong: list[object] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for offset, capacity, needed in slabs(file, 150, seed):
            read = reader.submit(file, offset, capacity, needed)
            if draw.random() < 0.5:
                reader.cancel(read)
                del read  # gone at once: nobody may touch it any more
            elif reader.wait(read) != DATA[offset : offset + needed]:
                wrong.append((seed, offset))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not any(worker.is_alive() for worker in workers)
    assert wrong == []


# ---- its threads ----


def facts_of(thread: str) -> dict[str, str]:
    lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def is_asleep(thread: str) -> bool:
    return facts_of(thread)["State"] == "S (sleeping)"


@pytest.fixture
def idle_threads(path: Path) -> Iterator[list[str]]:
    """Kernel numbers of a reader's threads that have nothing to do any more."""
    before = set(os.listdir("/proc/self/task"))
    reader = native.Reader(3)
    file = native.File(path, direct=True)
    for read in [reader.submit(file, 0, 4096, 4096) for _ in range(9)]:
        reader.wait(read)
    threads = sorted(set(os.listdir("/proc/self/task")) - before)
    deadline = time.monotonic() + 10
    while not all(is_asleep(thread) for thread in threads) and time.monotonic() < deadline:
        time.sleep(0.01)  # one that is still being started has all signals blocked
    yield threads
    reader.close()


def test_handlers_of_the_program_never_run_on_its_threads(idle_threads: list[str]) -> None:
    assert len(idle_threads) == 3
    for thread in idle_threads:
        blocked = int(facts_of(thread)["SigBlk"], 16)
        for number, is_blocked in ((2, 1), (10, 1), (14, 1), (15, 1), (17, 1), (27, 1), (11, 0), (7, 0), (8, 0)):
            assert blocked >> (number - 1) & 1 == is_blocked, number


def test_threads_that_have_nothing_to_do_sleep(idle_threads: list[str]) -> None:
    before = [facts_of(thread)["voluntary_ctxt_switches"] for thread in idle_threads]
    time.sleep(0.3)
    assert [facts_of(thread)["voluntary_ctxt_switches"] for thread in idle_threads] == before
    assert all(map(is_asleep, idle_threads))
