"""What other tools keep is read and written; what does not fit, or lies, is refused in words."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from slotpool import trace
from slotpool.errors import SlotpoolError
from slotpool.trace import dump

IDS = {0: [[2, 0], [1, 2], [2, 3]], 5: [[4, 3], [4, 0], [0, 1]]}
WEIGHTS = np.array([[0.75, 0.25]] * 3, np.float32)


def made(ids: dict[int, list[list[int]]] = IDS, phase: int = trace.GENERATION) -> trace.Trace:
    groups = []
    for layer, rows in ids.items():
        array = np.array(rows, np.int32)
        groups.append(trace.Group(layer, "exps", 6, array.shape[1], array, trace.single_events(array, phase), WEIGHTS[: len(rows)]))
    segments = (trace.Segment(0, "a"), trace.Segment(2, "b"))
    return trace.Trace(trace.Facts("x", 6, 6, 2), tuple(groups), segments)


def loaded(path: Path, **options: int) -> trace.Trace:
    found = trace.load(path, **options)  # type: ignore[arg-type]
    assert isinstance(found, trace.Trace)
    return found


def heat(path: Path) -> dict[tuple[int, str], list[int]]:
    found = trace.load(path)
    assert isinstance(found, trace.Heat)
    return {place: counts.tolist() for place, counts in found.counts.items()}


COUNTS = {(0, "exps"): [1, 1, 3, 1, 0, 0], (5, "exps"): [2, 1, 0, 1, 2, 0]}


def test_heat_counts_rows() -> None:
    assert {place: counts.tolist() for place, counts in trace.heat_of(made()).counts.items()} == COUNTS


@pytest.mark.parametrize("suffix", [".trace", ".npz", ".csv"])
def test_a_trace_goes_out_and_comes_back(tmp_path: Path, suffix: str) -> None:
    trace.save(tmp_path / f"a{suffix}", made())
    found = loaded(tmp_path / f"a{suffix}", **({"n_expert_used": 2, "n_expert": 6} if suffix == ".csv" else {}))
    assert {group.layer: group.ids.tolist() for group in found.groups} == IDS
    assert {(group.n_expert, group.n_expert_used) for group in found.groups} == {(6, 2)}
    assert found.groups[0].events.n_rows.tolist() == [1, 1, 1]
    if suffix != ".csv":
        assert [segment.first_ubatch for segment in found.segments] == [0, 2]
        assert np.array_equal(found.group(5).weights, WEIGHTS)


@pytest.mark.parametrize("suffix", [".counts.csv", ".json"])
def test_heat_goes_out_and_comes_back(tmp_path: Path, suffix: str) -> None:
    trace.save(tmp_path / f"a{suffix}", made())
    assert heat(tmp_path / f"a{suffix}") == COUNTS


def test_the_csv_is_what_others_write(tmp_path: Path) -> None:
    trace.save(tmp_path / "a.csv", made())
    lines = [f"{layer},{expert}" for layer, rows in IDS.items() for row in rows for expert in row]
    assert (tmp_path / "a.csv").read_text().split() == ["layer,expert", *lines]
    (tmp_path / "b.csv").write_text("3,1\n3,0\n")  # no names, no token size
    assert loaded(tmp_path / "b.csv").group(3).ids.tolist() == [[1], [0]]


def test_the_npz_of_others_is_read(tmp_path: Path) -> None:
    """The layout of the gpt-oss-20b trace: no numbers of layers, no number of experts."""
    ids = np.array([[[0, 1], [2, 3]], [[1, 0], [3, 1]], [[2, 0], [1, 2]]], np.uint8)
    probs = np.full(ids.shape, 0.5, np.float16)
    np.savez_compressed(tmp_path / "a.npz", ids=ids, probs=probs, offsets=np.array([0, 2, 3]), meta=np.array([1]))
    found = loaded(tmp_path / "a.npz")
    assert [group.ids.tolist() for group in found.groups] == [ids[:, 0].tolist(), ids[:, 1].tolist()]
    assert found.facts.n_expert == 4
    assert [segment.first_ubatch for segment in found.segments] == [0, 2]
    assert loaded(tmp_path / "a.npz", n_expert=8).group(1).n_expert == 8


def test_heat_maps_of_others_are_read(tmp_path: Path) -> None:
    layers = [{"abs_layer": 3, "moe_order": 0, "heat": [1, 2]}, {"layer": 4, "heat": [0, 5]}, {"heat": [7, 7]}]
    document = {"model": "m", "k": 2, "layers": layers}
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert heat(tmp_path / "a.json") == {(2, "exps"): [7, 7], (3, "exps"): [1, 2], (4, "exps"): [0, 5]}


def test_an_npz_holds_single_tokens_only(tmp_path: Path) -> None:
    group = made().group(0)
    prompt = trace.Group(0, "exps", 6, 2, group.ids, trace.events_of([0], [3], trace.PROMPT))
    with pytest.raises(SlotpoolError, match="one token in every event"):
        trace.save(tmp_path / "a.npz", trace.Trace(trace.Facts(), (prompt,)))
    with pytest.raises(SlotpoolError, match="as many in every layer"):
        trace.save(tmp_path / "a.npz", made({0: IDS[0], 1: IDS[5][:2]}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".csv", ".counts.csv", ".json", ".npz"])
def test_two_passes_do_not_fit_the_formats_of_others(tmp_path: Path, suffix: str) -> None:
    group = made().group(0)
    second = trace.Group(0, "chexps", 6, 2, group.ids, group.events)
    with pytest.raises(SlotpoolError, match="expected one"):
        trace.save(tmp_path / f"a{suffix}", trace.Trace(trace.Facts(), (group, second)))


def test_other_names_and_existing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SlotpoolError, match=r"expected a name that ends in one of \.trace, \.npz"):
        trace.save(tmp_path / "a.txt", made())
    trace.save(tmp_path / "a.json", made())
    with pytest.raises(SlotpoolError, match="--force"):
        trace.save(tmp_path / "a.json", made())
    trace.save(tmp_path / "a.json", made(), force=True)


BAD_TEXT = {
    "nothing": (b"", "expected a trace of 1"),
    "blanks": (b"  \n ", "expected a trace of 1"),
    "a picture": (b"\x89PNG\r\n", "begins otherwise"),
    "words": (b"layer,expert\na,b\n", "whole numbers"),
    "names only": (b"layer,expert\n", "2 or 3 numbers"),
    "one column": (b"1\n2\n", "2 or 3 numbers"),
    "four columns": (b"1,2,3,4\n", "2 or 3 numbers"),
    "lines of their own length": (b"1,2\n1,2,3\n", "whole numbers"),
    "a negative expert": (b"1,-2\n", "experts from 0"),
    "a huge layer": (b"9999999,2\n", "layers from 0"),
    "a number beyond 64 bits": (b"1,99999999999999999999999\n", "whole numbers"),
    "a negative count": (b"1,2,-3\n", "counts from 0"),
    "half a token": (b"0,1\n0,2\n0,3\n", "expected 2 experts for every token, found 3 lines"),
    "no JSON": (b"{", "expected JSON"),
    "deep JSON": (b"[" * 100000, "expected JSON"),
    "a list": (b"[1]", "expected a heat map"),
    "no layers": (b"{}", "expected a heat map"),
    "no heat": (b'{"layers": [{"layer": 1}]}', r'"layers"\[0\]'),
    "a negative heat": (b'{"layers": [{"heat": [-1]}]}', r'"layers"\[0\]'),
    "a boolean layer": (b'{"layers": [{"layer": true, "heat": [1]}]}', r'"layers"\[0\]'),
    "heat of words": (b'{"layers": [{"heat": ["a"]}]}', r'"layers"\[0\]'),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_bad_text_is_refused(tmp_path: Path, name: str) -> None:
    data, words = BAD_TEXT[name]
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(SlotpoolError, match=words):
        trace.load(tmp_path / "a", n_expert_used=2)


def npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


GOOD = np.zeros((3, 2, 1), np.uint8)
BAD_NPZ: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "no ids": ({"a": GOOD}, "no ids"),
    "ids of two dimensions": ({"ids": GOOD[0]}, "no ids of three"),
    "ids of floats": ({"ids": GOOD.astype(float)}, "no ids of three"),
    "no tokens": ({"ids": GOOD[:0]}, "no ids of three"),
    "negative ids": ({"ids": GOOD.astype(np.int32) - 1}, "no expert ids"),
    "huge ids": ({"ids": GOOD.astype(np.int32) + (1 << 30)}, "no expert ids"),
    "more ids a token than experts": ({"ids": np.zeros((3, 2, 4), np.uint8)}, "4 ids a token of 1 experts"),
    "probs of another shape": ({"ids": GOOD, "probs": np.zeros(3)}, "shape of ids"),
    "objects": ({"ids": np.array([[[None]]], object)}, "numbers that it claims"),
    "offsets that end early": ({"ids": GOOD, "offsets": np.array([0, 2])}, "offsets"),
    "offsets backwards": ({"ids": GOOD, "offsets": np.array([0, 2, 1, 3])}, "offsets"),
    "layers twice": ({"ids": GOOD, "layers": np.array([1, 1])}, "layers"),
    "too few layers": ({"ids": GOOD, "layers": np.array([1])}, "layers"),
    "fewer experts than ids": ({"ids": GOOD + 7, "n_expert": np.array([3])}, "ids below 3"),
}


@pytest.mark.parametrize("name", BAD_NPZ)
def test_bad_arrays_are_refused(tmp_path: Path, name: str) -> None:
    arrays, words = BAD_NPZ[name]
    with pytest.raises(SlotpoolError, match=words):
        trace.load(npz(tmp_path / "a.npz", **arrays))


def test_an_array_that_claims_more_than_is_there_is_refused(tmp_path: Path) -> None:
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (1 << 40, 24, 4)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("ids.npy", member.getvalue() + bytes(100))
    with pytest.raises(SlotpoolError, match="does not have the numbers that it claims"):
        trace.load(tmp_path / "a.npz")


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    whole = npz(tmp_path / "a.npz", ids=np.arange(300, dtype=np.uint8)[:120].reshape(20, 3, 2)).read_bytes()
    for length in range(4, len(whole), 7):
        (tmp_path / "b.npz").write_bytes(whole[:length])
        with pytest.raises(SlotpoolError, match="expected an npz"):
            trace.load(tmp_path / "b.npz")


def test_the_dump_has_a_line_for_every_row_in_the_order_of_ubatches() -> None:
    lines = list(dump.lines(made()))
    rows = [line.split("\t") for line in lines if line[0].isdigit()]
    assert [(row[0], row[4], row[7]) for row in rows] == [
        (str(token), str(layer), " ".join(map(str, IDS[layer][token]))) for token in range(3) for layer in IDS
    ]
    assert rows[0] == ["0", "0", "generation", "1", "0", "exps", "0", "2 0", "0.75 0.25"]
    assert "# architecture: x" in lines
    assert lines.index("# segment: b") == lines.index("\t".join(rows[4])) - 1
