"""The profile file: what was written is read, every damage is refused in words, and only a profile of the same model is replaced."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotpool import profile
from slotpool.cli import main
from slotpool.errors import REFUSED, SlotpoolError
from slotpool.profile.reader import CRC, DamageError
from slotpool.trace import Facts, Group, Trace, save, single_events

FACTS = Facts("qwen3moe", 2, 8, 2, "ab" * 32, "engine", "session")
COUNTS = {(1, "exps"): [0, 7, 0, 9, 7, 0, 0, 1], (0, "chexps"): [0, 3], (0, "exps"): [5, 0, 0, 0, 0, 0, 0, 2]}
MADE = profile.of_heat(FACTS, COUNTS)
GOOD = profile.to_bytes(MADE)
N_FACTS = struct.unpack_from("<I", GOOD, 12)[0]
FIRST_GROUP = 20 + N_FACTS


def signed(data: bytes) -> bytes:
    """The bytes with a checksum that fits: a damage that only a check of its own finds."""
    return data + CRC.pack(zlib.crc32(data))


def put(at: int, form: str, value: int) -> bytes:
    data = bytearray(GOOD[: -CRC.size])
    struct.pack_into(form, data, at, value)
    return signed(bytes(data))


def with_facts(text: bytes) -> bytes:
    head = struct.pack("<8sIII", b"SPROFIL\n", 1, len(text), len(MADE.groups))
    return signed(head + text + GOOD[FIRST_GROUP : -CRC.size])


def test_experts_are_ordered_by_heat_and_those_without_a_row_left_out() -> None:
    assert [(one.layer, one.pass_, one.experts, one.rows) for one in MADE.groups] == [
        (0, "exps", (0, 7), (5, 2)),
        (0, "chexps", (1,), (3,)),
        (1, "exps", (3, 1, 4, 7), (9, 7, 7, 1)),
    ]


def test_what_was_written_is_read_back() -> None:
    assert profile.from_bytes(GOOD) == MADE


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 65536), st.sampled_from(("exps", "chexps"))),
        st.lists(st.integers(0, 2**60), min_size=1, max_size=20),
        max_size=8,
    )
)
def test_any_counts_are_read_back(counts: dict[tuple[int, str], list[int]]) -> None:
    made = profile.of_heat(FACTS, counts)
    assert profile.from_bytes(profile.to_bytes(made)) == made


@pytest.mark.parametrize(("n_used", "millionths"), [(1, [375000, 291666, 291666, 41666]), (2, [750000, 583333, 583333, 83333])])
def test_a_share_is_of_tokens_not_of_rows(n_used: int, millionths: list[int]) -> None:
    assert [share for _, share in MADE.groups[2].expected(n_used)] == millionths
    assert max(share for _, share in MADE.groups[0].expected(2)) == 10**6, "nobody is asked for more than once a token"


DAMAGE = {
    "nothing": (b"", "begins otherwise"),
    "another file": (b"GGUF" + GOOD[4:], "begins otherwise"),
    "cut in the header": (GOOD[:20], "ends inside its header"),
    "another version": (put(8, "<I", 2), "expected a profile of version 1, found version 2"),
    "cut": (GOOD[:-9], "checksum"),
    "a flipped bit": (GOOD[:40] + bytes([GOOD[40] ^ 1]) + GOOD[41:], "checksum"),
    "more behind": (GOOD + b"x", "checksum"),
    "facts of a gigabyte": (put(12, "<I", 1 << 30), "impossible numbers"),
    "many groups": (put(16, "<I", 1 << 30), "impossible numbers"),
    "a group more than there is": (put(16, "<I", 4), "ends too early"),
    "a group less than there is": (put(16, "<I", 2), "more after the last group"),
    "facts that are no JSON": (with_facts(b"{"), "no JSON"),
    "facts that are no object": (with_facts(b"[]"), "no JSON object"),
    "facts nested to hurt": (with_facts(b"[" * 60000), "no JSON"),
    "a number where a text is": (with_facts(b'{"fingerprint": 3}'), "impossible fingerprint"),
    "a negative number": (with_facts(b'{"n_layer": -1}'), "impossible n_layer"),
    "a layer out of range": (put(FIRST_GROUP, "<I", 65537), "impossible numbers"),
    "too many experts": (put(FIRST_GROUP + 4, "<I", 65537), "impossible numbers"),
    "no experts": (put(FIRST_GROUP + 4, "<I", 0), "impossible numbers"),
    "an unknown pass": (put(FIRST_GROUP + 8, "<I", 2), "impossible numbers"),
    "no entries": (put(FIRST_GROUP + 12, "<I", 0), "impossible numbers"),
    "more entries than experts": (put(FIRST_GROUP + 12, "<I", 9), "impossible numbers"),
    "an expert out of range": (put(FIRST_GROUP + 16, "<I", 8), "an expert out of range, or one twice"),
    "an expert twice": (put(FIRST_GROUP + 28, "<I", 0), "an expert out of range, or one twice"),
    "no rows": (put(FIRST_GROUP + 32, "<Q", 0), "not ordered by heat"),
    "rows beyond all counting": (put(FIRST_GROUP + 20, "<Q", (1 << 48) + 1), "not ordered by heat"),
    "the coldest first": (put(FIRST_GROUP + 32, "<Q", 6), "not ordered by heat"),
    "groups out of order": (put(FIRST_GROUP, "<I", 1), "not in order"),
    "a group twice": (put(FIRST_GROUP + 8, "<I", 1), "not in order"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_every_damage_is_refused_in_words(name: str) -> None:
    data, said = DAMAGE[name]
    with pytest.raises(DamageError, match=said):
        profile.from_bytes(data)


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda raw: signed(GOOD[:12] + raw)))
def test_any_bytes_are_a_profile_or_damage(data: bytes) -> None:
    with suppress(DamageError):
        profile.from_bytes(data)


def test_damage_in_a_file_is_a_no_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_bytes(GOOD[:-1])
    with pytest.raises(SlotpoolError, match="checksum") as caught:
        profile.read(path)
    assert (caught.value.exit_code, caught.value.where) == (REFUSED, str(path))


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "p"
    with path.open("wb") as file:
        file.write(GOOD[:12])
        file.truncate(1 << 40)
    with pytest.raises(SlotpoolError, match="at most"):
        profile.read(path)


# ---- writing ----


def test_the_same_models_profile_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "p"
    profile.write(path, MADE)
    profile.write(path, replace(MADE, groups=MADE.groups[:1]))
    assert profile.read_profile(path).groups == MADE.groups[:1]
    assert [one.name for one in tmp_path.iterdir()] == ["p"], "something was left beside it"


def another_models(path: Path) -> None:
    profile.write(path, replace(MADE, facts=replace(FACTS, fingerprint="cd" * 32)))


IN_PLACE: dict[str, tuple[Callable[[Path], object], str]] = {
    "another model's": (another_models, "found the profile of another model"),
    "a text": (lambda path: path.write_text("mine"), "found a file that is no profile"),
    "a folder": (lambda path: path.mkdir(), "found a file that is no profile"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "found a file that is no profile"),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_nothing_else_is_overwritten(tmp_path: Path, name: str) -> None:
    make, said = IN_PLACE[name]
    make(tmp_path / "p")
    with pytest.raises(SlotpoolError, match=said):
        profile.write(tmp_path / "p", MADE)


def test_a_folder_that_is_not_there_is_told_before(tmp_path: Path) -> None:
    with pytest.raises(SlotpoolError, match="expected a folder"):
        profile.check_target(tmp_path / "no" / "p", FACTS.fingerprint)


# ---- what else says how hot experts are ----


def test_a_trace_is_a_profile_of_all_its_rows(tmp_path: Path) -> None:
    import numpy as np

    ids = np.array([[1, 2], [1, 3], [1, 2]], np.int32)
    save(tmp_path / "t.trace", Trace(FACTS, (Group(4, "exps", 8, 2, ids, single_events(ids)),)))
    found = profile.read(tmp_path / "t.trace")
    assert found.facts.fingerprint == FACTS.fingerprint
    assert [(one.layer, one.experts, one.rows) for one in found.groups] == [(4, (1, 2, 3), (3, 2, 1))]


def test_a_heat_map_is_a_profile_of_a_model_that_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("layer,expert,count\n0,3,9\n0,1,10\n")
    found = profile.read(tmp_path / "h.csv")
    assert found.facts.fingerprint == ""
    assert [(one.layer, one.experts, one.rows) for one in found.groups] == [(0, (1, 3), (10, 9))]


def test_the_dump_says_who_is_hot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile.write(tmp_path / "p", MADE)
    assert main(["profile", str(tmp_path / "p")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "profile of qwen3moe abababababab, from session"
    assert shown[-1].split() == ["1", "4/8", "24", "3:9", "1:7", "4:7", "7:1"]
    assert main(["profile", str(tmp_path / "p"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["layers"][0] == {"layer": 0, "pass": "exps", "n_expert": 8, "experts": [0, 7], "rows": [5, 2]}


def test_a_profile_without_a_model_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.csv").write_text("layer,expert,count\n0,3,9\n")
    assert main(["profile", str(tmp_path / "h.csv"), "-o", str(tmp_path / "p")]) == 2
    assert "Add --model FILE" in capsys.readouterr().err
