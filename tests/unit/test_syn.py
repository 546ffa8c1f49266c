"""SYN does what it says: its files load, its experts differ, its routing is what it promised. Judged by plain llama.cpp and gguf."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from gguf import GGUFReader
from gguf.quants import dequantize

from testkit import syn
from testkit.syn.blocks import MAX_POOL_BYTES, format_of, random_blocks
from testkit.syn.model import tensors_of
from testkit.syn.observe import observe
from testkit.syn.write import pools_of

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 200, 35]
TYPES = sorted(syn.FORMATS)
FUSING = [name for name, arch in syn.ARCHS.items() if arch.can_fuse]


def tiny(arch: str = "qwen3moe", **changes: Any) -> syn.Spec:
    """Three layers (or as few as the architecture takes), twelve experts, three of them used."""
    n_layer = max(3, syn.ARCHS[arch].min_layers if arch in syn.ARCHS else 0)
    return syn.Spec(arch=arch, **{"n_layer": n_layer, "n_expert": 12, "n_expert_used": 3, **changes})


def logits_of(path: Path) -> np.ndarray:
    """Logits of TOKENS as one batch and of one more token, [11, n_vocab]."""
    with observe(path) as session:
        return np.concatenate([session.decode(TOKENS), session.decode([7])])


def assert_alive(logits: np.ndarray) -> None:
    """Finite, and dependent on the token; the standard deviation that SYN aims at is 3."""
    assert np.isfinite(logits).all()
    assert 1 < logits.std() < 9
    assert logits.std(axis=0).mean() > 1


def slabs(tensor: Any) -> list[bytes]:
    """The bytes of each expert of a tensor read by gguf."""
    return [np.ascontiguousarray(expert).tobytes() for expert in tensor.data]


def expert_tensors(*paths: Path) -> dict[str, Any]:
    return {t.name: t for path in paths for t in GGUFReader(path).tensors if re.search(r"_(ch)?exps\.weight$", t.name)}


def passes(arch: str) -> int:
    return 2 if arch == "grovemoe" else 1


def random_trace(n_tokens: int, spec: syn.Spec, seed: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shape = (n_tokens, len(syn.moe_layers(spec)), spec.n_expert)
    return rng.permuted(np.broadcast_to(np.arange(spec.n_expert), shape), axis=2)[..., : spec.n_expert_used].astype(np.uint8)


@pytest.mark.parametrize("arch", syn.ARCHS)
def test_every_architecture_loads_and_decodes(arch: str, tmp_path: Path) -> None:
    spec = tiny(arch)
    with observe(syn.write(spec, tmp_path / "m.gguf")) as session:
        assert_alive(session.decode(TOKENS))
        assert {event.layer for event in session.events} == set(syn.moe_layers(spec))
        assert all(event.ids.shape == (len(TOKENS), 3) for event in session.events)


@pytest.mark.parametrize("arch", syn.ARCHS)
def test_the_fewest_layers_of_an_architecture_load(arch: str, tmp_path: Path) -> None:
    assert_alive(logits_of(syn.write(tiny(arch, n_layer=syn.ARCHS[arch].min_layers), tmp_path / "m.gguf")))


@pytest.mark.parametrize("arch", ["glm4moe", "deepseek2", "mistral4", "cohere2moe"])
def test_leading_dense_layers_have_no_experts(arch: str, tmp_path: Path) -> None:
    path = syn.write(tiny(arch, dense_lead=2, shared=1), tmp_path / "m.gguf")
    assert_alive(logits_of(path))
    assert all(name.startswith("blk.2.") for name in expert_tensors(path))


@pytest.mark.parametrize("changes", [{"arch": "llama"}, {"arch": "nemotron_h_moe", "gate": True}])
def test_without_a_gate_there_are_two_tensors_per_layer(changes: dict[str, Any], tmp_path: Path) -> None:
    spec = tiny(**{"gate": False, **changes})
    path = syn.write(spec, tmp_path / "m.gguf")
    assert_alive(logits_of(path))
    assert len(expert_tensors(path)) == 2 * len(syn.moe_layers(spec))


def test_grovemoe_has_six_expert_tensors_in_two_id_spaces(tmp_path: Path) -> None:
    tensors = expert_tensors(syn.write(tiny("grovemoe", experts_per_group=4), tmp_path / "m.gguf"))
    counts = sorted((name.split("_")[-1], int(t.shape[2])) for name, t in tensors.items() if name.startswith("blk.0."))
    assert counts == [("chexps.weight", 3)] * 3 + [("exps.weight", 12)] * 3


def test_gpt_oss_biases_are_large_distinct_and_felt(tmp_path: Path) -> None:
    with_bias, without = (syn.write(tiny("gpt-oss", bias=bias), tmp_path / f"{bias}.gguf") for bias in (True, False))
    biases = {t.name: t.data for t in GGUFReader(with_bias).tensors if t.name.endswith("exps.bias")}
    assert len(biases) == 9
    for name, bias in biases.items():
        assert np.abs(bias).max() > (0.5 if "down" in name else 3.5)
        assert len(np.unique(bias)) == bias.size
    assert not np.allclose(logits_of(with_bias), logits_of(without), atol=0.1)


@pytest.mark.parametrize("arch", [name for name, arch in syn.ARCHS.items() if arch.scales])
def test_scales_span_two_decades_and_are_felt(arch: str, tmp_path: Path) -> None:
    scaled, unscaled = (syn.write(tiny(arch, scale=scale), tmp_path / f"{scale}.gguf") for scale in (True, False))
    scales = [t.data for t in GGUFReader(scaled).tensors if t.name.endswith("exps.scale")]
    assert len(scales) == len(syn.ARCHS[arch].scales) * len(syn.moe_layers(tiny(arch)))
    for scale in scales:
        assert (scale.min(), scale.max()) == (pytest.approx(0.1), pytest.approx(10))
        assert len(np.unique(scale)) == 12
    a, b = logits_of(scaled), logits_of(unscaled)
    assert np.isfinite(a).all()
    assert not np.allclose(a, b, atol=0.1)


@pytest.mark.parametrize("name", TYPES)
def test_every_type_loads_and_keeps_activations_alive(name: str, tmp_path: Path) -> None:
    path = syn.write(tiny(types={"*": name}, n_layer=2), tmp_path / "m.gguf")
    assert {t.tensor_type.name for t in expert_tensors(path).values()} == {name}
    assert_alive(logits_of(path))


@pytest.mark.parametrize("name", [n for n in TYPES if n not in ("F32", "F16")])
def test_blocks_dequantise_to_the_sigma_asked_for(name: str) -> None:
    fmt = format_of(name)
    blocks = random_blocks(fmt, 0.0625, 100_000 // fmt.elements, np.random.default_rng(3))
    values = dequantize(blocks.reshape(-1, fmt.nbytes), fmt.type)
    # scales vary by half around their mean, and those of MXFP4 and NVFP4 round to a power of two or to 3 bits
    assert 0.045 < values.std() < 0.085
    assert abs(values.mean()) < 0.2 * values.std()


def test_types_differ_by_role_and_layer(tmp_path: Path) -> None:
    per_layer = {0: {"*": "Q8_0"}, 2: {"down": "Q5_0"}}
    spec = tiny(types={"gate": "Q4_K", "up": "Q4_K", "down": "Q6_K"}, types_per_layer=per_layer, dense_type="F16")
    path = syn.write(spec, tmp_path / "m.gguf")
    found = {name: t.tensor_type.name for name, t in expert_tensors(path).items()}
    by_layer = [[found[f"blk.{layer}.ffn_{role}_exps.weight"] for role in ("gate", "up", "down")] for layer in range(3)]
    assert by_layer == [["Q8_0"] * 3, ["Q4_K", "Q4_K", "Q6_K"], ["Q4_K", "Q4_K", "Q5_0"]]
    assert_alive(logits_of(path))


@pytest.mark.parametrize("arch", ["grovemoe", "deepseek2", "gpt-oss"])
@pytest.mark.parametrize("name", ["F32", "Q4_K", "MXFP4"])
def test_all_experts_of_a_file_are_distinct(arch: str, name: str, tmp_path: Path) -> None:
    fused: Any = frozenset({1}) if arch == "deepseek2" else False
    path = syn.write(tiny(arch, n_expert=16, types={"*": name}, fused=fused), tmp_path / "m.gguf")
    all_slabs = [slab for tensor in expert_tensors(path).values() for slab in slabs(tensor)]
    assert len({hashlib.sha256(slab).digest() for slab in all_slabs}) == len(all_slabs)
    assert len({slab[:64] for slab in all_slabs}) == len(all_slabs), "experts differ from their first bytes on"


@pytest.mark.parametrize("arch", FUSING)
def test_fused_separate_and_mixed_twins_give_equal_logits(arch: str, tmp_path: Path) -> None:
    twins = [tiny(arch, fused=fused, scale=False if syn.ARCHS[arch].scales else None) for fused in (False, True, frozenset({1}))]
    separate, fused, mixed = (logits_of(syn.write(twin, tmp_path / "m.gguf")) for twin in twins)
    np.testing.assert_array_equal(fused, separate)
    np.testing.assert_array_equal(mixed, separate)
    assert_alive(separate)


def test_fused_slab_is_gate_then_up(tmp_path: Path) -> None:
    fused, separate = (expert_tensors(syn.write(tiny("granite_swa", fused=f), tmp_path / f"{f}.gguf")) for f in (True, False))
    both = zip(slabs(separate["blk.1.ffn_gate_exps.weight"]), slabs(separate["blk.1.ffn_up_exps.weight"]), strict=True)
    assert slabs(fused["blk.1.ffn_gate_up_exps.weight"]) == [gate + up for gate, up in both]


@pytest.mark.parametrize("arch", syn.ARCHS)
def test_rigged_ids_are_what_the_engine_routes(arch: str, tmp_path: Path) -> None:
    spec = tiny(arch, router="rigged", n_layer=4)
    tokens = np.random.default_rng(1).integers(0, spec.n_vocab, 40).tolist()
    with observe(syn.write(spec, tmp_path / "m.gguf")) as session:
        assert_alive(session.decode(tokens[:30]))
        for token in tokens[30:]:
            session.decode([token])
        for layer in syn.moe_layers(spec):
            assert session.ids(layer, passes(arch)).tolist() == [list(syn.rigged_ids(spec, layer, token)) for token in tokens]


@pytest.mark.parametrize(
    "changes",
    [{"n_expert": 128, "n_expert_used": 8}, {"n_layer": 40, "n_ff_exp": 64}, {"n_vocab": 300, "n_embd": 512}],
    ids=["experts", "layers", "tokens"],
)
def test_rigged_ids_hold_for_many_experts_layers_and_tokens(changes: dict[str, Any], tmp_path: Path) -> None:
    spec = tiny("glm4moe", router="rigged", **changes)
    with observe(syn.write(spec, tmp_path / "m.gguf")) as session:
        assert_alive(session.decode(range(0, spec.n_vocab, 3)))
        for layer in syn.moe_layers(spec):
            assert session.ids(layer).tolist() == [list(syn.rigged_ids(spec, layer, t)) for t in range(0, spec.n_vocab, 3)]


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_rigged_ids_hold_with_a_half_precision_router(name: str, tmp_path: Path) -> None:
    spec = tiny(router="rigged", n_expert=64, n_expert_used=16, types={"router": name})
    with observe(syn.write(spec, tmp_path / "m.gguf")) as session:
        session.decode(range(64))
        assert session.ids(2).tolist() == [list(syn.rigged_ids(spec, 2, token)) for token in range(64)]


def test_rigged_tokens_reach_every_expert_and_neighbours_are_disjoint() -> None:
    spec = tiny(router="rigged", n_expert=16, n_expert_used=4)
    ids = [syn.rigged_ids(spec, 1, token) for token in range(syn.rigged_classes(spec))]
    assert {e for row in ids for e in row} == set(range(16))
    assert all(set(a).isdisjoint(b) for a, b in pairwise(ids[:4]))
    assert ids[:3] == [(1, 2, 3, 4), (8, 7, 6, 5), (9, 10, 11, 12)]
    assert ids[4] == (2, 3, 4, 5), "the second lap starts one further"
    assert syn.rigged_ids(spec, 0, 0) == (0, 1, 2, 3), "and so did layer 1"
    assert syn.rigged_ids(spec, 1, 5) == syn.rigged_ids(spec, 1, 5 + syn.rigged_classes(spec))


@pytest.mark.parametrize("arch", syn.ARCHS)
def test_replay_walks_every_event_of_a_trace(arch: str, tmp_path: Path) -> None:
    spec = tiny(arch, n_layer=4, n_vocab=1)
    trace = random_trace(60, spec)
    with observe(syn.replay(trace, spec, tmp_path / "m.gguf")) as session:
        assert session.greedy(0, 60) == [*range(1, 60), 0]
        for i, layer in enumerate(syn.moe_layers(spec)):
            assert session.ids(layer, passes(arch)).tolist() == trace[:, i].tolist()


def test_replay_of_a_short_trace_in_a_text_vocabulary_repeats(tmp_path: Path) -> None:
    spec = tiny(n_layer=2)
    trace = random_trace(40, spec)
    with observe(syn.replay(trace, spec, tmp_path / "m.gguf")) as session:
        assert session.greedy(0, 100) == list(range(1, 101))
        assert session.ids(1).tolist() == [trace[t % 40, 1].tolist() for t in range(100)]


def test_replay_still_computes_with_the_experts(tmp_path: Path) -> None:
    spec, trace = tiny(), random_trace(40, tiny())
    one, other = (logits_of(syn.replay(trace, replace(spec, seed=seed), tmp_path / f"{seed}.gguf")) for seed in (1, 2))
    assert (one != other).mean() > 0.9


def test_replay_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    spec = tiny()
    good = random_trace(20, spec)
    twice = good.copy()
    twice[3, 1] = 5
    for trace, message in [
        (good[:, :2], "expected a trace of shape"),
        (np.repeat(good, 20, axis=0), "dimension per token"),
        (good + 1, "expected ids from 0 to 11"),
        (twice, "same expert twice"),
    ]:
        with pytest.raises(syn.SynError, match=message):
            syn.replay(trace, spec, tmp_path / "m.gguf")


@pytest.mark.parametrize("options", [{}, {"metadata_only_first": True}, {"contiguous": True}])
def test_shards_together_equal_the_unsplit_file(options: dict[str, bool], tmp_path: Path) -> None:
    whole = syn.write(tiny(), tmp_path / "whole.gguf")
    shards = syn.write_shards(tiny(), tmp_path / "m", 3, **options)
    assert [path.name for path in shards] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    contents = [{t.name: t.data.tobytes() for t in GGUFReader(path).tensors} for path in (whole, *shards)]
    assert {name: data for shard in contents[1:] for name, data in shard.items()} == contents[0]
    assert sum(len(shard) for shard in contents[1:]) == len(contents[0])
    assert bool(contents[1]) != options.get("metadata_only_first", False)
    np.testing.assert_array_equal(logits_of(shards[0]), logits_of(whole))


def test_a_layers_gate_and_down_lie_in_different_shards(tmp_path: Path) -> None:
    shards = syn.write_shards(tiny(), tmp_path / "m", 3)
    where = {t.name: number for number, path in enumerate(shards) for t in GGUFReader(path).tensors}
    assert where["blk.0.ffn_gate_exps.weight"] != where["blk.0.ffn_down_exps.weight"]


@pytest.mark.parametrize("router", ["random", "rigged"])
def test_equal_specs_give_equal_bytes_and_seeds_differ(router: str, tmp_path: Path) -> None:
    spec = tiny("gpt-oss", router=router, types={"*": "Q4_K"})
    first, second, other = (syn.write(s, tmp_path / f"{i}.gguf") for i, s in enumerate((spec, replace(spec), replace(spec, seed=2))))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes() != other.read_bytes()


def test_text_becomes_bytes_and_comes_back(tmp_path: Path) -> None:
    path = syn.write(tiny(n_vocab=300), tmp_path / "m.gguf")
    llm = llama_cpp.Llama(str(path), n_ctx=64, n_threads=1, verbose=False)
    text = "Straße, 4 naïve 専門家!\n".encode()
    tokens = llm.tokenize(text)
    assert tokens == [syn.token_of(byte) for byte in text]
    assert llm.detokenize(tokens) == text
    assert (llm.token_bos(), llm.token_eos()) == (298, 299)
    made = llm.create_completion(tokens, max_tokens=20, temperature=0)
    assert made["usage"]["completion_tokens"] == 20, "greedy decoding never stops early"
    llm.close()


def test_a_small_vocabulary_takes_text_too(tmp_path: Path) -> None:
    llm = llama_cpp.Llama(str(syn.write(tiny(n_vocab=50), tmp_path / "m.gguf")), n_ctx=64, n_threads=1, verbose=False)
    made = llm.create_completion("any text", max_tokens=8, temperature=0)
    assert made["usage"]["completion_tokens"] == 8
    llm.close()


def test_legacy_layout_has_one_tensor_per_expert_and_no_engine_loads_it(tmp_path: Path) -> None:
    path = syn.write(tiny("llama", legacy=True), tmp_path / "m.gguf")
    assert sum(bool(re.fullmatch(r"blk\.\d\.ffn_(gate|up|down)\.\d+\.weight", t.name)) for t in GGUFReader(path).tensors) == 3 * 3 * 12
    with pytest.raises(RuntimeError, match=r"ffn_down_exps\.weight. not found"), observe(path):
        pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "qwen9"}, 'unknown architecture "qwen9" \\(valid: llama, '),
        ({"types": {"*": "Q7_K"}}, 'unknown ggml type "Q7_K" \\(valid: F32, '),
        ({"types": {"gates": "Q8_0"}}, 'unknown role "gates"'),
        ({"n_ff_exp": 96, "types": {"*": "Q4_K"}}, "blk.0.ffn_down_exps.weight: Q4_K needs rows of a multiple of 256 elements, got 96"),
        ({"fused": True}, "cannot fuse gate and up"),
        ({"gate": False}, "needs a gate"),
        ({"dense_lead": 1}, "no leading dense layers"),
        ({"bias": True}, "no expert biases"),
        ({"n_expert_used": 13}, "expected n_expert_used <= n_expert \\(12\\), got 13"),
        ({"router": "replay"}, 'unknown router "replay"'),
        ({"shared": 1}, "expected shared to be one of"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(syn.SynError, match=message) as error:
        syn.write(tiny(**changes), tmp_path / "m.gguf")
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_memory_stays_small_whatever_the_size() -> None:
    """A 14 GB model's tensors come in chunks of a pool at most; none of it is made here beyond the first expert."""
    spec = syn.Spec(n_layer=24, n_embd=4096, n_ff_exp=4096, n_expert=32, types={"*": "Q4_0"}, dense_type="Q8_0", n_vocab=32000)
    tensors = tensors_of(spec)
    assert sum(tensor.nbytes for tensor in tensors) > 14e9
    big = next(tensor for tensor in tensors if "exps" in tensor.name)
    assert 0 < len(next(big.chunks(pools_of(spec)))) <= MAX_POOL_BYTES * 1.01
