"""A stats page is hostile input: whatever stands there, the reader shows it, leaves it out, or says in one line why it cannot."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotpool import page
from slotpool.native import Session
from slotpool.page import UnreadableError, files, layout

PLAN = """slotpool-plan 1
group layer=0 pass=exps device=CPU slots=6 n_expert=16
tensor blk.0.ffn_up_exps.weight role=up slab=4096
tensor blk.0.ffn_down_exps.weight role=down slab=8192
group layer=1 pass=exps device=CPU slots=6 n_expert=16
tensor blk.1.ffn_up_exps.weight role=up slab=4096
off blk.2.ffn_up_exps.weight off: nobody wanted it
"""
VERSION, SIZES, N_GROUPS, N_TENSORS, N_DEVICES = 8, 12, 32, 36, 40
GROUPS_AT, CONTEXTS_AT, CONTEXT_BYTES, STARTED, N_CONTEXTS, CHANGES = 48, 72, 80, 104, 112, 120
HEADER, GROUP, TENSOR, DEVICE, COUNTS = layout._SIZES
FIRST_TENSOR = HEADER + 2 * GROUP


@pytest.fixture(scope="module")
def good() -> bytes:
    """The page of a session without a context, as the core writes it, with room for a context added."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XDG_RUNTIME_DIR", raising=False)
        session = Session(PLAN)
        (path,) = (one for folder in page.directories() for one in folder.glob(f"{os.getpid()}-{session.number}*.page"))
        written = path.read_bytes()
        session.close()
    return written + bytes(4096)


def with_number(written: bytes, at: int, value: int, form: str = "<Q") -> bytes:
    packed = struct.pack(form, value)
    return written[:at] + packed + written[at + len(packed) :]


def parsed(written: bytes) -> layout.Facts | None:
    header = layout.read_header(written)
    return None if header is None else layout.read_facts(header, written)


def test_places_that_these_tests_damage_are_those_of_the_core(good: bytes) -> None:
    header = layout.read_header(good)
    assert header
    assert struct.unpack_from("<6I", good, VERSION) == (page.VERSION, HEADER, GROUP, TENSOR, DEVICE, COUNTS)
    assert struct.unpack_from("<3I", good, N_GROUPS) == header.n_records == (2, 4, 1)
    assert struct.unpack_from("<Q", good, STARTED) == (header.started_ns,)
    assert struct.unpack_from("<Q", good, CONTEXT_BYTES) == (header.context_bytes,) == (4096,)
    facts = parsed(good)
    assert facts
    assert [(group.layer, group.slots, group.slab_bytes, group.device) for group in facts.groups] == [
        (0, 6, 12288, "CPU"),
        (1, 6, 4096, "CPU"),
    ]
    assert [(tensor.name, tensor.role, tensor.group, tensor.is_stored) for tensor in facts.tensors[2:]] == [
        ("blk.1.ffn_up_exps.weight", "up", 1, False),
        ("blk.2.ffn_up_exps.weight", "", None, False),
    ]


