"""Prompts that stream: bit-equal to plain llama.cpp, with the numbers of the reference pool, and the bytes that the device itself counted.

A cell is a type, a layout and a way to serve misses. Its script changes the size of the ubatch all the time, decodes in between so that
evictions churn the pool, and comes back to what it had: 64, 1, 9, 201 tokens; slots and staging are poisoned between events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from testkit import syn
from testkit.cases import LAYOUTS, TYPES, layout, random_tokens
from testkit.oracle import LAST, NONE, ON_DEVICE, Batch, DeviceProcess, Oracle, Reserve, Steps, check_on_devices, plan_on, steps_of, total

ModelFile = Callable[[syn.Spec], Path]

SETUP = replace(ON_DEVICE, n_ubatch=64, n_ctx=1024)
KINDS = {
    "graphs-reused": SETUP,
    "graphs-rebuilt": replace(SETUP, reuse_graphs=False),
    "one-node-at-a-time": replace(SETUP, one_node_at_a_time=True),
}
MODES = ("copy", "cpu", "frozen")


def steps() -> Steps:
    """Prompts of several sizes, tokens between them, graphs reserved again."""
    tokens = random_tokens(600)
    single = steps_of(*((token,) for token in tokens[:6]))
    return (
        Batch(tokens[:64]),
        *single,
        Batch(tokens[64:73]),
        Batch(tokens[73:274]),
        Reserve(),
        *single[:2],
        Batch(tokens[64:128]),
        Batch(tokens[:1] * 73),  # of a few experts, eight rows and more
        *single[2:],
    )


@pytest.mark.parametrize("type_", TYPES)
def test_cell_is_bit_equal_and_shows_its_numbers(
    type_: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess, threaded: DeviceProcess
) -> None:
    number = TYPES.index(type_)
    path = model_file(layout("granite_swa", n_layer=2, fused=number % 2 == 1, types={"*": type_}))
    plan = plan_on(path, 7, misses=MODES[number % 3], prefill="stream")
    run = check_on_devices(oracle, (lazy, threaded)[number // 2 % 2], path, plan, steps(), list(KINDS.values())[number % 3])
    generated, prompted, refused = total(run.counts)
    assert refused == 0
    assert prompted.events == 2 * 9  # 64, 9, 201 in four, 64 and 73 in two: no ubatch of more than 8 tokens fits
    assert prompted.hits > 0
    assert prompted.rows_cpu == 0
    assert prompted.ranges_copied < prompted.misses * len(plan.groups[0].tensors)
    assert generated.events > 0


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_streams(name: str, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess, threaded: DeviceProcess) -> None:
    """Biases, scales, chunk experts, mixed types: whatever stands between the matmuls of a layer. Last-layer rows: 40, and none."""
    spec = LAYOUTS[name]
    path = model_file(spec)
    tokens = random_tokens(200, seed=5)
    script: Steps = (
        Batch(tokens[:64], outputs=NONE),
        Batch(tokens[64:67]),
        Batch(tokens[70:110]),
        Batch(tokens[:1]),
        Batch(tokens[110:199], outputs=LAST),
        Batch(tokens[1:2]),
    )
    plan = plan_on(path, 2 * spec.n_expert_used + 1, misses="copy", prefill="stream")
    process = (lazy, threaded)[list(LAYOUTS).index(name) % 2]
    run = check_on_devices(oracle, process, path, plan, script, SETUP)
    _, prompted, refused = total(run.counts)
    assert prompted.misses > 0
    assert refused <= 2  # the one row of 89 tokens, where the last layer has experts and is pruned


@pytest.mark.parametrize("n_ubatch", [1, 9, 64, 512])
def test_an_ubatch_of_any_size_streams(n_ubatch: int, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """Of 1 token as well, where a token uses all slots but one; then the size of the ubatch changes, and comes back."""
    path = model_file(layout("qwen3moe", types={"*": "Q8_0"}))
    tokens = random_tokens(512, seed=8)
    setup = replace(ON_DEVICE, n_ubatch=max(n_ubatch, 64), n_ctx=2048)
    sizes = (n_ubatch, 33, n_ubatch, 2, n_ubatch)
    script: Steps = tuple(Batch(tokens[:size]) for size in sizes)
    run = check_on_devices(oracle, lazy, path, plan_on(path, 5, prefill="stream"), script, setup)
    generated, prompted, refused = total(run.counts)
    assert ((generated + prompted).lookups > 0, refused) == (True, 0)


def test_layers_on_two_devices_stream_on_both(model_file: ModelFile, oracle: Oracle, threaded: DeviceProcess) -> None:
    path = model_file(layout("gpt-oss", n_layer=4))
    setup = replace(SETUP, tensor_split=(1.0, 1.0))
    homes = ("CHAOS0", "CHAOS0", "CHAOS0", "CHAOS1")
    plan = plan_on(path, [6, 9], ("CHAOS0", "CHAOS1"), prefill="stream")
    run = check_on_devices(oracle, threaded, path, plan, steps(), setup, homes)
    assert all(group.prompt.hits and group.prompt.misses for group in run.counts)


def test_bypass_and_stream_are_told_apart_by_refusals(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    path = model_file(layout("qwen3moe"))
    script = steps_of(random_tokens(64), (1,))
    for prefill, n_refused, n_events in (("bypass", 3, 0), ("stream", 0, 3), ("auto", 0, 3)):
        run = lazy.run(path, plan_on(path, 8, prefill=prefill), SETUP, script)
        _, prompted, refused = total(run.counts)
        assert (refused, prompted.events) == (n_refused, n_events), prefill


def test_auto_leaves_to_the_cpu_what_llama_cpp_leaves_there(model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess) -> None:
    """While nothing is measured. 31 tokens are not offloaded, 32 are."""
    path = model_file(layout("qwen3moe"))
    script = steps_of(random_tokens(31), random_tokens(32), random_tokens(3), (1,))
    plan = replace(plan_on(path, 6, misses="copy", is_settled=False), prefill="auto")
    run = check_on_devices(oracle, lazy, path, plan, script, SETUP)
    generated, prompted, refused = total(run.counts)
    assert (generated.events, prompted.events, refused) == (3, 3, 6)
