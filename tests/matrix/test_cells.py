"""The matrix: types x tokens per ubatch x what happens to the pool x layout. Every cell is bit-equal to plain llama.cpp, and
shows exactly the numbers that are stated for it.

Routing is known by construction (a rigged router, a replayed trace), so the numbers are written down, not computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from slotpool.native import GroupCounts, PhaseCounts
from testkit import syn
from testkit.cases import TOKENS, TYPES, Tokens, replayed_ids, write_cell
from testkit.oracle import (
    Batch,
    Oracle,
    Pooled,
    Reserve,
    Setup,
    Steps,
    Ubatch,
    assert_same_bits,
    expected_counts,
    known_ubatches,
    last_graph,
    plan_of,
    pooled,
    rigged_ubatches,
    steps_of,
    total,
)

LAYOUTS = ("fused", "separate")
WIDTH = 256  # of the model and of an expert: the smallest that every type can have
N_LAYER = 2
N_UBATCH = 80


@dataclass(frozen=True)
class Stated:
    """What one layer must show. Pairs are (generation, prompt); on the CPU every miss is copied and nothing is left to `cpu`."""

    events: tuple[int, int]
    hits: tuple[int, int]
    misses: tuple[int, int]
    rows_hit: tuple[int, int]
    rows_copy: tuple[int, int]
    refused: int = 0


def generation(events: int, hits: int, misses: int, rows_hit: int, rows_copy: int, refused: int = 0) -> Stated:
    """Ubatches of at most eight tokens."""
    return Stated((events, 0), (hits, 0), (misses, 0), (rows_hit, 0), (rows_copy, 0), refused)


def prompt(events: int, hits: int, misses: int, rows_hit: int, rows_copy: int) -> Stated:
    """Ubatches of more than eight tokens."""
    return Stated((0, events), (0, hits), (0, misses), (0, rows_hit), (0, rows_copy))


# per layer: events, hits, misses, rows from hits, rows from copies
STATED: dict[str, dict[int, Stated]] = {
    # A
    "cold": {
        1: generation(1, 0, 4, 0, 4),
        3: generation(1, 0, 12, 0, 12),
        8: generation(1, 0, 16, 0, 16),
        9: prompt(1, 0, 18, 0, 18),
        64: prompt(1, 0, 64, 0, 64),
    },
    # A, A, one token repeated
    "all-hits": {
        1: generation(3, 8, 4, 8, 4),
        3: generation(3, 16, 12, 24, 12),
        8: generation(3, 18, 16, 32, 16),
        9: prompt(3, 20, 18, 36, 18),
        64: prompt(3, 65, 64, 128, 64),
    },
    # A, B, A, B
    "eviction-in-every-step": {
        1: generation(4, 0, 16, 0, 16),
        3: generation(4, 24, 24, 24, 24),
        8: generation(4, 24, 40, 24, 40),
        9: prompt(4, 36, 36, 36, 36),
        64: prompt(4, 168, 88, 168, 88),
    },
    # A, A, B
    "graph-rebuilt": {
        1: generation(3, 4, 8, 4, 8),
        3: generation(3, 20, 16, 20, 16),
        8: generation(3, 24, 24, 24, 24),
        9: prompt(3, 30, 24, 30, 24),
        64: prompt(3, 120, 72, 120, 72),
    },
    # A, A, A, B
    "reserved-then-computed": {
        1: generation(4, 8, 8, 8, 8),
        3: generation(4, 32, 16, 32, 16),
        8: generation(4, 40, 24, 40, 24),
        9: prompt(4, 48, 24, 48, 24),
        64: prompt(4, 184, 72, 184, 72),
    },
    # A, one token of A, A, one token too many, A
    "batch-shape-changed": {
        1: generation(4, 12, 4, 12, 4, refused=1),
        3: generation(4, 28, 12, 28, 12, refused=1),
        8: generation(4, 34, 16, 34, 16, refused=1),
        9: Stated((1, 3), (2, 36), (0, 18), (2, 36), (0, 18), refused=1),
        64: Stated((1, 3), (1, 128), (0, 64), (1, 128), (0, 64), refused=1),
    },
    # A, B
    "not-first-in-split": {
        1: generation(2, 0, 8, 0, 8),
        3: generation(2, 8, 16, 8, 16),
        8: generation(2, 8, 24, 8, 24),
        9: prompt(2, 12, 24, 12, 24),
        64: prompt(2, 56, 72, 56, 72),
    },
    # A, A, B
    "one-node-at-a-time": {
        1: generation(3, 4, 8, 4, 8),
        3: generation(3, 20, 16, 20, 16),
        8: generation(3, 24, 24, 24, 24),
        9: prompt(3, 30, 24, 30, 24),
        64: prompt(3, 120, 72, 120, 72),
    },
}


def steps_for(condition: str, tokens: Tokens) -> Steps:
    """What the cell decodes; `Reserve` makes the engine reserve its worst graphs again before the next decode."""
    a, b = tokens.a, tokens.b
    return {
        "cold": steps_of(a),
        "all-hits": steps_of(a, a, tokens.repeated),
        "eviction-in-every-step": steps_of(a, b, a, b),
        "graph-rebuilt": steps_of(a, a, b),
        "reserved-then-computed": (Batch(a), Reserve(), Batch(a), Batch(a), Reserve(), Batch(b)),
        "batch-shape-changed": steps_of(a, a[:1], a, tokens.too_many, a),
        "not-first-in-split": steps_of(a, b),
        "one-node-at-a-time": steps_of(a, a, b),
    }[condition]


def setup_for(condition: str) -> Setup:
    return Setup(
        n_ubatch=N_UBATCH,
        reuse_graphs=condition != "graph-rebuilt",
        one_node_at_a_time=condition == "one-node-at-a-time",
        keeps_log=condition in ("not-first-in-split", "reserved-then-computed"),
    )


def roles_left_out(condition: str, layout: str) -> tuple[str, ...]:
    """Without `up` in the plan the down matmul's split begins with the activation. Fused, the split's first node is gate_up."""
    return ("up",) if (condition, layout) == ("not-first-in-split", "separate") else ()


def spec_of(type_: str, layout: str, tokens: Tokens) -> syn.Spec:
    """granite_swa takes both layouts, so that the twins differ in nothing else."""
    return syn.Spec(
        arch="granite_swa",
        n_layer=N_LAYER,
        n_embd=WIDTH,
        n_ff_exp=WIDTH,
        n_expert=tokens.n_expert,
        n_expert_used=tokens.n_expert_used,
        fused=layout == "fused",
        types={"*": type_},
        router="random" if tokens.is_replay else "rigged",
    )


def ubatches_of(spec: syn.Spec, tokens: Tokens, steps: Steps) -> list[Ubatch]:
    if not tokens.is_replay:
        return rigged_ubatches(spec, steps, N_UBATCH)
    return known_ubatches(range(N_LAYER), lambda layer, token: replayed_ids(layer, token, spec.n_expert), 1, steps, N_UBATCH)


def slab_bytes(type_: str, n_matrices: int) -> int:
    """Bytes of one expert in a layer, from the gguf package's block sizes and nothing of ours."""
    n_values, n_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[type_]]
    return int(n_matrices * WIDTH * WIDTH // n_values * n_bytes)


# per layer: events that needed no copy
EMPTY = {
    "cold": 0,
    "all-hits": 2,
    "eviction-in-every-step": 0,
    "graph-rebuilt": 1,
    "reserved-then-computed": 2,
    "batch-shape-changed": 3,
    "not-first-in-split": 0,
    "one-node-at-a-time": 1,
}


def empty_copies(condition: str, stated: Stated, phase: int) -> int:
    """Events of the phase that needed no copy: all of them where it has no miss, else what the other phase leaves."""
    if not stated.misses[phase]:
        return stated.events[phase]
    return EMPTY[condition] - (0 if stated.misses[1 - phase] else stated.events[1 - phase])


def phase_counts(condition: str, stated: Stated, phase: int, slab: int, n_tensors: int) -> PhaseCounts:
    hits, misses = stated.hits[phase], stated.misses[phase]
    return PhaseCounts(
        events=stated.events[phase],
        lookups=hits + misses,
        hits=hits,
        misses=misses,
        rows_hit=stated.rows_hit[phase],
        rows_copy=stated.rows_copy[phase],
        rows_cpu=0,
        bytes_copied=misses * slab,
        bytes_saved=hits * slab,
        ranges_copied=misses * n_tensors,
        empty_copies=empty_copies(condition, stated, phase),
    )


def stated_counts(condition: str, stated: Stated, tokens: Tokens, slab: int, n_tensors: int) -> list[GroupCounts]:
    """The whole record that the core must give: both layers show the same."""
    generated, prompted = (phase_counts(condition, stated, phase, slab, n_tensors) for phase in (0, 1))
    return [
        GroupCounts(layer, "exps", "CPU", tokens.slots, tokens.n_expert, n_tensors, slab, stated.refused, generated, prompted)
        for layer in range(N_LAYER)
    ]


@dataclass(frozen=True)
class Files:
    """The models of one type and layout, one per size of the expert pool."""

    type_: str
    layout: str
    paths: dict[int, Path]


@pytest.fixture(scope="module", params=[(type_, layout) for type_ in TYPES for layout in LAYOUTS], ids="-".join)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> Iterator[Files]:
    """Written for its cells and deleted after them: together they would be a gigabyte."""
    type_, layout = request.param
    folder = tmp_path_factory.mktemp(f"{type_}-{layout}")
    paths: dict[int, Path] = {}
    for tokens in TOKENS.values():
        if tokens.n_expert not in paths:
            paths[tokens.n_expert] = write_cell(spec_of(type_, layout, tokens), tokens, folder / f"{tokens.n_expert}.gguf")
    yield Files(type_, layout, paths)
    for path in paths.values():
        path.unlink()
        oracle.forget(path)


@pytest.mark.parametrize("n_tokens", TOKENS)
@pytest.mark.parametrize("condition", STATED)
def test_cell_is_bit_equal_and_shows_its_numbers(condition: str, n_tokens: int, files: Files, oracle: Oracle) -> None:
    tokens, path = TOKENS[n_tokens], files.paths[TOKENS[n_tokens].n_expert]
    steps, setup, without = steps_for(condition, tokens), setup_for(condition), roles_left_out(condition, files.layout)
    plain = oracle.logits(path, setup, steps)
    with pooled(path, plan_of(path, tokens.slots, without=without), setup) as model:
        assert_same_bits(run(condition, model, steps), plain)
        slab = slab_bytes(files.type_, 3 - len(without))
        n_tensors = 2 if files.layout == "fused" else 3 - len(without)
        assert model.counts() == stated_counts(condition, STATED[condition][n_tokens], tokens, slab, n_tensors)
        assert_condition_was_met(condition, files.layout, model)


def run(condition: str, model: Pooled, steps: Steps) -> list[np.ndarray]:
    if condition != "reserved-then-computed":
        return model.run(steps)
    bits = model.run(steps[:3])
    # another context of the model reserves its graphs: the next step takes the graph that it had before
    model.context().close()
    return bits + model.run(steps[3:])


def assert_condition_was_met(condition: str, layout: str, model: Pooled) -> None:
    """The engine did what the cell's name says."""
    if condition == "all-hits":
        assert model.first.n_reused > 0
    if condition == "graph-rebuilt":
        assert model.first.n_reused == 0
    if condition == "reserved-then-computed":
        assert (model.first.n_reserves, model.first.n_reused) == (3, 1)
    if condition == "not-first-in-split":
        assert pool_splits(model) == N_LAYER * SPLITS[layout]


SPLITS = {
    "fused": [["MUL_MAT_ID", "SWIGLU", "MUL_MAT_ID"]],
    "separate": [["MUL_MAT_ID"], ["SWIGLU", "MUL_MAT_ID"]],
}
"""The pool's splits of one layer in the cells `not-first-in-split`."""


def pool_splits(model: Pooled) -> list[list[str]]:
    """The nodes of every split of the pool's."""
    return [split.ops for split in last_graph(model.first.log) if split.backend == "SLOTPOOL-CPU"]


@pytest.mark.parametrize("n_tokens", TOKENS)
@pytest.mark.parametrize("condition", STATED)
def test_stated_numbers_are_those_of_the_reference_pool(condition: str, n_tokens: int, tmp_path: Path) -> None:
    """Two witnesses: the numbers above were written by hand, these come from the routing's formula and the Python pool."""
    tokens = TOKENS[n_tokens]
    spec = spec_of("Q4_K", "separate", tokens)
    plan = plan_of(write_cell(spec, tokens, tmp_path / "m.gguf"), tokens.slots)
    counts = expected_counts(plan, ubatches_of(spec, tokens, steps_for(condition, tokens)))
    stated = stated_counts(condition, STATED[condition][n_tokens], tokens, slab_bytes("Q4_K", 3), 3)
    assert counts == stated
    assert total(counts)[2] == N_LAYER * STATED[condition][n_tokens].refused
