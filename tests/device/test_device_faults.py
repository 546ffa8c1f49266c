"""What goes wrong in a run: ids outside the tensor, aborts, contexts that are freed while copies are on their way, damaged slots.

And who computed what: a device that signs its rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import llama_cpp
import pytest

from slotpool import engine
from slotpool.plan import Plan
from testkit import syn
from testkit.cases import layout
from testkit.oracle import (
    ON_DEVICE,
    Batch,
    Bits,
    BitsDifferError,
    Context,
    DeviceProcess,
    EngineError,
    Oracle,
    Steps,
    assert_same_bits,
    plan_on,
    pooled,
    steps_of,
)
from testkit.oracle.devices import chaos
from testkit.oracle.routing import _Tensor

ModelFile = Callable[[syn.Spec], Path]

SPEC = layout("qwen3moe")
SETUP = replace(ON_DEVICE, n_ubatch=16)
PLAIN = replace(SETUP, n_gpu_layers=0, tensor_split=())
STEPS: Steps = steps_of((1,), (2,), (3, 4, 5), (1,), (2,), range(12), (7,), (1,))
MODES = ("copy", "cpu", "auto", "frozen")


# ---- ids outside the tensor ----


def spoiled(path: Path, plan: Plan, bad: int, before: Steps, after: Steps) -> tuple[list[Bits], str, str, list[Bits]]:
    """Between the two a token whose second id in layer 1 is `bad`; what was said then, and where it went wrong."""
    set_bytes = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(
        engine.function_address("ggml_backend_tensor_set")
    )
    is_on, ids = [False], [0]

    def watch(node: int, ask: bool) -> bool:
        name = _Tensor.from_address(node).name
        if name == b"ffn_moe_argsort-1":
            ids[0] = node
        # the last that uses the ids before the experts do: a device that looked up weights with them would fail for good
        is_last = name == b"ffn_moe_weights_norm-1"
        if is_last and not ask and is_on[0]:
            value = ctypes.c_int32(bad)
            set_bytes(ids[0], ctypes.addressof(value), 4, 4)
        return is_last or not ask

    with pooled(path, plan, SETUP) as model:
        assert model._model
        context = Context(model._model, SETUP, watch)
        try:
            bits = context.run(before)
            is_on[0] = True
            said = ""
            try:
                context.step(Batch((9,)))
            except EngineError as error:
                said = str(error)
            failure = model.session.take_failure()
            is_on[0] = False
            return bits, said, failure, context.run(after)
        finally:
            context.close()


@pytest.mark.parametrize("bad", [-1, 16, 0x7F7FFFFF, -(2**31)])
@pytest.mark.parametrize("misses", MODES)
def test_an_id_outside_the_tensor_fails_its_request_alone(
    misses: str, bad: int, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    """R06: one clear error; process, pool and the next request live."""
    path = model_file(SPEC)
    bits, said, failure, after = devices.call(spoiled, path, plan_on(path, 6, misses=misses), bad, STEPS[:4], STEPS[4:])
    assert said == "expected llama_decode of 1 tokens to return 0, got -3"
    assert failure.startswith("Expected expert ids from 0 to 15 in blk.1.ffn_")
    assert_same_bits(bits + after, oracle.logits(path, PLAIN, STEPS))


# ---- aborts ----


def aborted(path: Path, plan: Plan, n_calls: int, steps: Steps) -> tuple[list[Bits], int, str]:
    """Before every step the same step is begun and aborted at the n-th question; how many were."""
    left, n_aborted, bits = [-1], 0, []

    def is_over(_: object) -> bool:
        left[0] -= 1
        return left[0] == 0

    with pooled(path, plan, SETUP) as model:
        callback = llama_cpp.ggml_abort_callback(is_over)
        llama_cpp.llama_set_abort_callback(model.first.handle, callback, None)
        for step in steps:
            left[0] = n_calls
            try:
                bits += model.run((step,))
            except EngineError as error:
                if not str(error).endswith("got 2"):
                    raise
                n_aborted += 1
                left[0] = -1
                bits += model.run((step,))
        return bits, n_aborted, chaos().first_hazard()


@pytest.mark.parametrize("n_calls", [1, 2, 5, 17])
@pytest.mark.parametrize("misses", ["cpu", "frozen"])
def test_an_aborted_request_leaves_the_pool_whole(
    misses: str, n_calls: int, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    path, steps = model_file(SPEC), steps_of(*((token % 50,) for token in range(0, 300, 7)))
    bits, n_aborted, hazard = devices.call(aborted, path, plan_on(path, 6, misses=misses, is_settled=False), n_calls, steps)
    assert n_aborted > 0
    assert hazard == ""
    assert_same_bits(bits, oracle.logits(path, PLAIN, steps))


# ---- contexts that go while copies are on their way ----


def freed_often(path: Path, plan: Plan, n: int, steps: Steps) -> tuple[list[list[Bits]], int, str]:
    """With a slow link: every context is freed right after a step whose admitted experts are still being copied."""
    with pooled(path, plan, SETUP) as model:
        model.first.close()
        before = chaos().counters(0).bytes_now
        chaos().set(0, link_bytes_per_second=200e6)
        try:
            bits = []
            for _ in range(n):
                context = model.context()
                bits.append(context.run(steps))
                context.close()
            return bits, chaos().counters(0).bytes_now - before, chaos().first_hazard()
        finally:
            chaos().set(0, link_bytes_per_second=0)


@pytest.mark.parametrize("misses", ["cpu", "auto", "frozen"])
def test_a_context_is_freed_while_copies_are_on_their_way(
    misses: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    path, steps = model_file(SPEC), STEPS[:2]
    bits, n_leaked, hazard = devices.call(freed_often, path, plan_on(path, 8, misses=misses, is_settled=False), 25, steps)
    for one in bits:
        assert_same_bits(one, oracle.logits(path, PLAIN, steps))
    assert (n_leaked, hazard) == (0, "")


def outlived(path: Path, plan: Plan, n: int, steps: Steps) -> tuple[list[list[Bits]], int, str]:
    """Over a link on which a copy takes longer than a token: a model goes before its context, whose copies read its memory."""
    bits, before = [], chaos().counters(0).bytes_now
    chaos().set(0, link_bytes_per_second=5e6)
    try:
        for _ in range(n):
            with pooled(path, plan, SETUP) as model:
                bits.append(model.run(steps))
                assert model._model
                model._model.close()
        return bits, chaos().counters(0).bytes_now - before, chaos().first_hazard()
    finally:
        chaos().set(0, link_bytes_per_second=0)


@pytest.mark.parametrize("misses", ["cpu", "auto", "frozen"])
def test_a_model_is_freed_before_its_context_while_copies_are_on_their_way(
    misses: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    path, steps = model_file(SPEC), STEPS[:2]
    bits, n_leaked, hazard = devices.call(outlived, path, plan_on(path, 8, misses=misses, is_settled=False), 5, steps)
    for one in bits:
        assert_same_bits(one, oracle.logits(path, PLAIN, steps))
    assert (n_leaked, hazard) == (0, "")


# ---- damage ----


def damaged(path: Path, plan: Plan, swap_slots: bool, group: int, steps: Steps) -> tuple[list[Bits], int]:
    with pooled(path, plan, SETUP) as model:
        bits = model.run(steps[:1])
        n_touched = model.session.corrupt(group, swap_slots=swap_slots)
        return bits + model.run(steps[1:]), n_touched


@pytest.mark.parametrize("group", [0, 2])
@pytest.mark.parametrize("swap_slots", [True, False], ids=["wrong-slot-map", "one-byte-per-slot"])
@pytest.mark.parametrize("misses", MODES)
def test_damaged_slots_are_caught(
    misses: str, swap_slots: bool, group: int, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess
) -> None:
    path, twice = model_file(SPEC), steps_of((0, 1, 2), (0, 1, 2))
    bits, n_touched = lazy.call(damaged, path, plan_on(path, 12, misses=misses), swap_slots, group, twice)
    plain = oracle.logits(path, PLAIN, twice)
    assert n_touched > 0
    assert_same_bits(bits[:1], plain[:1])
    with pytest.raises(BitsDifferError, match="batch 1"):
        assert_same_bits(bits, plain)


# ---- signed rows ----

SIGNED = {"devices": 1, "sign": 1}
SINGLE = replace(SETUP, tensor_split=())


def test_in_copy_mode_every_row_is_the_device_s_own_in_its_own_shape(model_file: ModelFile) -> None:
    """A plain run on a device that signs, experts and all, is what slots on it must give: tokens and k of every call are part of it."""
    path = model_file(SPEC)
    with Oracle(SIGNED) as on_device, DeviceProcess(SIGNED) as signing, Oracle() as unsigned:
        plain = on_device.logits(path, SINGLE, STEPS)
        assert_same_bits(signing.run(path, plan_on(path, "all"), SINGLE, STEPS).bits, plain)
        with pytest.raises(BitsDifferError):
            assert_same_bits(plain, unsigned.logits(path, PLAIN, STEPS))


def test_in_cpu_mode_the_host_s_rows_carry_no_signature(model_file: ModelFile, oracle: Oracle) -> None:
    """A cold pool's first token: all four experts of each layer are misses, so nothing of it is the device's; its second time all is."""
    path, steps = model_file(SPEC), steps_of((1,), (1,))
    with Oracle(SIGNED) as on_device, DeviceProcess(SIGNED) as signing:
        run = signing.run(path, plan_on(path, "all", misses="cpu"), SINGLE, steps)
        plain, signed = oracle.logits(path, PLAIN, steps), on_device.logits(path, SINGLE, steps)
    assert [(g.generation.rows_cpu, g.generation.rows_hit) for g in run.counts] == [(4, 4)] * 3
    assert_same_bits(run.bits[:1], plain[:1])
    with pytest.raises(BitsDifferError):
        assert_same_bits(run.bits[1:], plain[1:])
    assert signed[0].tolist() != plain[0].tolist()


def test_the_process_of_devices_is_replaced_when_it_dies(model_file: ModelFile) -> None:
    with DeviceProcess({"devices": 1}) as devices:
        with pytest.raises(RuntimeError):
            devices.call(ctypes.string_at, 0)
        assert devices.call(abs, -1) == 1
