"""llama.cpp's own programs under `slotpool exec`: what they write is what they write alone, and the pool was used.

Built by `make programs`; skipped where they are not. Models have Q8_0 experts, which no CPU repacks, so that alone and pooled compute
with the same kernels and everything is equal to the last bit.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testkit import syn
from tests.exec.conftest import SPEC, Exec, command, environment, load_programs, pool_lines

POOLED = re.compile(r"slotpool: pool 9 of 9 expert tensors, .* of slots.*, hit rate (\d+\.\d)% of (\d+) lookups, .*copied, .*saved.*")
POOL = ("--slots", 8)
DISK = ("--slots", 8, "--ram-budget", "auto")
PROMPT = "Once upon a time there was a pool of experts"


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"Line {i} of a text about {i * 7919 % 1000} things.\n" for i in range(40)))
    return path


def until_whole(
    is_whole: Callable[[subprocess.CompletedProcess[str]], bool], run: Exec, *arguments: Any
) -> subprocess.CompletedProcess[str]:
    """run(*arguments), again when its end is missing.

    llama.cpp writes through a thread that may lose the last lines when the program exits: one plain run in forty or so.
    """
    for _ in range(5):
        done = run(*arguments)
        if is_whole(done):
            return done
    raise AssertionError(f"never whole: {done.stdout}\n{done.stderr}")


def ends_as_it_should(done: subprocess.CompletedProcess[str]) -> bool:
    return done.stdout.endswith("\n\n")


def has_estimate(done: subprocess.CompletedProcess[str]) -> bool:
    return "Final estimate: " in done.stdout + done.stderr


def lookups(stderr: str) -> int:
    (line,) = pool_lines(stderr)
    found = POOLED.fullmatch(line)
    assert found, line
    return int(found[2])


@pytest.mark.parametrize("pool", [POOL, DISK, ("--slots", "all")], ids=["memory", "disk", "all"])
@pytest.mark.parametrize("fit", ["on", "off"])
def test_completion_writes_the_same(
    run: Exec, slotpool_exec: Exec, programs: Path, model_path: Path, pool: tuple[object, ...], fit: str
) -> None:
    program = [programs / "llama-completion", "-m", model_path, "-p", PROMPT, "-n", 32, "--temp", 0, "-t", 1, "-no-cnv", "--fit", fit]
    alone = until_whole(ends_as_it_should, run, program)
    pooled = until_whole(ends_as_it_should, slotpool_exec, pool, program)
    assert (pooled.returncode, pooled.stdout) == (alone.returncode, alone.stdout) == (0, alone.stdout)
    assert len(alone.stdout) > len(PROMPT)
    assert lookups(pooled.stderr) >= 31 * 3 * SPEC.n_expert_used


@pytest.mark.parametrize("load", [("-lm", "none"), ("-lm", "mmap"), ("-lm", "dio")], ids=["none", "mmap", "dio"])
def test_completion_from_disk_in_every_load_mode(
    run: Exec, slotpool_exec: Exec, programs: Path, model_path: Path, load: tuple[str, ...]
) -> None:
    program = [programs / "llama-completion", "-m", model_path, "-p", PROMPT, "-n", 16, "--temp", 0, "-t", 1, "-no-cnv", *load]
    pooled = until_whole(ends_as_it_should, slotpool_exec, DISK, program)
    assert pooled.stdout == until_whole(ends_as_it_should, run, program).stdout
    assert " experts, the others on disk), " in pool_lines(pooled.stderr)[0]


@pytest.mark.parametrize("pool", [POOL, DISK], ids=["memory", "disk"])
def test_perplexity_is_the_same_number(
    run: Exec, slotpool_exec: Exec, programs: Path, model_path: Path, text_file: Path, pool: tuple[object, ...]
) -> None:
    def final(done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 0, done.stderr
        (line,) = re.findall(r"Final estimate: (.*)", done.stdout + done.stderr)
        return str(line)

    program = [programs / "llama-perplexity", "-m", model_path, "-f", text_file, "-c", 128, "-t", 1]
    pooled = until_whole(has_estimate, slotpool_exec, pool, program)
    assert final(pooled) == final(until_whole(has_estimate, run, program))
    assert lookups(pooled.stderr) > 0


def test_bench_uses_the_pool_for_tokens_and_not_for_prompts(slotpool_exec: Exec, programs: Path, model_path: Path) -> None:
    def bench(*options: object) -> tuple[list[dict[str, Any]], str]:
        program = [programs / "llama-bench", "-m", model_path, "-r", 1, "-t", 1, "-o", "json", "--no-warmup", *options]
        done = slotpool_exec(POOL, program)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    rows, stderr = bench("-p", 0, "-n", 16)
    assert [row["n_gen"] for row in rows] == [16]
    assert lookups(stderr) == 16 * 3 * SPEC.n_expert_used
    rows, stderr = bench("-p", 64, "-n", 0)
    assert [row["n_prompt"] for row in rows] == [64]
    assert lookups(stderr) == 0
    assert "3 times a layer's batch was too large for its slots and took the stock path" in stderr


# ---- the server ----


class Server:
    """A running llama-server."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.address = f"http://127.0.0.1:{port}"

    def complete(self, **options: object) -> dict[str, Any]:
        asked = {"prompt": PROMPT, "n_predict": 24, "temperature": 0, "return_tokens": True, "cache_prompt": False} | options
        request = urllib.request.Request(f"{self.address}/completion", json.dumps(asked).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def end(self, number: signal.Signals) -> str:
        """Ends it by a signal, gracefully; what it wrote to stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return err


@contextmanager
def serving(arguments: list[object], pool: tuple[object, ...] | None, folder: Path, **variables: str) -> Iterator[Server]:
    """A llama-server on a free port of this machine, under exec with `pool`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = [*arguments, "--host", "127.0.0.1", "--port", port, "-t", 1, "-c", 512, "-np", 1, "--no-ui"]
    log = (folder / f"log-{port}").open("w+")
    process = subprocess.Popen(
        command(pool, program) if pool else [*map(str, program)],
        stdout=subprocess.DEVNULL,
        stderr=log,
        text=True,
        env=environment(**variables),
    )
    server = Server(process, port)

    def end(number: signal.Signals) -> str:
        process.send_signal(number)
        process.wait(timeout=60)
        log.seek(0)
        said = log.read()
        assert process.returncode == 0, said
        return said

    server.end = end  # type: ignore[method-assign]
    try:
        deadline = time.monotonic() + 60
        while not is_ready(server.address):
            assert process.poll() is None, (folder / f"log-{port}").read_text()[-3000:]
            assert time.monotonic() < deadline, "the server did not come up"
            time.sleep(0.05)
        yield server
    finally:
        process.kill()
        process.wait()
        log.close()


def is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@pytest.fixture(scope="module")
def alone(programs: Path, model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What llama-server answers without a pool."""
    with serving([programs / "llama-server", "-m", model_path], None, tmp_path_factory.mktemp("alone")) as server:
        answer = server.complete()
        server.end(signal.SIGINT)
    assert len(answer["tokens"]) == 24
    return answer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("pool", [POOL, DISK], ids=["memory", "disk"])
def test_server_answers_the_same_and_stops_gracefully(
    programs: Path, model_path: Path, alone: dict[str, Any], tmp_path: Path, number: signal.Signals, pool: tuple[object, ...]
) -> None:
    with serving([programs / "llama-server", "-m", model_path], pool, tmp_path) as server:
        answer = server.complete()
        said = server.end(number)
    assert answer["tokens"] == alone["tokens"]
    assert answer["content"] == alone["content"]
    assert lookups(said) >= 23 * 3 * SPEC.n_expert_used
    assert "second interrupt" not in said


def test_server_takes_its_model_from_the_environment(programs: Path, model_path: Path, alone: dict[str, Any], tmp_path: Path) -> None:
    with serving([programs / "llama-server", "--fit", "off"], POOL, tmp_path, LLAMA_ARG_MODEL=str(model_path)) as server:
        answer = server.complete()
        said = server.end(signal.SIGTERM)
    assert answer["tokens"] == alone["tokens"]
    assert lookups(said) > 0


@pytest.mark.parametrize("draft", [{"n_expert": 8}, {"seed": 2}, {"seed": 1}], ids=["other shapes", "same shapes", "the same file"])
@pytest.mark.parametrize("pool", [POOL, DISK], ids=["memory", "disk"])
def test_a_draft_model_has_no_part_in_the_pool(
    programs: Path,
    model_path: Path,
    model_file: Callable[[syn.Spec], Path],
    alone: dict[str, Any],
    tmp_path: Path,
    draft: dict[str, int],
    pool: tuple[object, ...],
) -> None:
    other = model_file(replace(SPEC, **draft))  # type: ignore[arg-type]
    program = [programs / "llama-server", "-m", model_path, "-md", other, "--spec-type", "draft-simple", "--spec-draft-n-max", 3]
    with serving(program, None, tmp_path) as server:
        plain = server.complete()
        server.end(signal.SIGINT)
    with serving(program, pool, tmp_path) as server:
        answer = server.complete()
        said = server.end(signal.SIGINT)
    assert answer["tokens"] == plain["tokens"]
    assert answer["timings"].get("draft_n") == plain["timings"].get("draft_n")
    assert answer["timings"]["draft_n"] > 0
    assert answer["timings"].get("draft_n_accepted") == plain["timings"].get("draft_n_accepted")
    # verification: a few tokens at a time, so fewer passes than tokens when all are accepted, but never more lookups than experts
    assert 0 < lookups(said) <= 3 * SPEC.n_expert * (len(answer["tokens"]) + 8)


# ---- backends in libraries of their own, as in llama.cpp's releases ----


def test_a_program_that_looks_for_its_backends_needs_no_preload(run: Exec, slotpool_exec: Exec, model_path: Path) -> None:
    made = load_programs()
    folder = made.find("dynamic")
    if folder is None:
        pytest.skip(f"llama.cpp's programs with backends of their own are not built yet: {made.COMMAND} PRESET=dynamic")
    program = [folder / "llama-completion", "-m", model_path, "-p", PROMPT, "-n", 32, "--temp", 0, "-t", 1, "-no-cnv"]
    pooled = until_whole(ends_as_it_should, slotpool_exec, (*POOL, "-v"), program)
    assert pooled.stdout == until_whole(ends_as_it_should, run, program).stdout
    *variables, line = pool_lines(pooled.stderr)
    assert [variable.split("=")[0] for variable in variables] == ["slotpool: GGML_BACKEND_PATH", "slotpool: SLOTPOOL_PLAN"]
    assert lookups(line) > 0
