"""Where parts of a model can be: routers, experts, biases and layers on the host; contexts and models side by side; sequences, shifts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import llama_cpp
import pytest

from slotpool.plan import Plan
from testkit import syn
from testkit.cases import N_USED, layout, random_tokens, varied_steps
from testkit.oracle import (
    LAST,
    ON_DEVICE,
    Batch,
    Bits,
    DeviceProcess,
    DeviceRun,
    Oracle,
    Setup,
    Steps,
    assert_same_bits,
    check_on_devices,
    expected_counts,
    plan_on,
    pooled,
    steps_of,
    total,
)
from testkit.oracle.devices import chaos, seen

ModelFile = Callable[[syn.Spec], Path]

SETUP = replace(ON_DEVICE, n_ubatch=12)
PLAIN = replace(SETUP, n_gpu_layers=0, tensor_split=())
MODES = ("copy", "cpu", "auto", "frozen")
SPEC = layout("qwen3moe")
BIASED = layout("gpt-oss")
SPECS = {"qwen3moe": SPEC, "gpt-oss": BIASED, "grovemoe": layout("grovemoe"), "granite-fused": layout("granite_swa", fused=True)}


@pytest.mark.parametrize("misses", MODES)
@pytest.mark.parametrize(
    "placed",
    [
        pytest.param((("ffn_gate_inp", "CPU"),), id="routers"),
        pytest.param((("_exps", "CPU"),), id="experts-with-biases"),
        pytest.param((("_exps\\.weight", "CPU"),), id="experts-without-biases"),
        pytest.param((("ffn_.*_exps", "CPU"), ("ffn_gate_inp", "CPU")), id="experts-and-routers"),
        pytest.param((("blk\\.1\\.ffn_down_exps", "CPU"),), id="one-tensor"),
        pytest.param((("attn", "CPU"),), id="attention"),
        pytest.param((("token_embd|output", "CPU"),), id="ends"),
    ],
)
@pytest.mark.parametrize("arch", SPECS)
def test_parts_that_the_user_keeps_on_the_host(
    arch: str,
    placed: tuple[tuple[str, str], ...],
    misses: str,
    model_file: ModelFile,
    oracle: Oracle,
    lazy: DeviceProcess,
    threaded: DeviceProcess,
) -> None:
    """`-ot` of every kind: experts lie in the store whoever put them there, and slots stay on the device of the layer."""
    path = model_file(SPECS[arch])
    devices = (lazy, threaded)[(list(SPECS).index(arch) + MODES.index(misses)) % 2]
    check_on_devices(oracle, devices, path, plan_on(path, N_USED + 1, misses=misses), varied_steps(), replace(SETUP, placed=placed))


@pytest.mark.parametrize("n_gpu_layers", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("misses", ["copy", "cpu"])
def test_layers_on_the_host_keep_their_experts_there(
    misses: str, n_gpu_layers: int, model_file: ModelFile, oracle: Oracle, lazy: DeviceProcess
) -> None:
    """A plan for two devices leaves it to the layer: one that lives on the host has no slots, and is not touched."""
    path = model_file(SPEC)
    plan = plan_on(path, N_USED + 1, ("CHAOS0", "CHAOS1"), misses=misses)
    setup = replace(SETUP, n_gpu_layers=n_gpu_layers)
    plain = replace(setup, n_gpu_layers=0, tensor_split=())
    run = lazy.run(path, plan, setup, varied_steps())
    assert_same_bits(run.bits, oracle.logits(path, plain, varied_steps()))
    assert run.hazard == ""
    # the engine counts the output layer, which goes first
    n_here = max(0, n_gpu_layers - 1)
    assert [group.device for group in run.counts] == ["CPU"] * (3 - n_here) + ["CHAOS0"] * n_here
    assert [(group.generation + group.prompt).lookups > 0 for group in run.counts] == [False] * (3 - n_here) + [True] * n_here


@pytest.mark.parametrize("misses", MODES)
@pytest.mark.parametrize("n_tokens", [2, 3, 4, 5, 8])
def test_verified_drafts_of_any_length(n_tokens: int, misses: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess) -> None:
    path = model_file(SPEC)
    tokens = random_tokens(12 * n_tokens, n_tokens)
    steps = tuple(Batch(tokens[i : i + n_tokens]) for i in range(0, len(tokens), n_tokens))
    slots = min(16, N_USED * n_tokens)
    generated, prompted, refused = total(check_on_devices(oracle, devices, path, plan_on(path, slots, misses=misses), steps, SETUP).counts)
    assert (generated.events, prompted.events, refused) == (12 * 3, 0, 0)


@pytest.mark.parametrize("kv_unified", [False, True], ids=["kv-split", "kv-unified"])
@pytest.mark.parametrize("misses", MODES)
def test_sequences_that_come_and_go(misses: str, kv_unified: bool, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess) -> None:
    path, setup = model_file(SPEC), replace(SETUP, n_seq=3, kv_unified=kv_unified)
    steps: Steps = (
        Batch((1, 2, 3, 4), (0, 0, 0, 1)),
        Batch((9, 8), (0, 1)),
        Batch((9,), (2,)),
        Batch((5, 6, 7), (2, 0, 1)),
        Batch(tuple(range(30)), (2,) * 30, LAST),
        Batch((11,), (0,)),
        Batch((12,), (2,)),
        Batch((13, 14), (2, 0)),
    )
    for slots in (4, 12):
        check_on_devices(oracle, devices, path, plan_on(path, slots, misses=misses), steps, setup)


@pytest.mark.parametrize("policy", ["decay", "lru"])
@pytest.mark.parametrize("misses", MODES)
def test_a_prompt_and_a_long_answer_in_the_background(
    misses: str, policy: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    """Not settled: hits depend on when copies arrive, bits do not."""
    path = model_file(SPEC)
    steps = (Batch(random_tokens(60), outputs=LAST), *(Batch((token,)) for token in random_tokens(100, 4)))
    check_on_devices(oracle, devices, path, plan_on(path, 6, misses=misses, policy=policy, is_settled=False), steps, SETUP)


# ---- contexts and models side by side, in the process of the devices ----


@pytest.mark.parametrize("misses", ["cpu", "auto"])
def test_as_many_slots_as_a_token_uses_still_fill_in_the_background(
    misses: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    """No slot is left over for copies on their way while rows of the CPU take part; the free ones are filled all the same."""
    path = model_file(SPEC)
    run = check_on_devices(
        oracle, devices, path, plan_on(path, N_USED, misses=misses, is_settled=False), steps_of(*[(1 + i % 3,) for i in range(24)]), SETUP
    )
    generation = total(run.counts)[0]
    assert generation.hits > 0


def tokens(first: int, n: int = 12) -> Steps:
    return (*(Batch(((first + 7 * i) % 250,)) for i in range(n)), Batch(tuple(range(first, first + 20))), *steps_of((first,), (first + 7,)))


def in_turns(path: Path, plan: Plan, first: Steps, second: Steps) -> tuple[list[Bits], list[Bits], DeviceRun]:
    with pooled(path, plan, SETUP) as model:
        chaos().reset()
        other = model.context()
        pairs = [(model.first.step(a), other.step(b)) for a, b in zip(first, second, strict=True)]
        run = seen(model, [])
    return [a for a, _ in pairs if a is not None], [b for _, b in pairs if b is not None], run


@pytest.mark.parametrize("misses", MODES)
def test_two_contexts_take_turns_and_keep_their_own_pools(
    misses: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    path, first, second = model_file(SPEC), tokens(3), tokens(40)
    plan = plan_on(path, 6, misses=misses)
    bits_first, bits_second, run = devices.call(in_turns, path, plan, first, second)
    assert_same_bits(bits_first, oracle.logits(path, PLAIN, first))
    assert_same_bits(bits_second, oracle.logits(path, PLAIN, second))
    if misses != "auto":
        assert run.counts == expected_counts(plan, oracle.routing(path, PLAIN, first), oracle.routing(path, PLAIN, second))
    assert (run.hazard, run.off) == ("", [""] * 3)


def twice(paths: tuple[Path, Path], plans: tuple[Plan, Plan], steps: Steps) -> tuple[list[Bits], list[Bits], str]:
    with pooled(paths[0], plans[0], SETUP) as one, pooled(paths[1], plans[1], SETUP) as two:
        chaos().reset()
        bits = [(one.first.step(step), two.first.step(step)) for step in steps[:8]]
        one.close()
        rest = two.run(steps[8:])
    return [a for a, _ in bits if a is not None], [b for _, b in bits if b is not None] + rest, chaos().first_hazard()


@pytest.mark.parametrize("misses", ["copy", "cpu"])
@pytest.mark.parametrize("other", ["same", "gpt-oss"])
def test_two_models_on_one_device_keep_apart(
    other: str, misses: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    """The same file twice, or two files; one is closed while the other goes on."""
    paths, steps = (model_file(SPEC), model_file(SPEC if other == "same" else BIASED)), tokens(3)
    plans = (plan_on(paths[0], 5, misses=misses), plan_on(paths[1], 9, misses=misses))
    first, second, hazard = devices.call(twice, paths, plans, steps)
    assert_same_bits(first, oracle.logits(paths[0], PLAIN, steps[:8]))
    assert_same_bits(second, oracle.logits(paths[1], PLAIN, steps))
    assert hazard == ""


def again_and_again(path: Path, plan: Plan, steps: Steps, n: int) -> tuple[list[list[Bits]], list[int]]:
    """A model that is freed and loaded again; what stays on the device each time, in bytes."""
    bits, kept = [], []
    for _ in range(n):
        with pooled(path, plan, SETUP) as model:
            bits.append(model.run(steps))
        kept.append(chaos().counters(0).bytes_now)
    return bits, kept


@pytest.mark.parametrize("misses", ["copy", "cpu"])
@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss"])
def test_a_model_that_is_freed_leaves_nothing_on_the_device(
    arch: str, misses: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    path, steps = model_file(SPECS[arch]), tokens(3, 6)
    bits, kept = devices.call(again_and_again, path, plan_on(path, 6, misses=misses), steps, 4)
    for one in bits:
        assert_same_bits(one, oracle.logits(path, PLAIN, steps))
    assert kept == [0] * 4


def shifted(path: Path, plan: Plan | None, setup: Setup, steps: Steps) -> list[Bits]:
    """The oldest tokens go, and the cache moves: the engine computes a shift between two steps."""
    from testkit.oracle import loaded, running

    def run(context: object) -> list[Bits]:
        bits = context.run(steps)  # type: ignore[attr-defined]
        memory = llama_cpp.llama_get_memory(context.handle)  # type: ignore[attr-defined]
        llama_cpp.llama_memory_seq_rm(memory, 0, 0, 8)
        llama_cpp.llama_memory_seq_add(memory, 0, 8, -1, -8)
        context._n_past[0] -= 8  # type: ignore[attr-defined]
        return bits + context.run(steps)  # type: ignore[attr-defined]

    if plan is None:
        with loaded(path, setup) as model, running(model, setup) as context:
            return run(context)
    with pooled(path, plan, setup) as pooled_model:
        return run(pooled_model.first)


@pytest.mark.parametrize("misses", MODES)
def test_a_shift_of_the_cache_between_two_steps(misses: str, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess) -> None:
    """No logits of the CPU to compare with: the shift itself runs on the device. So the same device without slots."""
    path, steps = model_file(SPEC), tokens(3, 6)
    with DeviceProcess({"devices": 2}) as fresh:
        plain = fresh.call(shifted, path, None, replace(SETUP, placed=(("exps", "CPU"),)), steps)
    assert_same_bits(devices.call(shifted, path, plan_on(path, 6, misses=misses), SETUP, steps), plain)


@pytest.mark.parametrize("n_seq", [1, 16])
@pytest.mark.parametrize("misses", MODES)
def test_a_prompt_without_outputs_in_a_context_of_many_sequences(
    misses: str, n_seq: int, model_file: ModelFile, oracle: Oracle, devices: DeviceProcess
) -> None:
    """Graphs reserved for many sequences have nothing for the pool; the last layer of such a prompt has no rows, and no memory either."""
    path, setup = model_file(SPEC), replace(SETUP, n_ubatch=64, n_seq=n_seq)
    steps: Steps = (Batch(tuple(range(1, 40)), outputs="none"), *steps_of((7,), (9,)))
    run = check_on_devices(oracle, devices, path, plan_on(path, N_USED + 1, misses=misses), steps, setup)
    assert [group.refused for group in run.counts] == [1] * len(run.counts)
