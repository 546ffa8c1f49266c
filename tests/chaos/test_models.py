"""Models through unmodified llama.cpp on chaos devices: the bits of the plain CPU, no hazard, and counters that are exact."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slotpool import model as files
from testkit import syn
from testkit.oracle import EngineError, Oracle, Setup, assert_same_bits, steps_of

ModelFile = Callable[[syn.Spec], Path]
Python = Callable[..., subprocess.CompletedProcess[str]]

STEPS = steps_of(range(1, 41), [5], [6, 7, 8], [9])
MODELS = {
    "qwen3moe-Q4_K": syn.Spec(arch="qwen3moe", types={"*": "Q4_K"}),
    "gpt-oss-MXFP4": syn.Spec(arch="gpt-oss", types={"*": "MXFP4"}),
    "deepseek2-Q6_K-fused": syn.Spec(arch="deepseek2", n_layer=3, dense_lead=1, fused=True, types={"*": "Q6_K"}),
}
PLACES = {
    "one-device": Setup(n_gpu_layers=99, tensor_split=(1, 0)),
    "two-devices": Setup(n_gpu_layers=99, tensor_split=(0.5, 0.5)),
    "experts-on-cpu": Setup(n_gpu_layers=99, tensor_split=(1, 0), placed=(("exps", "CPU"),)),
    "experts-on-the-other": Setup(n_gpu_layers=99, tensor_split=(1, 0), placed=(("exps", "CHAOS1"),)),
    "half-the-layers": Setup(n_gpu_layers=1),
}


@pytest.fixture(scope="module", params=["lazy", "threaded"])
def on_chaos(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """Plain llama.cpp in a process with two chaos devices."""
    with Oracle(chaos={"devices": 2, "threaded": request.param == "threaded"}) as oracle:
        yield oracle


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", MODELS)
def test_bits_are_those_of_the_plain_cpu(oracle: Oracle, on_chaos: Oracle, model_file: ModelFile, name: str, place: str) -> None:
    path = model_file(MODELS[name])
    before = [on_chaos.chaos_counters(device) for device in (0, 1)]
    assert_same_bits(on_chaos.logits(path, PLACES[place], STEPS), oracle.logits(path, Setup(), STEPS))
    after = [on_chaos.chaos_counters(device) for device in (0, 1)]
    assert sum(c.graphs for c in after) > sum(c.graphs for c in before)
    assert [(c.hazards, c.failures) for c in after] == [(0, 0), (0, 0)]


def test_counters_of_a_model_are_exact(oracle: Oracle, model_file: ModelFile) -> None:
    path = model_file(MODELS["qwen3moe-Q4_K"])
    steps = steps_of(range(1, 41), [5], [6, 7, 8])
    with Oracle(chaos={"n_threads": 1}) as one:
        one.logits(path, Setup(n_gpu_layers=99), steps)
        counted = one.chaos_counters()
    # llama.cpp keeps the token embedding at the host
    tensors = [tensor for tensor in files.read(path).files[0].tensors if tensor.name != "token_embd.weight"]
    slabs = {(t.layer, t.role): t.slab_bytes for t in files.read(path).experts}
    events = [(layer, ids) for ubatch in oracle.routing(path, Setup(), steps) for (layer, _), ids in ubatch.ids.items()]
    assert counted.to_device_weights_blocking_bytes == sum(tensor.n_bytes for tensor in tensors)
    assert counted.to_device_weights_blocking_n == len(tensors)
    assert counted.expert_nodes == 3 * len(events)
    assert counted.expert_rows == 3 * sum(ids.size for _, ids in events)
    roles = {role for _, role in slabs}
    assert counted.expert_bytes == sum(len(np.unique(ids)) * slabs[layer, role] for layer, ids in events for role in roles)
    assert counted.graphs == 3
    assert (counted.bytes_now, counted.allocations - counted.frees) == (0, 0)


def test_log_shows_that_a_layer_is_one_split(model_file: ModelFile, python: Python) -> None:
    code = """
