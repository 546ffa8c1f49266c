"""Slots on a device: types x layouts x tokens per ubatch x ways to serve misses, each bit-equal to plain llama.cpp on the CPU, with the
numbers of the reference pool, and the bytes that the device itself counted.

A cell takes two of the four ways. One script has every condition: a cold pool, hits alone, evictions in every step, a single token, graphs
reserved again. Whether graphs are used again, built every time, or handed over one node at a time goes round with the cells, and so does
how the device executes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit import syn
from testkit.cases import TOKENS, TYPES, Tokens, write_cell
from testkit.oracle import ON_DEVICE, Batch, DeviceProcess, Oracle, Reserve, Setup, Steps, check_on_devices, plan_on, total

LAYOUTS = ("fused", "separate")
MODES = ("copy", "cpu", "auto", "frozen")
N_LAYER = 2
SETUP = replace(ON_DEVICE, n_ubatch=64, n_ctx=768)
HOST = Setup(n_ubatch=64, n_ctx=768)


KINDS = {
    "graphs-reused": SETUP,
    "graphs-rebuilt": replace(SETUP, reuse_graphs=False),
    "one-node-at-a-time": replace(SETUP, one_node_at_a_time=True),
}


def steps_for(tokens: Tokens) -> Steps:
    """Cold, hits, one token repeated; evictions; one token, then what its graph cannot take again; reserved before hits and misses."""
    a, b = Batch(tokens.a), Batch(tokens.b)
    repeated = Batch(tokens.a[:1] * len(tokens.a))
    return (a, a, repeated, b, a, b, Batch(tokens.b[-1:]), Reserve(), b, Reserve(), a)


def spec_of(type_: str, layout: str, tokens: Tokens) -> syn.Spec:
    """granite_swa takes both layouts, so that the twins differ in nothing else."""
    return syn.Spec(
        arch="granite_swa",
        n_layer=N_LAYER,
        n_expert=tokens.n_expert,
        n_expert_used=tokens.n_expert_used,
        fused=layout == "fused",
        types={"*": type_},
        router="random" if tokens.is_replay else "rigged",
    )


@pytest.fixture(scope="module", params=[(type_, layout) for type_ in TYPES for layout in LAYOUTS], ids="-".join)
def cell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, oracle: Oracle) -> Iterator[tuple[int, dict[int, Path]]]:
    """The number of a (type, layout), and its models, one per size of the expert pool; deleted after their cells."""
    type_, layout = request.param
    folder = tmp_path_factory.mktemp(f"{type_}-{layout}")
    paths: dict[int, Path] = {}
    for tokens in TOKENS.values():
        if tokens.n_expert not in paths:
            paths[tokens.n_expert] = write_cell(spec_of(type_, layout, tokens), tokens, folder / f"{tokens.n_expert}.gguf")
    yield 2 * TYPES.index(type_) + LAYOUTS.index(layout), paths
    for path in paths.values():
        path.unlink()
        oracle.forget(path)


@pytest.mark.parametrize("n_tokens", TOKENS)
@pytest.mark.parametrize("half", [0, 1])
def test_cell_is_bit_equal_and_shows_its_numbers(
    half: int, n_tokens: int, cell: tuple[int, dict[int, Path]], oracle: Oracle, lazy: DeviceProcess, threaded: DeviceProcess
) -> None:
    number, paths = cell
    tokens = TOKENS[n_tokens]
    turn = number + number // 2 + list(TOKENS).index(n_tokens)
    misses, kind = MODES[(turn + 2 * half) % 4], list(KINDS)[(turn + half) % 3]
    process = (lazy, threaded)[(number // 2 + half) % 2]
    path, setup, steps = paths[tokens.n_expert], KINDS[kind], steps_for(tokens)
    run = check_on_devices(oracle, process, path, plan_on(path, tokens.slots, misses=misses), steps, setup)
    generated, prompted, refused = total(run.counts)
    both = generated + prompted
    assert (both.events, refused) == (9 * N_LAYER, 0)
    assert both.hits > 0
    assert (both.rows_cpu > 0) == (misses == "frozen" or (misses != "copy" and n_tokens <= 8))
    assert (run.n_reused > 0) == (kind != "graphs-rebuilt")


@pytest.mark.parametrize("n_tokens", [1, 3, 9])
@pytest.mark.parametrize("misses", ["cpu", "auto", "frozen"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_misses_are_served_in_every_way_on_the_cpu_as_pooled_device(
    layout: str, misses: str, n_tokens: int, tmp_path: Path, oracle: Oracle, lazy: DeviceProcess
) -> None:
    """No other device: slots in RAM, and rows of misses computed by the same kernels from the store."""
    tokens = TOKENS[n_tokens]
    path = write_cell(spec_of("Q4_K", layout, tokens), tokens, tmp_path / "m.gguf")
    run = check_on_devices(
        oracle, lazy, path, plan_on(path, tokens.slots, (), misses=misses), steps_for(tokens), Setup(n_ubatch=64, n_ctx=768)
    )
    assert {group.device for group in run.counts} == {"CPU"}
    generated, prompted, _ = total(run.counts)
    assert ((generated + prompted).rows_cpu > 0) == (misses == "frozen" or n_tokens <= 8)
    oracle.forget(path)
