"""An imatrix as a profile: counts of experts as llama-imatrix writes them, and every way in which such a file can be bad."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from numpy.typing import NDArray

from slotpool import profile
from slotpool.errors import SlotpoolError

Counts = Mapping[str, NDArray[np.generic]]
GATE, DOWN = "blk.3.ffn_gate_exps.weight", "blk.3.ffn_down_exps.weight"


def imatrix(path: Path, counts: Counts) -> Path:
    """As llama-imatrix writes it: `NAME.in_sum2` [columns, experts] and `NAME.counts` [1, experts] of each tensor."""
    writer = GGUFWriter(path, "imatrix-test")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["wiki.txt"])
    for name, values in counts.items():
        writer.add_tensor(f"{name}.in_sum2", np.zeros((values.size, 4), np.float32))
        writer.add_tensor(f"{name}.counts", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def column(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32).reshape(-1, 1)


def test_counts_of_experts_are_read_by_layer(tmp_path: Path) -> None:
    counts = {GATE: column(5, 0, 9), DOWN: column(5, 0, 9), "blk.0.attn_q.weight": column(99), "blk.4.ffn_up_chexps.weight": column(1, 2)}
    found = profile.read(imatrix(tmp_path / "m", counts))
    assert [(one.layer, one.pass_, one.n_expert, one.experts, one.rows) for one in found.groups] == [
        (3, "exps", 3, (2, 0), (9, 5)),
        (4, "chexps", 2, (1, 0), (2, 1)),
    ]
    assert found.facts.fingerprint == ""


BAD = {
    "no experts": ({"blk.0.attn_q.weight": column(9)}, "expected an imatrix with counts of experts"),
    "nothing counted": ({GATE: column(0, 0)}, "expected an imatrix with counts of experts"),
    "one count for all": ({GATE: column(9)}, "expected 2 to 65536 counts"),
    "halves": ({GATE: column(1, 2).astype(np.float16)}, "expected 2 to 65536 counts"),
    "a matrix": ({GATE: np.ones((2, 2), np.float32)}, "expected 2 to 65536 counts"),
    "too many": ({GATE: np.ones((65537, 1), np.float32)}, "expected 2 to 65536 counts"),
    "not a number": ({GATE: column(1, float("nan"))}, "expected counts from 0"),
    "without end": ({GATE: column(1, float("inf"))}, "expected counts from 0"),
    "negative": ({GATE: column(1, -1)}, "expected counts from 0"),
    "other numbers in the same layer": ({GATE: column(1, 2), DOWN: column(1, 2, 3)}, "expected 2 counts"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_counts_are_refused_in_words(tmp_path: Path, name: str) -> None:
    counts, said = BAD[name]
    with pytest.raises(SlotpoolError, match=said):
        profile.read(imatrix(tmp_path / "m", counts))


@pytest.mark.parametrize("n_kept", [4, 30, 200, 300, 500])
def test_a_cut_file_is_refused_in_words(tmp_path: Path, n_kept: int) -> None:
    path = imatrix(tmp_path / "m", {GATE: column(*range(1, 100))})
    path.write_bytes(path.read_bytes()[:n_kept])
    with pytest.raises(SlotpoolError, match=r"truncated|ends inside"):
        profile.read(path)


def test_a_count_past_the_end_is_refused(tmp_path: Path) -> None:
    path = imatrix(tmp_path / "m", {GATE: column(1, 2)})
    data = bytearray(path.read_bytes())
    at = data.index(f"{GATE}.counts".encode()) + len(f"{GATE}.counts") + 4 + 16 + 4
    struct.pack_into("<Q", data, at, 1 << 62)
    path.write_bytes(data)
    with pytest.raises(SlotpoolError, match="ends inside"):
        profile.read(path)


def test_the_format_before_gguf_has_no_counts_and_says_so(tmp_path: Path) -> None:
    name = GATE.encode()
    path = tmp_path / "old.dat"
    path.write_bytes(struct.pack("<ii", 1, len(name)) + name + struct.pack("<ii4f", 1, 4, 1, 2, 3, 4))
    with pytest.raises(SlotpoolError, match="the format before GGUF, which has none"):
        profile.read(path)