import json, sys
from pathlib import Path
from testkit.chaos import Chaos
from testkit.oracle import Setup, loaded, running, steps_of
chaos = Chaos.load(log_nodes=1000)
setup = Setup(n_gpu_layers=99)
with loaded(Path(sys.argv[1]), setup) as model, running(model, setup) as context:
    chaos.reset()
    context.run(steps_of([3, 4]))
    print(json.dumps([(n.graph, n.op, n.name, n.n_tokens) for n in chaos.graph_log() if n.op == "MUL_MAT_ID"]))
    assert len(chaos.graph_log()) == chaos.counters().nodes
    chaos.set(log_nodes=1)
    chaos.reset()
    context.run(steps_of([5]))
    assert len(chaos.graph_log()) == 1
"""
    seen = json.loads(said_by(python(code, model_file(MODELS["qwen3moe-Q4_K"]))))
    assert {graph for graph, _, _, _ in seen} == {1}
    assert [n_tokens for _, _, _, n_tokens in seen] == [2] * 6
    assert seen[0][2] in ("ffn_moe_gate-0", "ffn_moe_up-0")


def test_routing_is_seen_on_a_device_too(oracle: Oracle, model_file: ModelFile) -> None:
    path, steps = model_file(MODELS["gpt-oss-MXFP4"]), steps_of(range(1, 20), [5])
    with Oracle(chaos={}) as one:
        seen = one.routing(path, Setup(n_gpu_layers=99), steps)
    for got, want in zip(seen, oracle.routing(path, Setup(), steps), strict=True):
        assert got.ids.keys() == want.ids.keys()
        assert all((got.ids[place] == want.ids[place]).all() for place in want.ids)


def test_signed_results_change_the_logits(oracle: Oracle, model_file: ModelFile) -> None:
    path, setup = model_file(MODELS["qwen3moe-Q4_K"]), Setup(n_gpu_layers=99)
    with Oracle(chaos={"sign": 1}) as signed:
        got = signed.logits(path, setup, STEPS)
    want = oracle.logits(path, Setup(), STEPS)
    assert all((a != b).any() for a, b in zip(got, want, strict=True))
    # a last bit may turn a router's choice, so a few rows differ a lot; a batch may be one such row
    mine, theirs = (np.concatenate(bits).view(np.float32) for bits in (got, want))
    assert np.isclose(mine, theirs, rtol=1e-3, atol=1e-3).mean() > 0.5


@pytest.mark.parametrize("knobs", [{"total_bytes": 1e6}, {"fail_above_bytes": 1e5}, {"fail_after_bytes": 0}])
def test_memory_that_ends_is_an_engine_error(model_file: ModelFile, knobs: dict[str, float]) -> None:
    with Oracle(chaos=knobs) as small:
        with pytest.raises(EngineError):
            small.logits(model_file(MODELS["qwen3moe-Q4_K"]), Setup(n_gpu_layers=99), STEPS)
        counted = small.chaos_counters()
    assert counted.failed_allocations > 0
    assert counted.bytes_now == 0


def test_slow_cpu_computes_the_same_and_takes_its_time(oracle: Oracle, model_file: ModelFile) -> None:
    path = model_file(MODELS["qwen3moe-Q4_K"])
    steps = steps_of([1, 2, 3], [5])
    slab_bytes = {t.layer: t.slab_bytes for t in files.read(path).experts}
    events = [(layer, ids) for ubatch in oracle.routing(path, Setup(), steps) for (layer, _), ids in ubatch.ids.items()]
    n_bytes = 3 * sum(len(np.unique(ids)) * slab_bytes[layer] for layer, ids in events)
    with Oracle(chaos={"cpu_ns_per_byte": 1e9 / n_bytes}) as slow:
        began = time.monotonic()
        got = slow.logits(path, replace(Setup(), n_gpu_layers=0), steps)
        taken = time.monotonic() - began
    assert_same_bits(got, oracle.logits(path, Setup(), steps))
    assert taken >= 1


def test_integrated_device_is_used_like_one(oracle: Oracle, model_file: ModelFile, python: Python) -> None:
    code = "from testkit.chaos import Chaos; from slotpool import engine; Chaos.load(integrated=1); print(engine.devices()[-1].type)"
    assert said_by(python(code)) == "IGPU"
    path, steps = model_file(MODELS["qwen3moe-Q4_K"]), steps_of([1, 2])
    with Oracle(chaos={"integrated": 1}) as integrated:
        assert_same_bits(integrated.logits(path, Setup(n_gpu_layers=99), steps), oracle.logits(path, Setup(), steps))
        assert integrated.chaos_counters().graphs > 0


def said_by(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.splitlines()[-1]
