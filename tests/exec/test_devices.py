"""`slotpool exec` with slots on a device that is the program's own: an RPC server of llama.cpp, or the chaos devices.

What a program writes with slots on a device is what it writes alone with everything on that device; experts lie in host memory then, and
nobody has to say so. Where the pool cannot be, everything is as without slotpool and the line at exit says why.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotpool.errors import REFUSED
from testkit import syn
from tests.exec.conftest import SPEC, Exec, chaos_counts, environment, load_programs, pool_lines
from tests.exec.test_llama_cpp import ends_as_it_should, has_estimate, lookups, serving, until_whole
from tests.exec.test_llama_cpp import text_file as text_file

RPC = ("--slots", 8, "--miss", "copy", "--device", "RPC0", "--rail", 0)
CHAOS = ("--slots", 8, "--miss", "copy", "--device", "CHAOS0", "--rail", 0)
GENERATED = 16
LEAST_LOOKUPS = (GENERATED - 1) * SPEC.n_layer * SPEC.n_expert_used


def completion(programs: Path, path: Path, *more: object) -> list[object]:
    prompt = "Once upon a time there was a pool of experts"
    return [programs / "llama-completion", "-m", path, "-p", prompt, "-n", GENERATED, "--temp", 0, "-t", 1, "-no-cnv", *more]


def text_of(run: Exec, *arguments: Any, **more: Any) -> tuple[str, str]:
    """stdout and stderr of a program that ends well."""
    done = until_whole(ends_as_it_should, lambda *given: run(*given, **more), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


# ---- an RPC server ----


@pytest.mark.parametrize(
    "options", [RPC, (*RPC, "--device-budget", "64MiB"), ("--device", "RPC0", "--miss", "copy")], ids=["slots", "budget", "auto"]
)
def test_completion_over_rpc_writes_the_same(
    run: Exec, slotpool_exec: Exec, programs: Path, model_path: Path, rpc_server: str, options: tuple[object, ...]
) -> None:
    program = completion(programs, model_path, "--rpc", rpc_server)
    alone, _ = text_of(run, program)
    pooled, said = text_of(slotpool_exec, options, program)
    assert pooled == alone
    assert lookups(said) >= LEAST_LOOKUPS


def test_perplexity_over_rpc_is_the_same_number(
    run: Exec, slotpool_exec: Exec, programs: Path, model_path: Path, rpc_server: str, text_file: Path
) -> None:
    def final(done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 0, done.stderr
        (line,) = re.findall(r"Final estimate: (.*)", done.stdout + done.stderr)
        return str(line)

    program = [programs / "llama-perplexity", "-m", model_path, "-f", text_file, "-c", 128, "-t", 1, "--rpc", rpc_server]
    options = ("--slots", "all", *RPC[2:])  # whole ubatches go through the pool
    pooled = until_whole(has_estimate, slotpool_exec, options, program)
    assert final(pooled) == final(until_whole(has_estimate, run, program))
    assert lookups(pooled.stderr) > 0


def test_bench_over_rpc_has_its_experts_in_the_store_without_a_flag(
    slotpool_exec: Exec, programs: Path, model_path: Path, rpc_server: str
) -> None:
    program = [programs / "llama-bench", "-m", model_path, "-r", 1, "-t", 1, "-o", "json", "--no-warmup", "--rpc", rpc_server]
    done = slotpool_exec(RPC, [*program, "-p", 0, "-n", 16])
    assert done.returncode == 0, done.stderr
    assert [row["n_gen"] for row in json.loads(done.stdout)] == [16]
    assert lookups(done.stderr) == 16 * SPEC.n_layer * SPEC.n_expert_used


def test_server_over_rpc_answers_the_same(programs: Path, model_path: Path, rpc_server: str, tmp_path: Path) -> None:
    program = [programs / "llama-server", "-m", model_path, "--rpc", rpc_server]
    with serving(program, None, tmp_path) as server:
        alone = server.complete()
        server.end(signal.SIGINT)
    with serving(program, RPC, tmp_path) as server:
        answer = server.complete()
        said = server.end(signal.SIGINT)
    assert answer["tokens"] == alone["tokens"]
    assert lookups(said) >= 23 * SPEC.n_layer * SPEC.n_expert_used


def test_a_program_with_backends_in_libraries_of_their_own(run: Exec, slotpool_exec: Exec, model_path: Path, rpc_server: str) -> None:
    made = load_programs()
    folder = made.find("dynamic")
    if folder is None:
        pytest.skip(f"llama.cpp's programs with backends of their own are not built yet: {made.COMMAND} PRESET=dynamic")
    program = completion(folder, model_path, "--rpc", rpc_server)
    alone, _ = text_of(run, program)
    pooled, said = text_of(slotpool_exec, RPC, program)
    assert pooled == alone
    assert lookups(said) >= LEAST_LOOKUPS


@pytest.mark.parametrize("draft", [{"n_expert": 8}, {"seed": 2}, {"seed": 1}], ids=["other shapes", "same shapes", "the same file"])
def test_a_draft_on_the_device_has_no_part_in_the_pool(
    programs: Path, model_path: Path, model_file: Callable[[syn.Spec], Path], rpc_server: str, tmp_path: Path, draft: dict[str, int]
) -> None:
    other = model_file(replace(SPEC, **draft))  # type: ignore[arg-type]
    program = [programs / "llama-server", "-m", model_path, "--rpc", rpc_server, "-md", other]
    program += ["--spec-type", "draft-simple", "--spec-draft-n-max", 3]
    with serving(program, None, tmp_path) as server:
        alone = server.complete()
        server.end(signal.SIGINT)
    with serving(program, RPC, tmp_path) as server:
        answer = server.complete()
        said = server.end(signal.SIGINT)
    assert answer["tokens"] == alone["tokens"]
    assert answer["timings"]["draft_n"] == alone["timings"]["draft_n"] > 0
    assert answer["timings"]["draft_n_accepted"] == alone["timings"]["draft_n_accepted"]
    assert lookups(said) > 0


# ---- no such device ----


@pytest.mark.parametrize("wrong", ["RPC7", "CHAOS0,CUDA3"])
def test_without_the_device_everything_is_as_without_slots_and_the_line_says_why(
    run: Exec, slotpool_exec: Exec, programs: Path, model_file: Callable[[syn.Spec], Path], wrong: str
) -> None:
    # Q4_K experts: the CPU repacks them, and computes other last bits from them, unless somebody keeps it from that
    path = model_file(replace(SPEC, types={"*": "Q4_K"}))
    program = completion(programs, path)
    alone, _ = text_of(run, program)
    pooled, said = text_of(slotpool_exec, ("--slots", 8, "--device", wrong), program)
    assert pooled == alone
    names = " or ".join(wrong.split(","))
    assert pool_lines(said) == [f"slotpool: pool off: the program has no device {names}: its --list-devices shows those it has"]
    done = slotpool_exec(("--slots", 8, "--device", wrong, "--require-pool"), program)
    assert done.returncode == REFUSED


def test_without_the_device_no_expert_is_in_the_store(slotpool_exec: Exec, programs: Path, model_path: Path) -> None:
    program = completion(programs, model_path, "-lm", "none", "-lv", 4)
    stored = re.compile(r"slotpool-store\s+model buffer size")
    _, said = text_of(slotpool_exec, ("--slots", 8, "--device", "RPC7"), program)
    assert not stored.search(said)
    _, said = text_of(slotpool_exec, ("--slots", 8), program)
    assert stored.search(said)


# ---- chaos devices in a program, and the program's own options ----


@pytest.fixture
def chaos_exec(slotpool_exec: Exec, chaos_variables: dict[str, str]) -> Exec:
    """As slotpool_exec, in a program that has chaos devices; keywords are their knobs and further variables."""
    return lambda options, program, **more: slotpool_exec(options, program, env=environment(**chaos_variables | more))


@pytest.fixture
def chaos_run(run: Exec, chaos_variables: dict[str, str]) -> Exec:
    return lambda program, **more: run(program, env=environment(**chaos_variables | more))


def test_completion_on_a_chaos_device_writes_the_same(
    chaos_run: Exec, chaos_exec: Exec, programs: Path, model_path: Path, tmp_path: Path
) -> None:
    program = completion(programs, model_path)
    alone, _ = text_of(chaos_run, program)
    counts = tmp_path / "counts"
    pooled, said = text_of(chaos_exec, CHAOS, program, CHAOS_COUNTS=str(counts))
    assert pooled == alone
    assert lookups(said) >= LEAST_LOOKUPS
    (device,) = chaos_counts(counts)
    assert device["expert_nodes"] >= (GENERATED - 1) * 3 * SPEC.n_layer


@pytest.mark.parametrize("budget", [None, "2MiB,2MiB"])
def test_two_devices_have_a_pool_each(
    chaos_run: Exec, chaos_exec: Exec, programs: Path, model_path: Path, tmp_path: Path, budget: str | None
) -> None:
    program, counts = completion(programs, model_path, "-ts", "1,1"), tmp_path / "counts"
    alone, _ = text_of(chaos_run, program, CHAOS_DEVICES="2")
    options = ("--slots", 8, "--miss", "copy", "--device", "CHAOS0,CHAOS1", "--rail", 0, *(("--device-budget", budget) if budget else ()))
    pooled, said = text_of(chaos_exec, options, program, CHAOS_DEVICES="2", CHAOS_COUNTS=str(counts))
    assert pooled == alone
    assert lookups(said) >= LEAST_LOOKUPS
    assert all(device["expert_nodes"] > 0 for device in chaos_counts(counts))


@pytest.mark.parametrize("flag", [(), ("-ot", "exps=CPU")], ids=["", "in the store"])
def test_layers_on_a_device_without_slots_are_off(
    chaos_run: Exec, chaos_exec: Exec, programs: Path, model_path: Path, flag: tuple[object, ...]
) -> None:
    """P04, `--slots 8,0`: their experts are in host memory and take the program's own path from there."""
    program = completion(programs, model_path, "-ts", "1,1", *flag)
    alone, _ = text_of(chaos_run, program, CHAOS_DEVICES="2")
    options = ("--slots", "8,0", "--miss", "copy", "--device", "CHAOS0,CHAOS1", "--rail", 0)
    pooled, said = text_of(chaos_exec, options, program, CHAOS_DEVICES="2")
    assert pooled == alone
    (line,) = pool_lines(said)
    found = re.fullmatch(r"slotpool: pool (\d) of 9 expert tensors, .*; (\d) of 9 expert tensors (off: .*)", line)
    assert found, line
    assert int(found[1]) + int(found[2]) == 9
    assert found[3] == "off: 0 slots asked for on CHAOS1"


