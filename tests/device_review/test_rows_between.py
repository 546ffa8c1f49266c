"""Adapters that read what stands between a layer's expert matmuls: rows that the CPU served must exist there as well."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest

from slotpool import model as files
from slotpool import plan as plans
from testkit import syn
from testkit.chaos.process import process
from testkit.oracle import Bits, Setup, assert_same_bits, pooled, steps_of
from testkit.oracle.engine import Context, Model, loaded, running

RANK = 4
SPEC = syn.Spec()
SETUP = Setup(n_gpu_layers=99)
STEPS = steps_of(range(1, 6), *([token] for token in range(5, 17)), [7, 8, 9], [9])


@pytest.mark.parametrize("misses", ["copy", "cpu", "auto"])
@pytest.mark.parametrize("roles", [("down",), ("gate", "up", "down")], ids="+".join)
def test_an_adapter_sees_every_row(roles: tuple[str, ...], misses: str, model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    path, adapter = model_file(SPEC), tmp_path / "lora.gguf"
    _write(adapter, path, roles)
    with process({}) as beside:
        got, expected, n_cpu_rows = beside.submit(runs, path, adapter, misses).result()
    assert_same_bits(got, expected)
    assert (n_cpu_rows > 0) == (misses != "copy")


def runs(path: Path, adapter: Path, misses: str) -> tuple[list[Bits], list[Bits], int]:
    """In a process with a device: pooled, plain, and how many rows the CPU served."""
    with loaded(path, SETUP) as model, running(model, SETUP) as context:
        _adapt(model, context, adapter)
        expected = context.run(STEPS)
    made = plans.make(files.read(path), 6, poison=True)
    groups = tuple(replace(group, device="auto") for group in made.groups)
    made = replace(made, devices=(plans.PlannedDevice("CHAOS0", 6, None, 0),), misses=misses, is_settled=True, groups=groups)
    with pooled(path, made, SETUP) as run:
        assert run._model
        _adapt(run._model, run.first, adapter)
        return run.run(STEPS), expected, sum(c.generation.rows_cpu for c in run.counts())


def _adapt(model: Model, context: Context, adapter: Path) -> None:
    made = llama_cpp.llama_adapter_lora_init(model.handle, str(adapter).encode())
    assert made
    assert (
        llama_cpp.llama_set_adapters_lora(context.handle, (llama_cpp.llama_adapter_lora_p_ctypes * 1)(made), 1, (ctypes.c_float * 1)(0.5))
        == 0
    )


def _write(adapter: Path, path: Path, roles: tuple[str, ...]) -> None:
    """An adapter of rank 4 on the experts of these roles, each expert with factors of its own."""
    random = np.random.default_rng(3)
    writer = gguf.GGUFWriter(adapter, SPEC.arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    for tensor in files.read(path).experts:
        n_in, n_out = (SPEC.n_ff_exp, SPEC.n_embd) if tensor.role == "down" else (SPEC.n_embd, SPEC.n_ff_exp)
        factors = {"lora_a": (SPEC.n_expert, RANK, n_in), "lora_b": (SPEC.n_expert, n_out, RANK)}
        for name, shape in factors.items() if tensor.role in roles else ():
            writer.add_tensor(f"{tensor.name}.{name}", random.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
