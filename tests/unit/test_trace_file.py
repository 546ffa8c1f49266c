"""The trace file: what is written comes back; a cut file gives what stands before the cut; any other damage is said, never read."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slotpool import trace
from slotpool.errors import SlotpoolError
from slotpool.trace import blocks, sections

FACTS = trace.Facts("qwen3moe", n_layer=4, n_expert=6, n_expert_used=2, fingerprint="f" * 64, engine="e", source="test")
N_UBATCHES = 6


def event(ubatch: int, layer: int, n_rows: int = 3, pass_: str = "exps") -> trace.Event:
    rng = np.random.default_rng([ubatch, layer, n_rows])
    ids = rng.permuted(np.tile(np.arange(6, dtype=np.int32), (n_rows, 1)), axis=1)
    return trace.Event(
        layer=layer,
        pass_=pass_,
        n_expert=6,
        ubatch=ubatch,
        phase=ubatch % 2,
        n_tokens=3,
        ids=ids[:, :2].copy(),
        weights=rng.random((n_rows, 2), np.float32).astype(np.float16).astype(np.float32),
        ranking=ids,
    )


def events() -> list[trace.Event]:
    """Two layers and a second pass; the last layer has one row; layer 1 does not take part in every ubatch."""
    everything = [
        made
        for ubatch in range(N_UBATCHES)
        for made in (event(ubatch, 1), event(ubatch, 1, pass_="chexps"), event(ubatch, 3, n_rows=1))
        if ubatch != 2 or made.layer == 3
    ]
    return everything


def written(path: Path, *, flush_each: bool = True, is_complete: bool = True) -> list[int]:
    """A file of several blocks; where each ends."""
    ends = []
    with path.open("ab"):
        pass
    writer = trace.TraceWriter(path, FACTS, force=True)
    for made in events():
        if made.layer == 1 and made.pass_ == "exps":
            writer.begin_segment(made.ubatch, f"text {made.ubatch}")
        writer.add(made)
        if flush_each and made.layer == 3:
            writer.flush()
            ends.append(path.stat().st_size)
    writer.close(is_complete=is_complete)
    return ends


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.trace"


def wanted(layer: int, pass_: str, n_ubatches: int = N_UBATCHES) -> list[trace.Event]:
    return [made for made in events() if (made.layer, made.pass_) == (layer, pass_) and made.ubatch < n_ubatches]


def check_group(group: trace.Group, made: list[trace.Event]) -> None:
    assert group.n_events == len(made)
    for index, one in enumerate(made):
        rows = slice(int(group.events.first_row[index]), int(group.events.first_row[index + 1]))
        assert np.array_equal(group.event_ids(index), one.ids)
        assert group.weights is not None
        assert one.weights is not None
        assert np.array_equal(group.weights[rows], one.weights)
        assert group.ranking is not None
        assert one.ranking is not None
        assert np.array_equal(group.ranking[rows], one.ranking)
        columns = (group.events.ubatch[index], group.events.phase[index], group.events.n_tokens[index], group.events.stream[index])
        assert columns == (one.ubatch, one.phase, one.n_tokens, one.stream)


def test_what_is_written_comes_back(path: Path) -> None:
    written(path)
    found = trace.open(path)
    assert found.facts == FACTS
    assert found.is_complete
    assert found.n_dropped == 0
    assert found.n_ubatches == N_UBATCHES
    assert [(group.layer, group.pass_) for group in found.groups] == [(1, "exps"), (1, "chexps"), (3, "exps")]
    for group in found.groups:
        check_group(group, wanted(group.layer, group.pass_))
        assert group.ids.flags.c_contiguous
        assert group.ids.dtype == np.int32
        assert (group.n_expert, group.n_expert_used) == (6, 2)
    assert [(segment.first_ubatch, segment.name) for segment in found.segments] == [(i, f"text {i}") for i in (0, 1, 3, 4, 5)]


def test_a_whole_trace_is_written_and_comes_back(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(path)
    first = trace.open(path)
    monkeypatch.setattr("slotpool.trace.writer.FLUSH_BYTES", 40)  # many pieces
    trace.write(tmp_path / "b.trace", first)
    second = trace.open(tmp_path / "b.trace")
    assert (second.facts, second.segments, second.is_complete) == (first.facts, first.segments, True)
    for group in second.groups:
        check_group(group, wanted(group.layer, group.pass_))


def test_ids_above_a_byte_come_back(path: Path) -> None:
    ids = np.array([[299, 0, 256]], np.int32)
    with trace.TraceWriter(path, FACTS) as writer:
        writer.add(trace.Event(0, "exps", 300, 0, trace.GENERATION, 1, ids))
    assert np.array_equal(trace.open(path).group(0).ids, ids)


def test_a_phase_is_selected(path: Path) -> None:
    written(path)
    prompt = trace.open(path).select(trace.PROMPT)
    for group in prompt.groups:
        check_group(group, [made for made in wanted(group.layer, group.pass_) if made.phase == trace.PROMPT])


def test_an_existing_file_is_not_overwritten_unless_forced(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(SlotpoolError, match="expected no file, found one"):
        trace.TraceWriter(path, FACTS)
    assert path.read_text() == "mine"
    trace.TraceWriter(path, FACTS, force=True).close()
    assert trace.open(path).groups == ()


@pytest.mark.parametrize("bad", [-1, 6, 2**31 - 1])
def test_ids_that_do_not_exist_are_not_written(path: Path, bad: int) -> None:
    with trace.TraceWriter(path, FACTS) as writer, pytest.raises(SlotpoolError, match="expected expert ids from 0 to 5 in layer 1"):
        writer.add(event(0, 1)._replace(ids=np.array([[0, bad]], np.int32)))


def test_a_run_that_fails_leaves_a_file_without_an_end(path: Path) -> None:
    def fail() -> None:
        with trace.TraceWriter(path, FACTS) as writer:
            writer.add(event(0, 1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    found = trace.open(path)
    assert not found.is_complete
    check_group(found.group(1), wanted(1, "exps", 1))


def test_a_file_cut_anywhere_gives_what_stands_before_the_cut(path: Path) -> None:
    ends = written(path)
    whole = path.read_bytes()
    header = len(blocks.header_bytes(FACTS))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        if length < header:
            with pytest.raises(SlotpoolError, match=r"expected a slotpool trace|ends inside its header"):
                trace.open(path)
            continue
        found = trace.open(path)
        assert not found.is_complete
        n_ubatches = sum(end <= length for end in ends)
        for group in found.groups:
            check_group(group, wanted(group.layer, group.pass_, n_ubatches))
        assert n_ubatches == 0 or len(found.groups) == 3


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_anywhere_is_said(path: Path, mask: int) -> None:
    written(path)
    whole = path.read_bytes()
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ mask]) + whole[index + 1 :])
        # a length that grew past the end of the file cannot be told from a cut
        assert opened(path) in ("refused", "cut"), index


def opened(path: Path) -> str:
    try:
        return "complete" if trace.open(path).is_complete else "cut"
    except SlotpoolError:
        return "refused"


def test_salvage_reads_what_stands_before_damage(path: Path) -> None:
    ends = written(path)
    whole = bytearray(path.read_bytes())
    whole[ends[2] - 1] ^= 1
    path.write_bytes(whole)
    with pytest.raises(SlotpoolError, match=r"damaged at byte .*checksum.*--salvage"):
        trace.open(path)
    found = trace.open(path, salvage=True)
    assert not found.is_complete
    for group in found.groups:
        check_group(group, wanted(group.layer, group.pass_, 2))


def framed(kind: bytes, payload: bytes, codec: int = blocks.STORED, n_payload: int | None = None) -> bytes:
    """A block with a right checksum, whatever is in it."""
    frame = struct.pack("<4sIII", kind, codec, len(payload), len(payload) if n_payload is None else n_payload)
    return frame + struct.pack("<I", zlib.crc32(payload, zlib.crc32(frame))) + payload


KIND = sections.GroupKind(0, 1, "exps", 6, 2)
GROUP = framed(blocks.GROUP, sections.encode_group(KIND))
END = framed(blocks.END, sections.encode_end(sections.Totals(0, 0, 0)))


def group_with(**changes: int) -> bytes:
    return framed(blocks.GROUP, sections.encode_group(replace(KIND, **changes)))  # type: ignore[arg-type]


def section(n_events: int, n_rows: int, rest: bytes, number: int = 0, first: int = 0) -> bytes:
    return framed(blocks.EVENTS, struct.pack("<QIIQQ", 0, number, n_events, n_rows, first) + rest)


def one_event(step: int = 0, stream: int = 0, phase: int = 0, n_tokens: int = 1, n_rows: int = 1, ids: bytes = b"\0\1") -> bytes:
    return struct.pack("<iHBII", step, stream, phase, n_tokens, n_rows) + ids


HOSTILE: dict[str, tuple[list[bytes], str]] = {
    "a group of no experts": ([group_with(n_expert=0, n_expert_used=0)], "impossible numbers"),
    "more used than there are": ([group_with(n_expert_used=7)], "impossible numbers"),
    "a million experts": ([group_with(n_expert=1 << 20)], "impossible numbers"),
    "a group with a huge number": ([group_with(number=1 << 30)], "impossible numbers"),
    "a group of a huge layer": ([group_with(layer=1 << 31)], "impossible numbers"),
    "a group named twice": ([GROUP, group_with(number=1)], "named twice"),
    "a short group": ([framed(blocks.GROUP, b"abc")], "3 bytes"),
    "events of an unknown group": ([section(1, 1, one_event())], "not named before"),
    "four billion events": ([GROUP, section(2**32 - 1, 1, one_event())], "ends too early"),
    "a lot of rows": ([GROUP, section(1, 2**63, one_event())], "impossible numbers"),
    "rows that are not there": ([GROUP, section(1, 1000, one_event(n_rows=1000, n_tokens=1000))], "ends too early"),
    "rows that do not add up": ([GROUP, section(1, 2, one_event())], "have 1 rows, expected 2"),
    "an impossible first ubatch": ([GROUP, section(1, 1, one_event(), first=2**63)], "impossible numbers"),
    "an unknown phase": ([GROUP, section(1, 1, one_event(phase=2))], "no known phase"),
    "more rows than tokens": ([GROUP, section(1, 1, one_event(n_tokens=0))], "impossible number of tokens"),
    "an id too large": ([GROUP, section(1, 1, one_event(ids=b"\0\6"))], "expected expert ids below 6, found 6"),
    "an ubatch twice": ([GROUP, section(1, 1, one_event()), section(1, 1, one_event())], "not in order"),
    "rubbish behind the events": ([GROUP, section(1, 1, one_event() + b"\0")], "ends too early"),
    "no block of a known kind": ([framed(b"WHAT", b"")], "no known kind"),
    "no known codec": ([framed(blocks.END, b"", codec=7)], "no known kind"),
    "a block of a gigabyte": ([struct.pack("<4sIIII", blocks.EVENTS, 0, 1 << 30, 1 << 30, 0)], "claims 1073741824 bytes"),
    "a bomb": ([framed(blocks.EVENTS, zlib.compress(bytes(1 << 20)), blocks.DEFLATED, 100)], "longer or shorter"),
    "less than it says": ([framed(blocks.EVENTS, zlib.compress(bytes(10)), blocks.DEFLATED, 100)], "10 bytes, expected 100"),
    "no deflate": ([framed(blocks.EVENTS, b"abcdefgh", blocks.DEFLATED, 100)], "cannot be unpacked"),
    "segments out of order": ([framed(blocks.SEGMENT, struct.pack("<Q", 9)), framed(blocks.SEGMENT, struct.pack("<Q", 8))], "not in order"),
    "an endless name": ([framed(blocks.SEGMENT, bytes(9000))], "9000 bytes"),
    "an end that promises more": ([framed(blocks.END, sections.encode_end(sections.Totals(5, 5, 0)))], "expected 5 events and 5 rows"),
    "more after the end": ([END, GROUP], "more after the end"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_blocks_are_refused(path: Path, name: str) -> None:
    made, words = HOSTILE[name]
    path.write_bytes(blocks.header_bytes(FACTS) + b"".join(made))
    with pytest.raises(SlotpoolError, match=words) as caught:
        trace.open(path)
    assert caught.value.exit_code == 1
    assert str(path) in str(caught.value)


def test_blocks_that_unpack_to_more_than_the_limit_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(path)
    monkeypatch.setattr("slotpool.trace.reader.MAX_UNPACKED", 200)
    with pytest.raises(SlotpoolError, match="unpack to more than 200 bytes"):
        trace.open(path)


def _header(text: bytes, version: int = 1) -> bytes:
    head = struct.pack("<8sII", blocks.MAGIC, version, len(text)) + text
    return head + struct.pack("<I", zlib.crc32(head))


HEADERS: dict[str, tuple[Callable[[], bytes], str]] = {
    "an empty file": (lambda: b"", "expected a slotpool trace"),
    "a model": (lambda: b"GGUF" + bytes(100), "expected a slotpool trace"),
    "a newer version": (lambda: _header(b"{}", 2), "expected a trace of version 1, found version 2"),
    "a header of gigabytes": (lambda: struct.pack("<8sII", blocks.MAGIC, 1, 2**32 - 1), "claims 4294967295 bytes"),
    "no JSON": (lambda: _header(b"{"), "no JSON"),
    "deep JSON": (lambda: _header(b"[" * 100000), "no JSON"),
    "a list": (lambda: _header(b"[]"), "no JSON object"),
    "a number that is none": (lambda: _header(b'{"n_layer": "x"}'), "impossible n_layer"),
    "a negative number": (lambda: _header(b'{"n_layer": -1}'), "impossible n_layer"),
    "a boolean": (lambda: _header(b'{"n_expert": true}'), "impossible n_expert"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers_are_refused(path: Path, name: str) -> None:
    made, words = HEADERS[name]
    path.write_bytes(made())
    with pytest.raises(SlotpoolError, match=words):
        trace.open(path)


def test_facts_of_a_later_writer_do_no_harm() -> None:
    assert blocks.read_header(io.BytesIO(_header(b'{"n_layer": 3, "colour": "red"}'))) == trace.Facts(n_layer=3)


def test_a_directory_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(SlotpoolError, match="found a directory"):
        trace.open(tmp_path)
    with pytest.raises(SlotpoolError, match="cannot read the trace"):
        trace.open(tmp_path / "none")
    assert not trace.is_trace(tmp_path)
