"""Recording through the evaluation callback: every row of every architecture is what the rigged router was made to choose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slotpool import recording, trace
from slotpool.errors import SlotpoolError
from testkit import syn

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 53, 58, 97, 9, 32]
UBATCH = 5
UNPRUNED = ("qwen3next", "gpt-oss", "gemma4", "cohere2moe")
"""Architectures whose graphs take the output rows behind the last layer, not before its experts."""
Models = Callable[[syn.Spec], Path]


def spec(arch: str, **changes: object) -> syn.Spec:
    n_layer = max(3, syn.ARCHS[arch].min_layers)
    return syn.Spec(**{"arch": arch, "n_layer": n_layer, "n_expert": 12, "n_expert_used": 3, "router": "rigged"} | changes)  # type: ignore[arg-type]


SPECS = {arch: spec(arch) for arch in syn.ARCHS} | {
    "glm4moe, one dense layer first": spec("glm4moe", dense_lead=1),
    "deepseek2, one dense layer first, fused": spec("deepseek2", dense_lead=1, fused=True),
    "qwen3next, fused in one layer": spec("qwen3next", fused=frozenset({1})),
    "llama without a gate": spec("llama", gate=False),
    "grovemoe in groups of four": spec("grovemoe", experts_per_group=4),
    "an expert each": spec("qwen3moe", n_expert_used=1),
    "all experts": spec("qwen3moe", n_expert_used=12),
    "more experts than a byte counts": spec("qwen3moe", n_expert=300),
}


def recorded(path: Path, out: Path, mode: str, n_generate: int = 0, tokens: list[int] = TOKENS, **settings: object) -> trace.Trace:
    chosen = recording.Settings(mode, n_generate, n_ubatch=UBATCH, n_threads=1, **settings)  # type: ignore[arg-type]
    recording.record(path, [recording.Text("a", tokens=tokens)], out, chosen)
    return trace.open(out)


def oracle(spec: syn.Spec, layer: int, pass_: str, tokens: list[int]) -> np.ndarray:
    ids = np.array([syn.rigged_ids(spec, layer, token) for token in tokens], np.int32)
    return ids // spec.experts_per_group if pass_ == "chexps" else ids


def places(spec: syn.Spec) -> list[tuple[int, str]]:
    passes = ("exps", "chexps") if syn.ARCHS[spec.arch].chunk_experts else ("exps",)
    return [(layer, pass_) for layer in syn.moe_layers(spec) for pass_ in passes]


@pytest.mark.parametrize("name", SPECS)
def test_forced_tokens_are_generation_events_of_one_row(name: str, model_file: Models, tmp_path: Path) -> None:
    found = recorded(model_file(SPECS[name]), tmp_path / "a", "forced")
    assert [(group.layer, group.pass_) for group in found.groups] == places(SPECS[name])
    for group in found.groups:
        assert np.array_equal(group.ids, oracle(SPECS[name], group.layer, group.pass_, TOKENS))
        assert group.events.ubatch.tolist() == list(range(len(TOKENS)))
        assert set(group.events.phase) == {trace.GENERATION}
        assert set(group.events.n_rows) == set(group.events.n_tokens) == {1}
        assert group.n_expert == SPECS[name].n_expert // (SPECS[name].experts_per_group if group.pass_ == "chexps" else 1)


@pytest.mark.parametrize("name", SPECS)
def test_a_prompt_is_events_of_ubatches_and_its_last_layer_has_the_output_row_only(name: str, model_file: Models, tmp_path: Path) -> None:
    found = recorded(model_file(SPECS[name]), tmp_path / "a", "prompt")
    assert [(group.layer, group.pass_) for group in found.groups] == places(SPECS[name])
    n_tokens = [5, 5, 3]
    for group in found.groups:
        assert set(group.events.phase) == {trace.PROMPT}
        if group.layer == SPECS[name].n_layer - 1 and SPECS[name].arch not in UNPRUNED:
            assert group.events.ubatch.tolist() == [2]
            assert group.events.n_tokens.tolist() == [3]
            assert np.array_equal(group.ids, oracle(SPECS[name], group.layer, group.pass_, TOKENS[-1:]))
        else:
            assert group.events.n_rows.tolist() == group.events.n_tokens.tolist() == n_tokens
            assert np.array_equal(group.ids, oracle(SPECS[name], group.layer, group.pass_, TOKENS))


def test_what_is_generated_follows_the_prompt(model_file: Models, tmp_path: Path) -> None:
    found = recorded(model_file(SPECS["qwen3moe"]), tmp_path / "a", "generate", 4)
    first = found.group(0)
    assert first.events.phase.tolist() == [trace.PROMPT] * 3 + [trace.GENERATION] * 4
    assert first.events.n_tokens.tolist() == [5, 5, 3, 1, 1, 1, 1]
    assert len(found.group(2).ids) == 5  # the prompt's output row and four tokens


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "glm4moe", "grovemoe", "llama4", "olmoe"])
def test_weights_are_the_ones_that_the_outputs_are_multiplied_by(arch: str, model_file: Models, tmp_path: Path) -> None:
    found = recorded(model_file(SPECS[arch]), tmp_path / "a", "forced")
    for group in found.groups:
        assert group.weights is not None
        assert (group.weights > 0).all()
        if group.pass_ == "exps":
            assert (np.diff(group.weights, axis=1) <= 1e-3).all()  # ids are in the router's order; a 16-bit float has 11 bits
        if arch in ("qwen3moe", "gpt-oss", "glm4moe"):  # the kinds that are made to sum to one
            assert np.allclose(group.weights.sum(axis=1), 1, atol=2e-3)
        if arch == "olmoe":
            assert (group.weights.sum(axis=1) < 0.999).all()


@pytest.mark.parametrize("arch", ["qwen3moe", "grovemoe", "deepseek2"])
def test_the_ranking_begins_with_the_experts_that_were_used(arch: str, model_file: Models, tmp_path: Path) -> None:
    found = recorded(model_file(SPECS[arch]), tmp_path / "a", "forced", has_ranking=True)
    for group in found.groups:
        if group.pass_ == "chexps":
            assert group.ranking is None  # their ids are computed, nobody ranked them
            continue
        assert group.ranking is not None
        assert np.array_equal(group.ranking[:, :3], group.ids)
        assert np.array_equal(np.sort(group.ranking, axis=1), np.tile(np.arange(12), (len(TOKENS), 1)))


def test_weights_are_left_out_on_request(model_file: Models, tmp_path: Path) -> None:
    found = recorded(model_file(SPECS["qwen3moe"]), tmp_path / "a", "forced", has_weights=False)
    assert all(group.weights is None and group.ranking is None for group in found.groups)
    assert np.array_equal(found.group(0).ids, oracle(SPECS["qwen3moe"], 0, "exps", TOKENS))


def test_a_text_longer_than_the_context_goes_on_in_an_empty_one(model_file: Models, tmp_path: Path) -> None:
    tokens = [token % 100 for token in range(40)]
    path = model_file(SPECS["qwen3moe"])
    for mode in ("forced", "prompt"):
        settings = recording.Settings(mode, n_ctx=16, n_ubatch=UBATCH, n_threads=1)
        done = recording.record(path, [recording.Text("a", tokens=tokens)], tmp_path / mode, settings)
        assert (done.n_tokens, done.n_windows) == (40, 3)
        assert np.array_equal(trace.open(tmp_path / mode).group(0).ids, oracle(SPECS["qwen3moe"], 0, "exps", tokens))


def test_texts_are_segments(model_file: Models, tmp_path: Path) -> None:
    texts = [recording.Text("first", tokens=TOKENS), recording.Text("second", tokens=TOKENS[::-1])]
    recording.record(model_file(SPECS["qwen3moe"]), texts, tmp_path / "a", recording.Settings(limit=10, n_threads=1))
    found = trace.open(tmp_path / "a")
    assert [(segment.first_ubatch, segment.name) for segment in found.segments] == [(0, "first"), (10, "second")]
    assert np.array_equal(found.group(1).ids, oracle(SPECS["qwen3moe"], 1, "exps", TOKENS[:10] + TOKENS[::-1][:10]))


def test_the_fingerprint_is_of_the_model(model_file: Models, tmp_path: Path) -> None:
    path, other = model_file(SPECS["qwen3moe"]), model_file(spec("qwen3moe", types={"*": "F16"}))
    prints = [recorded(model, tmp_path / name, "forced").facts.fingerprint for name, model in (("a", path), ("b", other))]
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(path.read_bytes())
    prints.append(recorded(copy, tmp_path / "c", "forced").facts.fingerprint)
    assert prints[0] == prints[2] != prints[1]
    assert len(prints[0]) == 64
    facts = trace.open(tmp_path / "a").facts
    assert (facts.architecture, facts.n_layer, facts.n_expert, facts.n_expert_used) == ("qwen3moe", 3, 12, 3)


def test_one_shard_names_the_whole_model(tmp_path: Path) -> None:
    shards = syn.write_shards(SPECS["qwen3moe"], tmp_path, 2)
    found = recorded(shards[-1], tmp_path / "a", "forced")
    assert np.array_equal(found.group(0).ids, oracle(SPECS["qwen3moe"], 0, "exps", TOKENS))


def test_a_failure_while_it_runs_leaves_what_was_recorded(model_file: Models, tmp_path: Path) -> None:
    path = model_file(SPECS["qwen3moe"])

    def stop(done: int, total: int) -> None:
        assert total == len(TOKENS)
        if done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recording.record(path, [recording.Text("a", tokens=TOKENS)], tmp_path / "a", recording.Settings(n_threads=1), on_progress=stop)
    found = trace.open(tmp_path / "a")
    assert not found.is_complete
    assert np.array_equal(found.group(0).ids, oracle(SPECS["qwen3moe"], 0, "exps", TOKENS[:7]))


def test_an_exception_inside_the_callback_is_not_lost(model_file: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("slotpool.recording.nodes.rows_of", fail)
    with pytest.raises(KeyboardInterrupt):
        recorded(model_file(SPECS["qwen3moe"]), tmp_path / "a", "forced")


def test_a_damaged_router_is_an_error(tmp_path: Path, model_file: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slotpool.recording.nodes.rows_of", lambda address: np.array([[0, 99, 1]], np.int32))
    with pytest.raises(SlotpoolError, match="expected expert ids from 0 to 11"):
        recorded(model_file(SPECS["qwen3moe"]), tmp_path / "a", "forced")


def test_an_existing_file_is_found_before_the_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(SlotpoolError, match="expected no file"):
        recorded(tmp_path / "no-such-model.gguf", tmp_path / "a", "forced")
