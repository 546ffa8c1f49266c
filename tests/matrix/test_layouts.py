"""Every layout of experts that an architecture can have, at every kind of slot count, under real (random) routing.

The routing is watched in the plain run; the reference pool is fed with it and says what each counter must be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testkit import syn
from testkit.oracle import LAST, Batch, Oracle, Setup, Steps, check_pooled, last_graph, plan_of, pooled, rigged_ubatches

ModelFile = Callable[[syn.Spec], Path]

N_EXPERT, N_USED = 16, 4
SETUP = Setup(n_ubatch=12)


def layout(arch: str, **changes: object) -> syn.Spec:
    n_layer = max(3, syn.ARCHS[arch].min_layers)
    spec = syn.Spec(arch=arch, n_layer=n_layer, n_expert=N_EXPERT, n_expert_used=N_USED, types={"*": "Q5_K"})
    return replace(spec, **changes)  # type: ignore[arg-type]


LAYOUTS: dict[str, syn.Spec] = {
    # two tensors a layer
    "llama-without-gate": layout("llama", gate=False),
    "nemotron_h_moe-without-gate": layout("nemotron_h_moe", n_layer=5),
    "granite_swa-fused": layout("granite_swa", fused=True),
    "deepseek2-fused": layout("deepseek2", fused=True),
    "mistral4-fused": layout("mistral4", fused=True),
    "cohere2moe-fused": layout("cohere2moe", fused=True),
    "qwen3next-fused": layout("qwen3next", fused=True),
    "gemma4-fused-with-down-scales": layout("gemma4", fused=True),
    # three
    "llama": layout("llama"),
    "olmoe": layout("olmoe"),
    "qwen3moe": layout("qwen3moe"),
    "qwen2moe-shared-expert": layout("qwen2moe"),
    "qwen3next": layout("qwen3next"),
    "granite_swa": layout("granite_swa"),
    "cohere2moe": layout("cohere2moe"),
    "maple-clamped-activation": layout("maple"),
    "llama4-weights-before-experts": layout("llama4"),
    # six
    "grovemoe-chunk-experts": layout("grovemoe"),
    # what hangs on the experts, and what stands beside them
    "gpt-oss-biases": layout("gpt-oss"),
    "gemma4-down-scales": layout("gemma4"),
    "qwen3moe-scales": layout("qwen3moe", scale=True),
    "llama-scales-without-gate": layout("llama", gate=False, scale=True),
    "nemotron_h_moe-scales": layout("nemotron_h_moe", n_layer=5, scale=True),
    "glm4moe-dense-lead-and-shared": layout("glm4moe", dense_lead=1),
    "deepseek2-dense-lead-and-two-shared": layout("deepseek2", dense_lead=2, shared=2, n_layer=4),
    "mistral4-dense-lead": layout("mistral4", dense_lead=1),
    # mixtures
    "granite_swa-fused-in-one-layer": layout("granite_swa", fused=frozenset({1})),
    "qwen3moe-types-mixed-within-a-layer": layout("qwen3moe", types={"gate": "Q4_K", "up": "Q5_K", "down": "Q6_K"}),
    "qwen3moe-types-mixed-over-layers": layout(
        "qwen3moe",
        n_layer=4,
        types={"*": "Q4_K"},
        types_per_layer={0: {"*": "Q8_0"}, 2: {"gate": "MXFP4", "up": "IQ4_NL", "down": "BF16"}, 3: {"*": "F16"}},
    ),
    "qwen2moe-odd-width-down-in-q5_0": layout("qwen2moe", n_ff_exp=352, types={"gate": "Q4_K", "up": "Q4_K", "down": "Q5_0"}),
    "qwen2moe-sixty-experts": layout("qwen2moe", n_expert=60),
    "qwen3moe-128-experts-8-used": layout("qwen3moe", n_expert=128, n_expert_used=8, n_ff_exp=64, types={"*": "Q8_0"}),
}


def random_tokens(n: int, seed: int = 3) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(0, 250, n).tolist())


def varied_steps() -> Steps:
    """Single tokens, small batches, and prompts of more than one ubatch in between; logits of all tokens or of the last."""
    tokens = random_tokens(120)
    singles = tuple(Batch((token,)) for token in tokens[:12])
    small = (Batch(tokens[12:14]), Batch(tokens[14:17]), Batch(tokens[17:25], outputs=LAST))
    prompts = (Batch(tokens[25:58], outputs=LAST), Batch(tokens[58:68]))
    return singles + small + prompts + tuple(Batch((token,)) for token in tokens[68:80])


def slot_counts(spec: syn.Spec) -> tuple[int, ...]:
    return (spec.n_expert_used, spec.n_expert_used + 1, spec.n_expert - 1, spec.n_expert)


SLOTS = ("k", "k+1", "E-1", "E")
KNOWN: dict[tuple[str, str], pytest.MarkDecorator] = {}
SPLIT_BY_SCALES = ("qwen3moe-scales", "llama-scales-without-gate", "nemotron_h_moe-scales")
"""A scale of gate or up is looked up by a GET_ROWS that stays on the CPU: it cuts the layer's split at every expert tensor."""


