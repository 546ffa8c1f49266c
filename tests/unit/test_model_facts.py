"""What `model.read` says about whole files: roles, sizes, places, counts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Kind

from slotpool import model
from slotpool.model import ROLES, Model
from slotpool.model.experts import block_number, expert_place, is_single_expert
from tests.unit.test_model_builder import T, Typed, gguf_bytes, layer, moe_bytes, moe_keys, moe_tensors, string, write


def read(tmp_path: Path, keys: Any, tensors: list[T]) -> Model:
    return model.read(write(tmp_path / "m.gguf", gguf_bytes(keys, tensors)))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("blk.0.ffn_gate_exps.weight", (0, "gate")),
        ("blk.12.ffn_up_exps.weight", (12, "up")),
        ("blk.3.ffn_down_exps.weight", (3, "down")),
        ("blk.3.ffn_gate_up_exps.weight", (3, "gate_up")),
        ("blk.3.ffn_gate_chexps.weight", (3, "gate_ch")),
        ("blk.3.ffn_up_chexps.weight", (3, "up_ch")),
        ("blk.61.ffn_down_chexps.weight", (61, "down_ch")),
        ("blk.3.ffn_gate_up_chexps.weight", None),
        ("blk.3.ffn_up_exps.bias", None),
        ("blk.3.ffn_up_exps.scale", None),
        ("blk.3.ffn_up_exps.input_scale", None),
        ("blk.3.ffn_up_exps.weight.lora_a", None),
        ("blk.3.ffn_up_exps.weight\n", None),
        ("blk.3.ffn_norm_exps.weight", None),
        ("blk.3.ffn_gate_inp.weight", None),
        ("blk.3.ffn_up_shexp.weight", None),
        ("blk.3.ffn_gate_inp_shexp.weight", None),
        ("blk.3.exp_probs_b.bias", None),
        ("blk.3.ffn_gate_tid2eid.weight", None),
        ("blk.3.ffn_gate.0.weight", None),
        ("v.blk.3.ffn_up_exps.weight", None),
        ("blk.03.ffn_up_exps.weight", None),
        ("blk.٣.ffn_up_exps.weight", None),
        ("blk.99999999999999999999.ffn_up_exps.weight", None),
    ],
)
def test_expert_tensor_is_told_by_its_exact_name(name: str, place: tuple[int, str] | None) -> None:
    assert expert_place(name) == place
    assert place is None or place[1] in ROLES


@pytest.mark.parametrize(("name", "is_single"), [("blk.0.ffn_gate.0.weight", True), ("blk.0.ffn_gate.weight", False)])
def test_layout_of_2023_is_told_by_its_name(name: str, is_single: bool) -> None:
    assert is_single_expert(name) is is_single


@pytest.mark.parametrize(("name", "number"), [("blk.7.x", 7), ("v.blk.7.x", None), ("output.weight", None), ("blk.7\n.x", None)])
def test_block_number_is_that_of_the_language_model(name: str, number: int | None) -> None:
    assert block_number(name) == number


def test_expert_tensors_carry_place_and_sizes(tmp_path: Path) -> None:
    facts = read(tmp_path, moe_keys(), moe_tensors())
    raw = facts.files[0].path.read_bytes()
    assert (facts.architecture, facts.n_layer, facts.n_expert, facts.n_expert_used) == ("qwen3moe", 2, 4, 2)
    assert [e.role for e in facts.experts] == ["gate", "up", "down"] * 2
    for index, expert in zip([3, 4, 5, 8, 9, 10], facts.experts, strict=True):
        assert expert.slab_bytes == 32 * 64 * 4
        assert raw[expert.offset : expert.offset + expert.n_bytes] == bytes([index]) * (4 * expert.slab_bytes)
    assert facts.expert_bytes == 6 * 4 * 32 * 64 * 4
    assert facts.other_bytes == sum(t.n_bytes for t in moe_tensors()) - facts.expert_bytes
    assert facts.problems == ()


def test_types_may_differ_between_tensors_and_layers(tmp_path: Path) -> None:
    # MXFP4 by its number: older gguf packages do not name it
    kinds = {"Q4_K": Kind.Q4_K, "Q5_K": Kind.Q5_K, "Q6_K": Kind.Q6_K, "Q8_0": Kind.Q8_0, "MXFP4": 39, "BF16": Kind.BF16}
    names = [f"blk.{n}.ffn_{role}_exps.weight" for n in range(2) for role in ("gate", "up", "down")]
    facts = read(tmp_path, moe_keys(), [T(name, (256, 8, 4), kind) for name, kind in zip(names, kinds.values(), strict=True)])
    assert facts.problems == ()
    assert [e.type for e in facts.experts] == list(kinds)
    assert [e.slab_bytes for e in facts.experts] == [8 * 144, 8 * 176, 8 * 210, 8 * 8 * 34, 8 * 8 * 17, 8 * 512]
    assert facts.expert_bytes == sum(4 * e.slab_bytes for e in facts.experts)


def test_type_newer_than_the_gguf_package_is_known(tmp_path: Path) -> None:
    facts = read(tmp_path, moe_keys(), [T("blk.0.ffn_up_exps.weight", (128, 2, 4), 42)])
    assert (facts.problems, facts.experts[0].type, facts.experts[0].slab_bytes) == ((), "Q2_0", 2 * 2 * 18)


def test_fused_and_separate_weigh_the_same(tmp_path: Path) -> None:
    separate = read(tmp_path, moe_keys(n_layer=1), layer(0))
    kept = [t for t in layer(0) if "gate_exps" not in str(t.name) and "up_exps" not in str(t.name)]
    fused = read(tmp_path, moe_keys(n_layer=1), [*kept, T("blk.0.ffn_gate_up_exps.weight", (32, 128, 4))])
    assert fused.expert_bytes == separate.expert_bytes
    assert sorted(e.role for e in fused.experts) == ["down", "gate_up"]


def test_layer_of_six_expert_tensors_is_listed_whole(tmp_path: Path) -> None:
    chunks = [T(f"blk.0.ffn_{role}_chexps.weight", (32, 32, 2)) for role in ("gate", "up", "down")]
    facts = read(tmp_path, moe_keys("grovemoe", n_layer=1), layer(0) + chunks)
    assert facts.problems == ()
    assert {e.role: e.n_expert for e in facts.layers[0]} == dict.fromkeys(("gate", "up", "down"), 4) | dict.fromkeys(ROLES[-3:], 2)
    assert facts.n_expert == 4


def test_blocks_past_the_trunk_stay_listed(tmp_path: Path) -> None:
    facts = read(tmp_path, moe_keys(n_layer=2, **{"qwen3moe.nextn_predict_layers": 1}), moe_tensors(3))
    assert (sorted(facts.layers), facts.problems) == ([0, 1, 2], ())


def test_dense_model_has_no_experts_and_no_problem(tmp_path: Path) -> None:
    keys = {"general.architecture": "llama", "llama.block_count": 1}
    facts = read(tmp_path, keys, [T("blk.0.ffn_up.weight", (32, 64)), T("blk.0.ffn_down.weight", (64, 32))])
    assert (facts.n_layer, facts.n_expert, facts.n_expert_used, facts.experts, facts.problems) == (1, 0, 0, (), ())
    assert (facts.expert_bytes, facts.other_bytes, facts.layers) == (0, 2 * 64 * 32 * 4, {})


def test_moe_model_without_dense_feed_forward_is_fine(tmp_path: Path) -> None:
    assert read(tmp_path, moe_keys(), [t for n in range(2) for t in layer(n)]).problems == ()


def test_biases_and_scales_count_as_other_bytes(tmp_path: Path) -> None:
    extra = [T("blk.0.ffn_up_exps.bias", (64, 4)), T("blk.0.ffn_up_exps.scale", (4,)), T("blk.0.ffn_norm_exps.weight", (32,))]
    plain = read(tmp_path, moe_keys(), moe_tensors())
    facts = read(tmp_path, moe_keys(), moe_tensors() + extra)
    assert [e.name for e in facts.experts] == [e.name for e in plain.experts]
    assert facts.expert_bytes == plain.expert_bytes
    assert facts.other_bytes == plain.other_bytes + (64 * 4 + 4 + 32) * 4


@pytest.mark.parametrize(("used", "expected"), [(2, 2), ([0, 2, 3], 3)], ids=["scalar", "per layer"])
def test_experts_used_may_be_one_number_or_one_per_layer(tmp_path: Path, used: Any, expected: int) -> None:
    facts = read(tmp_path, moe_keys(n_layer=3, n_used=used), moe_tensors())
    assert (facts.n_expert_used, facts.problems) == (expected, ())


def test_layers_of_a_file_without_block_count_come_from_the_names(tmp_path: Path) -> None:
    facts = read(tmp_path, {"general.architecture": "llama", "general.type": "adapter"}, [T("blk.4.attn_q.weight.lora_a", (32, 4))])
    assert (facts.n_layer, facts.problems) == (5, ())


def test_file_without_tensors_is_fine(tmp_path: Path) -> None:
    assert read(tmp_path, moe_keys(), []).problems == ()


def test_big_arrays_are_kept_only_when_asked_for(tmp_path: Path) -> None:
    tokens = [f"token {n}" for n in range(5000)]
    keys = moe_keys(**{"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [0.5] * 5000, "small": [1, 2], "last": "x"})
    path = write(tmp_path / "m.gguf", gguf_bytes(keys, moe_tensors()))
    plain, asked = model.read_gguf(path), model.read_gguf(path, keep=["tokenizer.ggml.tokens"])
    assert plain.skipped == {"tokenizer.ggml.tokens": 5000, "tokenizer.ggml.scores": 5000}
    assert (plain.metadata["small"], plain.metadata["last"]) == ((1, 2), "x")
    assert asked.metadata["tokenizer.ggml.tokens"] == tuple(tokens)
    assert plain.tensors == asked.tensors


@pytest.mark.parametrize("before", range((1 << 20) - 1000, (1 << 20) + 100, 61))
def test_values_across_the_edge_of_a_read_come_out_whole(tmp_path: Path, before: int) -> None:
    tokens = [f"token {n}" for n in range(100)]
    keys = {"before": "x" * before, "tokens": tokens, "numbers": list(range(50)), "text": "y" * 99}
    facts = model.read_gguf(write(tmp_path / "m.gguf", gguf_bytes(keys, moe_tensors())), keep=["before"])
    assert dict(facts.metadata) == keys | {"tokens": tuple(tokens), "numbers": tuple(range(50))}
    assert [t.name for t in facts.tensors] == [t.name for t in moe_tensors()]


def test_long_string_is_stepped_over(tmp_path: Path) -> None:
    facts = model.read_gguf(write(tmp_path / "m.gguf", gguf_bytes({"long": "x" * (2 << 20), "short": "y"}, moe_tensors())))
    assert (facts.skipped, facts.metadata) == ({"long": 2 << 20}, {"short": "y"})
    assert len(facts.tensors) == len(moe_tensors())


def test_every_kind_of_scalar_is_read(tmp_path: Path) -> None:
    raw = {"u8": (0, b"\xff"), "i8": (1, b"\xff"), "i16": (3, b"\xfe\xff"), "u64": (10, b"\xff" * 8), "f64": (12, bytes(8))}
    keys = {key: Typed(*value) for key, value in raw.items()} | {"yes": True, "neg": -5, "half": 0.5, "bad": Typed(8, string(b"a\xff"))}
    facts = model.read_gguf(write(tmp_path / "m.gguf", gguf_bytes(keys, [])))
    expected = {"u8": 255, "i8": -1, "i16": -2, "u64": 2**64 - 1, "f64": 0.0, "yes": True, "neg": -5, "half": 0.5, "bad": "a\\xff"}
    assert dict(facts.metadata) == expected


def test_custom_alignment_is_used(tmp_path: Path) -> None:
    keys = moe_keys(**{"general.alignment": 256})
    facts = model.read(write(tmp_path / "m.gguf", gguf_bytes(keys, moe_tensors(), alignment=256)))
    assert (facts.problems, facts.files[0].alignment, facts.files[0].data_offset % 256) == ((), 256, 0)


def test_facts_cannot_be_changed(tmp_path: Path) -> None:
    facts = model.read(write(tmp_path / "m.gguf", moe_bytes()))
    for thing in (facts, facts.files[0], facts.experts[0], facts.files[0].tensors[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            thing.path = "x"  # type: ignore[misc, union-attr]
    with pytest.raises(TypeError):
        facts.metadata["x"] = 1  # type: ignore[index]
