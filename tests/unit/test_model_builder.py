"""The tests' own writer of GGUF bytes, honest or not, and the proof that it and the reader agree with the gguf package."""

from __future__ import annotations

import struct
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from slotpool import model
from slotpool.model import TENSOR_TYPES

ALIGNMENT = 32
U16 = 2


class T(NamedTuple):
    """A tensor to write. `offset` None: where it belongs."""

    name: str | bytes
    ne: tuple[int, ...]
    type: int = Kind.F32
    offset: int | None = None

    @property
    def n_bytes(self) -> int:
        kind = TENSOR_TYPES.get(int(self.type))
        return prod(self.ne) // kind.block * kind.block_bytes if kind else 64


class Typed(NamedTuple):
    """A metadata value with the type number and the bytes that are to be written, whatever they mean."""

    type: int
    raw: bytes


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def _plain(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return (4, struct.pack("<I", value)) if 0 <= value < 2**32 else (11, struct.pack("<q", value))
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 8, string(value)


def typed(value: Any) -> Typed:
    if isinstance(value, Typed):
        return value
    if not isinstance(value, list):
        return Typed(*_plain(value))
    parts = [_plain(item) for item in value]
    return Typed(9, struct.pack("<IQ", parts[0][0] if parts else 4, len(parts)) + b"".join(raw for _, raw in parts))


def u16(value: int) -> Typed:
    return Typed(U16, struct.pack("<H", value))


def gguf_bytes(
    keys: dict[str, Any] | list[tuple[str, Any]],
    tensors: list[T],
    *,
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    alignment: int = ALIGNMENT,
) -> bytes:
    """A GGUF file; a tensor's data is its index in the list, repeated. `n_keys` and `n_tensors` are the counts to claim."""
    pairs = list(keys.items()) if isinstance(keys, dict) else keys
    out = b"GGUF" + struct.pack("<I", version)
    out += struct.pack("<QQ", len(tensors) if n_tensors is None else n_tensors, len(pairs) if n_keys is None else n_keys)
    for key, value in pairs:
        kind, raw = typed(value)
        out += string(key) + struct.pack("<I", kind) + raw
    data = b""
    for index, t in enumerate(tensors):
        at = len(data) if t.offset is None else t.offset
        out += string(t.name) + struct.pack(f"<I{len(t.ne)}QIQ", len(t.ne), *t.ne, t.type, at)
        data += bytes([index % 256]) * t.n_bytes
        data += bytes(-len(data) % alignment)
    return out + bytes(-len(out) % alignment) + data


def moe_keys(arch: str = "qwen3moe", *, n_layer: int = 2, n_expert: int = 4, n_used: Any = 2, **more: Any) -> dict[str, Any]:
    return {
        "general.architecture": arch,
        f"{arch}.block_count": n_layer,
        f"{arch}.expert_count": n_expert,
        f"{arch}.expert_used_count": n_used,
        **more,
    }


def layer(n: int, *, n_expert: int = 4, kind: int = Kind.F32, n_in: int = 32, n_ff: int = 64) -> list[T]:
    """The tensors of one MoE layer: norm, router, gate, up, down."""
    return [
        T(f"blk.{n}.ffn_norm.weight", (n_in,)),
        T(f"blk.{n}.ffn_gate_inp.weight", (n_in, n_expert)),
        T(f"blk.{n}.ffn_gate_exps.weight", (n_in, n_ff, n_expert), kind),
        T(f"blk.{n}.ffn_up_exps.weight", (n_in, n_ff, n_expert), kind),
        T(f"blk.{n}.ffn_down_exps.weight", (n_ff, n_in, n_expert), kind),
    ]


def moe_tensors(n_layer: int = 2, **more: Any) -> list[T]:
    return [T("token_embd.weight", (32, 8)), *(t for n in range(n_layer) for t in layer(n, **more))]


def moe_bytes() -> bytes:
    return gguf_bytes(moe_keys(), moe_tensors())


def write(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


def shard_files(folder: Path, parts: list[list[T]], *, stem: str = "m", claim: int | None = None) -> list[Path]:
    """Writes a sharded model, one file per list of tensors: all metadata in the first, split keys in each."""
    total = sum(map(len, parts))
    paths = []
    for i, tensors in enumerate(parts):
        split = {"split.no": u16(i), "split.count": u16(len(parts)), "split.tensors.count": Typed(5, struct.pack("<i", claim or total))}
        keys = {**(moe_keys() if i == 0 else {}), **split}
        paths.append(write(folder / f"{stem}-{i + 1:05d}-of-{len(parts):05d}.gguf", gguf_bytes(keys, tensors)))
    return paths


def test_reader_finds_what_the_gguf_package_wrote(tmp_path: Path) -> None:
    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "olmoe")
    writer.add_block_count(1)
    writer.add_expert_count(3)
    writer.add_expert_used_count(2)
    writer.add_token_list(["a", "bb"] * 5000)
    arrays = {"blk.0.ffn_up_exps.weight": np.zeros((3, 4, 8), np.float16), "output.weight": np.ones((5, 8), np.float32)}
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    facts = model.read(path)
    assert facts.problems == ()
    assert (facts.architecture, facts.n_layer, facts.n_expert, facts.n_expert_used) == ("olmoe", 1, 3, 2)
    assert [(e.name, e.ne, e.type, e.slab_bytes) for e in facts.experts] == [("blk.0.ffn_up_exps.weight", (8, 4, 3, 1), "F16", 64)]
    assert (facts.expert_bytes, facts.other_bytes) == (192, 160)
    assert facts.files[0].skipped == {"tokenizer.ggml.tokens": 10000}


@pytest.mark.parametrize("kind", list(gguf.GGML_QUANT_SIZES), ids=lambda kind: kind.name)
def test_reader_and_gguf_reader_agree_on_every_type(tmp_path: Path, kind: Kind) -> None:
    block = gguf.GGML_QUANT_SIZES[kind][0]
    path = write(tmp_path / "m.gguf", gguf_bytes(moe_keys(), [T("blk.0.ffn_up_exps.weight", (2 * block, 3, 4), kind), T("after", (7,))]))
    ours = model.read_gguf(path).tensors
    theirs = gguf.GGUFReader(path).tensors
    assert [(t.name, t.type, t.offset, t.n_bytes) for t in ours] == [(t.name, t.tensor_type.name, t.data_offset, t.n_bytes) for t in theirs]
    assert ours[0].slab_bytes == theirs[0].n_bytes // 4


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_that_llama_cpp_reads_are_read(tmp_path: Path, version: int) -> None:
    facts = model.read(write(tmp_path / "m.gguf", gguf_bytes(moe_keys(), moe_tensors(), version=version)))
    assert (facts.problems, facts.files[0].version, len(facts.experts)) == ((), version, 6)