DAMAGE: dict[str, tuple[int, int, str, str]] = {
    # what: place, value, form, what the line says
    "another file": (0, 0x1234, "<Q", "expected a stats page, found other bytes"),
    "another version": (VERSION, 7, "<I", "expected a stats page of version 5, found version 7: another slotpool wrote it"),
    "larger header": (SIZES, HEADER + 8, "<I", "expected records of"),
    "smaller groups": (SIZES + 4, GROUP - 8, "<I", "expected records of"),
    "larger counters": (SIZES + 16, COUNTS + 8, "<I", "expected records of"),
    "more groups than bytes": (N_GROUPS, 4000, "<I", "expected 4000 records inside"),
    "more tensors than bytes": (N_TENSORS, 4000, "<I", "expected 4000 records inside"),
    "more devices than bytes": (N_DEVICES, 2**32 - 1, "<I", "records inside"),
    "no devices": (N_DEVICES, 0, "<I", "expected a layer with slots on a device"),
    "groups in the header": (GROUPS_AT, 8, "<Q", "expected 2 records inside"),
    "groups past the end": (GROUPS_AT, 2**64 - 8, "<Q", "expected 2 records inside"),
    "groups at an odd place": (GROUPS_AT, HEADER + 1, "<Q", "expected 2 records inside"),
    "contexts past the end": (CONTEXTS_AT, 2**63, "<Q", "expected the counters of 0 contexts inside"),
    "contexts in the header": (CONTEXTS_AT, 0, "<Q", "expected the counters of 0 contexts inside"),
    "contexts at an odd place": (CONTEXTS_AT, 4097, "<Q", "expected room for"),
    "contexts too close": (CONTEXT_BYTES, COUNTS, "<Q", "expected room for 608 bytes of counters per context, found 304"),
    "more contexts than bytes": (N_CONTEXTS, 1000, "<Q", "expected the counters of 1000 contexts inside"),
    "more contexts than there can be": (N_CONTEXTS, 2**64 - 1, "<Q", "expected room for"),
    "began in the year 2500": (STARTED, 16725225600 * 10**9, "<Q", "expected a time at which the session began"),
    "layer below zero": (HEADER, -1, "<i", "expected a layer with slots on a device, found layer -1"),
    "more slots than experts": (HEADER + 12, 17, "<i", "found layer 0 with 17 of 16"),
    "slots below zero": (HEADER + 12, -1, "<i", "found layer 0 with -1 of 16"),
    "device that is not there": (HEADER + 16, 1, "<i", "found layer 0 with 6 of 16 on device 1"),
    "group that is not there": (FIRST_TENSOR, 2, "<i", "expected a tensor of one of 2 groups, found group 2"),
    "group below none": (FIRST_TENSOR, -2, "<i", "expected a tensor of one of 2 groups, found group -2"),
    "expert larger than memory": (FIRST_TENSOR + 8, 2**63, "<Q", "slabs of 9223372036854775808 bytes"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_said_in_one_line(good: bytes, what: str) -> None:
    at, value, form, says = DAMAGE[what]
    with pytest.raises(UnreadableError) as caught:
        parsed(with_number(good, at, value, form))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("length", [8, 11, 12, 300, HEADER - 1, HEADER, FIRST_TENSOR, 4000])
def test_page_that_was_cut_is_refused(good: bytes, length: int) -> None:
    with pytest.raises(UnreadableError):
        parsed(good[:length])


@pytest.mark.parametrize("written", [b"", bytes(7), bytes(8), bytes(4096)])
def test_page_that_is_not_finished_is_none(written: bytes) -> None:
    assert parsed(written) is None


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_bytes_are_a_page_or_refused(good: bytes, data: st.DataObject) -> None:
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(8, FIRST_TENSOR + 3 * TENSOR))
        damaged[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    try:
        facts = parsed(bytes(damaged))
    except UnreadableError:
        return
    assert facts
    counts = tuple(layout.read_counts(facts, index, bytes(COUNTS)) for index in range(len(facts.groups)))
    page.stats_of(page.Page(facts, counts))


# ---- files ----


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def put(folder: Path) -> Iterator[Any]:
    """put(bytes, name) writes a file and locks it as a living process does."""
    owners: list[int] = []

    def written(content: bytes, name: str = "1-1.page") -> Path:
        (folder / name).write_bytes(content)
        owners.append(os.open(folder / name, os.O_RDONLY))
        fcntl.flock(owners[-1], fcntl.LOCK_EX)
        return folder / name

    yield written
    for owner in owners:
        os.close(owner)


def problem(folder: Path) -> str:
    found = page.look([folder])
    assert found.pages == ()
    (line,) = found.problems
    return line


def test_whole_page_is_shown(folder: Path, put: Any, good: bytes) -> None:
    put(good)
    (found,) = page.look([folder]).pages
    assert found.facts.header.pid == os.getpid()


def test_problem_names_its_file_and_spares_the_others(folder: Path, put: Any, good: bytes) -> None:
    put(good, "1-1.page")
    put(with_number(good, VERSION, 3, "<I"), "2-1.page")
    found = page.look([folder])
    assert len(found.pages) == 1
    assert found.problems == (f"expected a stats page of version 5, found version 3: another slotpool wrote it (at {folder}/2-1.page)",)


def test_name_of_a_file_cannot_steer_the_terminal(folder: Path, put: Any) -> None:
    put(b"x" * 100, "\x1b[2J.page")
    assert problem(folder).isprintable()


def test_page_that_is_always_being_changed_is_refused(folder: Path, put: Any, good: bytes) -> None:
    put(with_number(good, CHANGES, 3))
    assert "one that its process is changing all the time" in problem(folder)


def test_text_that_changes_while_it_is_read_is_read_again(folder: Path, put: Any, good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(with_number(good, CHANGES, 3))
    writes = [
        with_number(with_number(good, HEADER + 12, 5, "<i"), CHANGES, 5),  # half of it
        with_number(with_number(good, HEADER + 12, 4, "<i"), CHANGES, 6),
    ]

    def pause(_: float) -> None:
        if writes:
            path.write_bytes(writes.pop(0))

    monkeypatch.setattr(files.time, "sleep", pause)
    (found,) = page.look([folder]).pages
    assert found.facts.groups[0].slots == 4


def test_page_that_changes_between_two_reads_is_read_again(folder: Path, put: Any, good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read_header, n_reads = put(good), layout.read_header, 0

    def changing(written: bytes) -> layout.Header | None:
        nonlocal n_reads
        n_reads += 1
        if n_reads == 1:
            path.write_bytes(with_number(with_number(good, HEADER + 12, 5, "<i"), CHANGES, 2))
        return read_header(written)

    monkeypatch.setattr(files, "read_header", changing)
    (found,) = page.look([folder]).pages
    assert found.facts.groups[0].slots == 5


def test_page_that_is_cut_while_it_is_read_is_refused(folder: Path, put: Any, good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read_facts = put(with_number(good, N_CONTEXTS, 1)), layout.read_facts

    def cutting(header: layout.Header, written: bytes) -> layout.Facts:
        os.truncate(path, 100)
        return read_facts(header, written)

    monkeypatch.setattr(files, "read_facts", cutting)
    assert "one that was cut while it was read" in problem(folder)


def test_counters_are_read_until_they_rest(folder: Path, put: Any, good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is half counted between two reads is not shown."""
    lookups, hits = 4096 + 8, 4096 + 16
    half = with_number(with_number(good, N_CONTEXTS, 1), lookups, 4)
    path, read_facts = put(half), layout.read_facts

    def counting(header: layout.Header, written: bytes) -> layout.Facts:
        path.write_bytes(with_number(half, hits, 4))
        return read_facts(header, written)

    monkeypatch.setattr(files, "read_facts", counting)
    (found,) = page.look([folder]).pages
    assert (found.counts[0].generation.lookups, found.counts[0].generation.hits) == (4, 4)


def test_count_that_was_taken_back_wraps_as_the_core_adds(folder: Path, put: Any, good: bytes) -> None:
    refused = 4096 + 256
    two = with_number(good + bytes(4096), N_CONTEXTS, 2)
    put(with_number(with_number(two, refused, 2**64 - 1), refused + 4096, 3))
    (found,) = page.look([folder]).pages
    assert found.counts[0].refused == 2


def test_file_that_is_too_large_is_refused(folder: Path, put: Any, good: bytes) -> None:
    os.truncate(put(good), layout.MAX_BYTES + 1)
    assert f"expected a page of at most {layout.MAX_BYTES} bytes, found more" in problem(folder)


def test_link_is_not_followed(folder: Path, put: Any, good: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "page"
    elsewhere.write_bytes(good)
    (folder / "1-1.page").symlink_to(elsewhere)
    assert "symbolic links" in problem(folder)


def test_pipe_and_directory_are_no_pages(folder: Path) -> None:
    os.mkfifo(folder / "1-1.page")
    assert "expected a file of this user's" in problem(folder)
    os.unlink(folder / "1-1.page")
    (folder / "1-1.page").mkdir()
    assert "expected a file of this user's" in problem(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_what_another_user_put_there_is_refused(folder: Path, put: Any, good: bytes) -> None:
    os.chown(put(good), 61234, -1)
    assert "expected a file of this user's" in problem(folder)
    os.chown(folder, 61234, -1)
    assert "expected a directory of this user's" in problem(folder)


def test_link_to_a_directory_is_no_directory_of_pages(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("links") / "slotpool"
    link.symlink_to(folder)
    assert "expected a directory of this user's" in problem(link)


def test_no_directory_is_no_problem(tmp_path: Path) -> None:
    assert page.look([tmp_path / "missing"]) == page.Pages((), ())


def test_file_without_an_owner_is_removed_once_it_is_old(folder: Path, good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "1-1.page").write_bytes(good)
    (folder / "other.txt").write_bytes(good)
    assert page.look([folder]) == page.Pages((), ())
    assert (folder / "1-1.page").exists()
    monkeypatch.setattr(files, "_YOUNG_S", -1.0)
    assert page.look([folder]) == page.Pages((), ())
    assert [path.name for path in folder.iterdir()] == ["other.txt"]
