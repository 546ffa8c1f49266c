"""Damage becomes a problem in words: which tensor, what was expected, what was found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Kind

from slotpool import model
from slotpool.errors import MISUSED, SlotpoolError
from tests.unit.test_model_builder import T, Typed, gguf_bytes, layer, moe_bytes, moe_keys, moe_tensors, u16, write

UP = "blk.0.ffn_up_exps.weight"


def problems(tmp_path: Path, keys: Any, tensors: list[T], **more: Any) -> tuple[str, ...]:
    return model.read(write(tmp_path / "m.gguf", gguf_bytes(keys, tensors, **more))).problems


def moved(n: int, offset: int) -> list[T]:
    tensors = moe_tensors()
    tensors[n] = tensors[n]._replace(offset=offset)
    return tensors


def test_cut_inside_a_slab_names_the_tensor_and_the_missing_bytes(tmp_path: Path) -> None:
    raw = moe_bytes()
    (found,) = model.read(write(tmp_path / "m.gguf", raw[:-100])).problems
    assert found.startswith(f"truncated: blk.1.ffn_down_exps.weight lacks 100 of its {4 * 32 * 64 * 4} bytes")
    assert str(len(raw)) in found
    assert str(len(raw) - 100) in found


def test_every_tensor_past_the_cut_is_counted(tmp_path: Path) -> None:
    whole = model.read(write(tmp_path / "m.gguf", moe_bytes()))
    found = model.read(write(tmp_path / "m.gguf", moe_bytes()[: whole.files[0].data_offset + 10])).problems
    assert len(found) == 6
    assert found[0].startswith("truncated: token_embd.weight lacks 1014 of its 1024 bytes")
    assert found[1].startswith("truncated: blk.0.ffn_norm.weight lacks 128 of its 128 bytes")
    assert found[5] == "... and 6 more like this (truncated)"


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (moved(3, 1024 + 128 + 512 + 8), rf"^{UP.replace('up', 'gate')} is misaligned: byte \d+ is no multiple of 32$"),
        (moved(4, 1024 + 128 + 512 + 64), rf"^{UP} and blk.0.ffn_gate_exps.weight overlap in 32704 bytes$"),
        (moved(4, 1024 + 128 + 512), rf"^{UP} and blk.0.ffn_gate_exps.weight overlap in 32768 bytes$"),
        (moved(0, 32), r"^blk.0.ffn_norm.weight and token_embd.weight overlap in 32 bytes$"),
        ([*moe_tensors(), T("late", (8,), offset=2**62)], r"^truncated: late lacks 32 of its 32 bytes .* the tensor at 46116\d+\)"),
        ([*moe_tensors(), T("late", (8,), offset=2**64 - 32)], r"^truncated: late lacks 32 of its 32 bytes"),
        ([T("a", (8,), offset=32), T("b", (8,), offset=64), T("c", (8,), offset=96)], r"^a lies at byte \d+, llama.cpp expects it at \d+$"),
        ([T("a", (8,), offset=32), T("b", (8,), offset=0)], r"^b lies at byte \d+, llama.cpp expects it at \d+$"),
        ([T("a", (8,)), T("a", (8,))], r'^the tensor name "a" is there twice'),
        ([T(UP, (33, 2, 4), Kind.Q8_0)], rf"^{UP} has rows of 33 elements, expected a multiple of 32 for Q8_0$"),
        ([T(UP, (32, 2, 4), 31)], rf"^{UP} has the unknown type 31, which llama.cpp cannot read$"),
        ([T(UP, (32, 2, 4), 2**32 - 1)], rf"^{UP} has the unknown type 4294967295"),
        ([T(UP, (32, 2, 4, 2))], r"^blk.0.ffn_up_exps.weight has the shape \[32, 2, 4, 2\], expected three dimensions$"),
        ([T("n" * 64, (8,))], r"^tensor \"n{64}\" has a name of more than 63 bytes$"),
        ([*layer(0)[:4], T("blk.0.ffn_down_exps.weight", (64, 32, 3))], r"^the expert tensors of layer 0 disagree .*gate 4, up 4, down 3"),
        (layer(0, n_expert=5), r"^blk.0.ffn_gate_exps.weight has 5 experts, qwen3moe.expert_count says 4$"),
    ],
)
def test_bad_tensor_is_named(tmp_path: Path, tensors: list[T], expected: str) -> None:
    found = problems(tmp_path, moe_keys(), tensors)
    assert any(re.search(expected, text) for text in found), found


@pytest.mark.parametrize("ne", [(2**63, 1), (2**40, 2**40), (2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1)])
def test_impossible_shape_is_named(tmp_path: Path, ne: tuple[int, ...]) -> None:
    raw = gguf_bytes(moe_keys(), [T(UP, (1,) * len(ne))])
    one, huge = b"".join(b"\x01" + bytes(7) for _ in ne), b"".join(n.to_bytes(8, "little") for n in ne)
    assert raw.count(one) == 1
    found = model.read(write(tmp_path / "m.gguf", raw.replace(one, huge))).problems
    assert found[0] == f"{UP} has the impossible shape {[*ne, *[1] * (4 - len(ne))]}"


def test_one_misplaced_tensor_does_not_blame_the_rest(tmp_path: Path) -> None:
    tensors = [T(name, (8,), offset=32 + 32 * i) for i, name in enumerate("abcd")]
    found = model.read(write(tmp_path / "m.gguf", gguf_bytes(moe_keys(), tensors) + bytes(32))).problems
    assert [text[:12] for text in found] == ["a lies at by"]


def test_overlaps_are_told_once_and_against_the_tensor_that_reaches_furthest(tmp_path: Path) -> None:
    tensors = [T("a", (256,)), T("b", (8,), offset=64), T("c", (8,), offset=512), T("d", (8,), offset=1024)]
    assert problems(tmp_path, moe_keys(), tensors) == ("b and a overlap in 32 bytes", "c and a overlap in 32 bytes")
    tensors = [T("a", (256,)), T("b", (8,)), T("c", (8,), offset=512)]
    assert problems(tmp_path, moe_keys(), tensors) == ("c and a overlap in 32 bytes",)


def test_tensor_of_unknown_type_does_not_blame_its_neighbour(tmp_path: Path) -> None:
    assert len(problems(tmp_path, moe_keys(), [T("a", (8,)), T("b", (8,), 31), T("c", (8,))])) == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"qwen3moe.expert_used_count": 5}, "qwen3moe.expert_used_count is 5, more than the 4 of qwen3moe.expert_count"),
        ({"qwen3moe.expert_used_count": [2, 5]}, "qwen3moe.expert_used_count is 5, more than the 4 of qwen3moe.expert_count"),
        ({"qwen3moe.expert_used_count": 0}, "blk.0.ffn_gate_exps.weight holds experts, but qwen3moe.expert_used_count is missing or 0"),
        ({"qwen3moe.expert_count": "4"}, "blk.0.ffn_gate_exps.weight holds experts, but qwen3moe.expert_count is missing or 0"),
        ({"qwen3moe.block_count": True}, "blk.0.ffn_gate_exps.weight holds experts, but qwen3moe.block_count is missing or 0"),
        ({"general.alignment": 0}, 'expected a power of two in general.alignment, found "0"'),
        ({"general.alignment": 48}, 'expected a power of two in general.alignment, found "48"'),
        ({"general.alignment": "x"}, 'expected a power of two in general.alignment, found "x"'),
        ({"general.architecture": 7}, "expected a name in general.architecture, found none"),
        ({"": 7}, "metadata key 5 of 5 has no name, which llama.cpp refuses"),
        ({"split.count": -3}, "split.count is -3, expected 1 to 65535"),
        ({"split.count": u16(3), "split.no": u16(1)}, "m.gguf is shard 2 of 3, expected a name that ends in -00002-of-00003.gguf"),
    ],
)
def test_bad_metadata_is_named(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    found = problems(tmp_path, moe_keys() | change, moe_tensors())
    assert any(text.startswith(expected) for text in found), found


def test_key_that_is_there_twice_is_named_and_the_first_counts(tmp_path: Path) -> None:
    pairs = [*moe_keys().items(), ("qwen3moe.expert_count", 9)]
    facts = model.read(write(tmp_path / "m.gguf", gguf_bytes(pairs, moe_tensors())))
    assert facts.n_expert == 4
    assert facts.problems == ('the metadata key "qwen3moe.expert_count" is there twice, which llama.cpp refuses',)


def test_key_that_is_there_twice_is_named_even_when_it_is_too_big_to_keep(tmp_path: Path) -> None:
    pairs = [*moe_keys().items(), ("big", [1] * 5000), ("big", [1] * 5000)]
    facts = model.read(write(tmp_path / "m.gguf", gguf_bytes(pairs, moe_tensors())))
    assert facts.problems == ('the metadata key "big" is there twice, which llama.cpp refuses',)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Typed(9, (9).to_bytes(4, "little") + (1).to_bytes(8, "little")), "is an array of arrays, which llama.cpp cannot read"),
        (Typed(9, (8).to_bytes(4, "little") + (2**20).to_bytes(8, "little")), "claims 1048576 strings, more than the file can hold"),
        (Typed(13, b"1234"), "has the unknown value type 13 (valid: 0 to 12)"),
        (Typed(9, (99).to_bytes(4, "little") + (1).to_bytes(8, "little")), "has the unknown value type 99 (valid: 0 to 12)"),
    ],
)
def test_bad_value_ends_the_walk_with_its_key(tmp_path: Path, value: Typed, expected: str) -> None:
    facts = model.read(write(tmp_path / "m.gguf", gguf_bytes(moe_keys() | {"odd": value}, moe_tensors())))
    (found,) = facts.problems
    assert found.startswith(f'the value of "odd" (metadata key 5 of 5) {expected}')
    assert (facts.architecture, facts.n_expert, facts.experts) == ("qwen3moe", 4, ())


def test_layout_of_2023_is_called_by_its_name(tmp_path: Path) -> None:
    single = [T(f"blk.0.ffn_{role}.{n}.weight", (32, 64)) for n in range(4) for role in ("gate", "up", "down")]
    keys = moe_keys("llama", n_layer=1)
    (found,) = problems(tmp_path, keys, [T("blk.0.ffn_gate_inp.weight", (32, 4)), *single])
    assert found.startswith("legacy per-expert layout, current llama.cpp cannot load it (12 tensors, blk.0.ffn_down.0.weight the first)")
    assert "convert_hf_to_gguf.py" in found


def test_control_characters_of_a_file_never_reach_the_message(tmp_path: Path) -> None:
    evil = "\x1b[31m\n\u202e"
    tensors = [T(evil, (8,)), T(evil, (8,)), *moe_tensors()]
    found = problems(tmp_path, moe_keys(evil, n_used=9) | {evil + "x": Typed(13, b"")}, tensors)
    found += problems(tmp_path, moe_keys(evil, n_used=9), tensors)
    assert len(found) >= 3
    assert all(text.isprintable() for text in found)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"", "found an empty file"),
        (b"GG", 'found a file that begins with "GG"'),
        (b"\x1b[2J", r'found a file that begins with "\x1b[2J"'),
        (b"PK\x03\x04....", "found a zip archive"),
        (b"version https://git-lfs.github.com/spec/v1", "found perhaps a Git LFS pointer"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(16), "expected GGUF version 2 or 3, found GGUF version 1"),
        (b"GGUF" + (4).to_bytes(4, "little") + bytes(16), "found GGUF version 4"),
        (b"GGUF" + bytes(4) + bytes(16), "found GGUF version 0"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(16), "found a big-endian GGUF"),
    ],
)
def test_what_is_no_gguf_is_refused(tmp_path: Path, raw: bytes, found: str) -> None:
    path = write(tmp_path / "m.gguf", raw)
    with pytest.raises(SlotpoolError, match=re.escape(found)) as caught:
        model.read(path)
    assert (caught.value.exit_code, str(path) in str(caught.value)) == (MISUSED, True)
