"""Recording where experts or routers are on a device that no pointer reaches: through the callback, and through a pool on the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from slotpool import engine, loading, recording, trace
from testkit import syn
from testkit.chaos.process import here, process

SPEC = syn.Spec(n_layer=3, n_expert=12, n_expert_used=3, router="rigged")
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 53, 58, 97, 9, 32]


def rigged(layer: int) -> np.ndarray:
    return np.array([syn.rigged_ids(SPEC, layer, token) for token in TOKENS], np.int32)


def test_the_callback_reads_routers_on_a_device(model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    with process({}) as beside:
        n_graphs = beside.submit(record, model_file(SPEC), tmp_path / "a").result()
    assert n_graphs > 0  # the device did compute
    found = trace.open(tmp_path / "a")
    for group in found.groups:
        assert np.array_equal(group.ids, rigged(group.layer))
        assert group.weights is not None
        assert np.allclose(group.weights.sum(axis=1), 1, atol=2e-3)
        assert group.ranking is not None
        assert np.array_equal(group.ranking[:, :3], group.ids)


def record(path: Path, out: Path) -> int:
    """In a process with a device."""
    devices = here()
    assert devices
    settings = recording.Settings(n_threads=1, has_ranking=True)
    recording.record(path, [recording.Text("a", tokens=TOKENS)], out, settings)
    return devices.counters().graphs


def test_the_core_records_a_pool_on_a_device(model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    with process({}) as beside:
        n_lookups = beside.submit(run_pooled, model_file(SPEC), tmp_path / "a").result()
    assert n_lookups == 3 * 3 * len(TOKENS)
    found = trace.open(tmp_path / "a")
    assert found.is_complete
    assert found.n_dropped == 0
    for group in found.groups:
        assert np.array_equal(group.ids, rigged(group.layer))


def run_pooled(path: Path, out: Path) -> int:
    """In a process with a device."""
    name = next(device.name for device in engine.devices() if "chaos" in device.name.lower())
    llm = loading.load(path, 8, device=[name], n_ctx=64, n_threads=1, n_threads_batch=1, trace_path=out)
    for token in TOKENS:
        llm.eval([token])
    n_lookups = loading.read_stats(llm)["lookups"]
    llm.close()
    return n_lookups