def layout_cells() -> list[object]:
    return [pytest.param(name, slots, marks=KNOWN.get((name, slots), ()), id=f"{name}-{slots}") for name in LAYOUTS for slots in SLOTS]


@pytest.mark.parametrize(("name", "slots"), layout_cells())
def test_layout_is_bit_equal_and_counts_as_the_reference(name: str, slots: str, model_file: ModelFile, oracle: Oracle) -> None:
    spec = LAYOUTS[name]
    path = model_file(spec)
    check_pooled(oracle, path, plan_of(path, slot_counts(spec)[SLOTS.index(slots)]), varied_steps(), SETUP)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_bit_equal_when_nodes_come_one_at_a_time(name: str, model_file: ModelFile, oracle: Oracle) -> None:
    path = model_file(LAYOUTS[name])
    setup = replace(SETUP, one_node_at_a_time=True)
    check_pooled(oracle, path, plan_of(path, LAYOUTS[name].n_expert_used + 1), varied_steps(), setup)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layer_is_one_split_per_routing_and_needs_no_copies(name: str, model_file: ModelFile) -> None:
    path = model_file(LAYOUTS[name])
    with pooled(path, plan := plan_of(path, LAYOUTS[name].n_expert_used), replace(SETUP, keeps_log=True)) as model:
        model.run((Batch((1,)),))
        splits = last_graph(model.first.log)
    ours = [split for split in splits if split.backend == "SLOTPOOL-CPU"]
    per_split = (
        [len(group.tensors) for group in plan.groups] if name not in SPLIT_BY_SCALES else [1] * sum(len(g.tensors) for g in plan.groups)
    )
    assert [split.ops.count("MUL_MAT_ID") for split in ours] == per_split
    assert all(split.n_inputs == 0 for split in splits)


def test_fused_and_separate_twins_have_the_same_routing(model_file: ModelFile, oracle: Oracle) -> None:
    """The twins hold the same numbers, so the pool must not be able to tell them apart but by its bytes."""
    counts = []
    for name in ("granite_swa", "granite_swa-fused"):
        path = model_file(LAYOUTS[name])
        counts.append(check_pooled(oracle, path, plan_of(path, N_USED + 1), varied_steps(), SETUP))
    separate, fused = counts
    assert [replace(group, n_tensors=2) for group in separate] == fused


@pytest.mark.parametrize("policy", ["decay", "follow", "lru"])
@pytest.mark.parametrize("slots", [4, 5, 15, 16])
def test_500_random_tokens_do_not_depend_on_the_number_of_slots(slots: int, policy: str, model_file: ModelFile, oracle: Oracle) -> None:
    """R02: slots below, at and above the working set."""
    path = model_file(layout("qwen3moe", n_layer=2, n_ctx=1024, types={"*": "Q4_K"}))
    steps = tuple(Batch((token,)) for token in random_tokens(500, seed=slots))
    check_pooled(oracle, path, plan_of(path, slots, policy=policy), steps, Setup(n_ctx=512))


@pytest.mark.parametrize("n_tokens", [1, 3, 9])
def test_the_same_chunk_expert_twice_in_a_row_is_one_lookup_and_two_rows(n_tokens: int, model_file: ModelFile, oracle: Oracle) -> None:
    """C39: grovemoe's chunk experts are shared by two experts each, so a token may ask for one twice."""
    spec = layout("grovemoe", n_layer=2, router="rigged")
    path = model_file(spec)
    plan = plan_of(path, {1: 4, 3: 12, 9: 16}[n_tokens])
    steps = (Batch((0,) * n_tokens), Batch((0,) * n_tokens))
    counts = check_pooled(oracle, path, plan, steps)
    # layer 0: experts 0 1 2 3, chunks 0 0 1 1; layer 1: experts 1 2 3 4, chunks 0 1 1 2
    lookups = [(group.generation + group.prompt).lookups for group in counts]
    rows = [(group.generation + group.prompt).rows_hit for group in counts]
    assert lookups == [2 * 4, 2 * 2, 2 * 4, 2 * 3]
    assert rows == [n_tokens * 4] * 4


def test_observed_routing_is_the_rigged_formula(model_file: ModelFile, oracle: Oracle) -> None:
    """The witness of this file agrees with the construction that test_cells.py relies on."""
    spec = layout("granite_swa", router="rigged")
    path, steps = model_file(spec), varied_steps()
    seen, known = oracle.routing(path, SETUP, steps), rigged_ubatches(spec, steps, SETUP.n_ubatch)
    assert [ubatch.n_tokens for ubatch in seen] == [ubatch.n_tokens for ubatch in known]
    for mine, theirs in zip(seen, known, strict=True):
        assert {place: ids.tolist() for place, ids in mine.ids.items()} == {place: ids.tolist() for place, ids in theirs.ids.items()}
