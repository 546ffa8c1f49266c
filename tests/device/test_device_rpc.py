"""Slots on RPC servers: processes of their own on this machine, on ports that were free. The engine's own server, the CPU behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import slotpool
from slotpool import engine
from slotpool.native import GroupCounts
from slotpool.plan import Plan
from testkit import syn
from testkit.cases import layout, random_tokens, varied_steps
from testkit.chaos.process import process
from testkit.oracle import Batch, Bits, Oracle, Setup, Steps, assert_adds_up, assert_same_bits, expected_counts, plan_on, pooled, with_homes
from testkit.rpc_server import free_port, served

ModelFile = Callable[[syn.Spec], Path]

SETUP = Setup(n_gpu_layers=99, n_ubatch=12)
PLAIN = Setup(n_ubatch=12)
LARGE = Setup(n_gpu_layers=99, n_ubatch=64)
LARGE_PLAIN = Setup(n_ubatch=64)
ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join((str(Path(slotpool.__file__).parents[1]), str(ROOT)))}


@pytest.fixture(scope="module")
def servers() -> Iterator[list[str]]:
    """Two servers, by host:port."""
    with served() as first, served() as second:
        yield [f"127.0.0.1:{port}" for port in (first, second)]


def remote(
    endpoints: list[str], path: Path, plan: Plan, steps: Steps, setup: Setup = SETUP
) -> tuple[list[Bits], list[GroupCounts], list[str]]:
    engine.add_rpc_servers(endpoints)
    with pooled(path, plan, setup) as model:
        bits = model.run(steps)
        return bits, model.counts(), [model.session.off_reason(group) for group in range(len(plan.groups))]


@pytest.mark.parametrize("misses", ["copy", "cpu", "auto", "frozen"])
@pytest.mark.parametrize("n_servers", [1, 2])
@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss"])
def test_slots_on_servers_are_bit_equal_and_count_as_the_reference(
    arch: str, n_servers: int, misses: str, servers: list[str], model_file: ModelFile, oracle: Oracle
) -> None:
    path = model_file(layout(arch, n_layer=4))
    names = tuple(f"RPC{i}" for i in range(n_servers))
    plan = plan_on(path, 6, names, misses=misses)
    with process(None) as client:
        bits, counts, off = client.submit(remote, servers[:n_servers], path, plan, varied_steps()).result(120)
    assert_same_bits(bits, oracle.logits(path, PLAIN, varied_steps()))
    assert off == [""] * 4
    # where the engine puts layers follows from what the servers have free; each device has some, the first ones first
    homes = [group.device for group in counts]
    assert (set(homes), homes) == (set(names), sorted(homes))
    assert_adds_up(counts, with_homes(plan, homes))
    if misses != "auto":
        assert counts == expected_counts(with_homes(plan, homes), oracle.routing(path, PLAIN, varied_steps()))


PROMPTS: Steps = (
    Batch(random_tokens(64)),
    Batch((1,)),
    Batch((7,)),
    Batch(random_tokens(9, seed=4)),
    Batch((1,)),
    Batch(random_tokens(150, seed=5)),
    Batch((7,)),
)


@pytest.mark.parametrize("n_servers", [1, 2])
@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss"])
def test_prompts_stream_to_servers(arch: str, n_servers: int, servers: list[str], model_file: ModelFile, oracle: Oracle) -> None:
    """Bit-equal, with the numbers of the reference pool: (distinct - resident) x slab to the byte."""
    path = model_file(layout(arch, n_layer=4))
    names = tuple(f"RPC{i}" for i in range(n_servers))
    plan = plan_on(path, 7, names, prefill="stream")
    with process(None) as client:
        bits, counts, off = client.submit(remote, servers[:n_servers], path, plan, PROMPTS, LARGE).result(120)
    assert_same_bits(bits, oracle.logits(path, LARGE_PLAIN, PROMPTS))
    homely = with_homes(plan, [group.device for group in counts])
    assert counts == expected_counts(homely, oracle.routing(path, LARGE_PLAIN, PROMPTS))
    assert (off, sum(group.prompt.hits for group in counts) > 0) == ([""] * 4, True)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from slotpool.cli import main; sys.exit(main(sys.argv[1:]))", "run", *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("misses", ["copy", "cpu", "auto"])
def test_run_writes_the_same_tokens_with_slots_on_a_server(misses: str, servers: list[str], model_file: ModelFile) -> None:
    path = model_file(layout("qwen3moe"))
    common = (path, "-p", "hello", "-n", 24, "--threads", 1, "--no-repack", "--json")
    plain = run(*common, "--slots", 0)
    done = run(*common, "--slots", 8, "--rpc", servers[0], "--device", "RPC0", "--miss", misses)
    assert (plain.returncode, done.returncode) == (0, 0), (plain.stderr, done.stderr)
    made = json.loads(done.stdout)
    assert made["tokens"] == json.loads(plain.stdout)["tokens"]
    stats = made["stats"]
    assert {layer["device"] for layer in stats["layers"]} == {"RPC0"}
    assert stats["lookups"] == stats["hits"] + stats["misses"] > 0
    assert (stats["served"]["cpu"] > 0) == (misses != "copy")
    assert sum(stats["served"].values()) == stats["lookups"]  # one token at a time: a row per lookup


def test_a_server_that_is_not_there_is_one_line(model_file: ModelFile) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    done = run(model_file(layout("qwen3moe")), "-p", "hello", "--rpc", endpoint, "--device", "RPC0")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"expected an RPC server at {endpoint}, found none: Connection refused" in done.stderr
    assert len(done.stderr.splitlines()) == 1