ELSEWHERE = "off: not in the store: the loader put it elsewhere (a device, an override), or does not use it"


@pytest.mark.parametrize(
    ("given", "n_pooled", "reason"),
    [
        (("-ngl", 0), 9, ""),
        (("-ngl", 2), 9, ""),
        (("--cpu-moe",), 9, ""),
        (("--n-cpu-moe", 2), 9, ""),
        (("-ot", "exps=CPU"), 9, ""),
        (("-ot", "exps=CHAOS0"), 0, ELSEWHERE),
        (("-ot", "blk.0.*exps=CHAOS0"), 6, ELSEWHERE),
        (("-dev", "none"), 9, ""),
        (("--no-op-offload",), 9, ""),
        *((("-lm", way), 9, "") for way in ("none", "mmap", "mlock", "mmap+mlock", "dio")),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_the_programs_own_placement_is_obeyed(
    chaos_run: Exec, chaos_exec: Exec, programs: Path, model_path: Path, given: tuple[object, ...], n_pooled: int, reason: str
) -> None:
    program = completion(programs, model_path, *given)
    alone, _ = text_of(chaos_run, program)
    pooled, said = text_of(chaos_exec, CHAOS, program)
    assert pooled == alone
    (line,) = pool_lines(said)
    if n_pooled:
        assert line.startswith(f"slotpool: pool {n_pooled} of 9 expert tensors, ")
        assert int(re.findall(r"(\d+) lookups", line)[0]) > 0
    assert line.endswith(reason) if reason else ";" not in line


@pytest.mark.parametrize("mode", ["row", "tensor"])
@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_split_by_rows_is_refused(slotpool_exec: Exec, script: Callable[[str], list[str]], model_path: Path, mode: str, by: str) -> None:
    program = [*script("import os; print('GGML_BACKEND_PATH' in os.environ)"), "-m", model_path]
    more: dict[str, Any] = {}
    if by == "option":
        program += ["--split-mode", mode]
    else:
        more["env"] = environment(LLAMA_ARG_SPLIT_MODE=mode)
    done = slotpool_exec(CHAOS, program, **more)
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert pool_lines(done.stderr) == [f"slotpool: pool off: --split-mode {mode} leaves no expert whole on one device"]
    assert slotpool_exec((*CHAOS, "--require-pool"), program, **more).returncode == REFUSED


# ---- further contexts of the model ----


@pytest.mark.parametrize("slots", [8, "all"])
@pytest.mark.parametrize("device", ["CHAOS0", "CPU", "CHAOS0,CHAOS1"])
def test_further_contexts_of_the_model_have_no_part_in_the_pool(
    chaos_run: Exec, chaos_exec: Exec, host: Path, model_path: Path, device: str, slots: object
) -> None:
    """Three contexts take turns: the first one's lookups are all there are, and each writes what it writes without a pool."""
    tokens = ",".join(map(str, range(1, 20)))
    program = [host, "-m", model_path, "--tokens", tokens]
    options = ("--slots", slots, "--miss", "copy", "--device", device, "--rail", 0)
    knobs = {"CHAOS_DEVICES": "2"}
    one = chaos_exec(options, program, **knobs)
    three = chaos_exec(options, [*program, "--contexts", 3, "--end", "free"], **knobs)
    assert (one.returncode, three.returncode) == (0, 0), three.stderr
    assert pool_lines(three.stderr) == pool_lines(one.stderr)
    assert three.stdout.split() == [bits for bits in chaos_run(program, **knobs).stdout.split() for _ in range(3)]
