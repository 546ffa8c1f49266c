"""Experts on disk in whole programs: `slotpool run`, and programs that know llama.cpp and nothing of slotpool."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import slotpool
from slotpool import model, native, plan
from slotpool.errors import MISUSED
from tests.disk.conftest import ROOT, RunChild
from tests.disk.watch import MIB

DEMO = Path(slotpool.__file__).parent / "data" / "demo.gguf"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """run(model, options...) is `slotpool run` in a process of its own, in a folder of its own."""
    folder = tmp_path_factory.mktemp("cwd")
    path = os.pathsep.join(map(str, (Path(slotpool.__file__).parents[1], ROOT)))

    def slotpool_run(file: Path, *options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "slotpool.cli", "run", str(file), "-p", "hello", "--threads", "1", *map(str, options)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": path}, cwd=folder)

    return slotpool_run


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    made: dict[str, Any] = json.loads(done.stdout)
    return made


@pytest.fixture(scope="module")
def plain_tokens(run: Run, small: Path) -> list[int]:
    made = document(run(small, "-n", 24, "--slots", 0, "--no-repack", "--json"))
    assert made["stats"]["lookups"] == 0
    tokens: list[int] = made["tokens"]
    return tokens


def test_run_with_what_is_available(run: Run, small: Path, plain_tokens: list[int]) -> None:
    made = document(run(small, "-n", 24, "--ram-budget", "auto", "--no-repack", "--json"))
    stats = made["stats"]
    assert made["tokens"] == plain_tokens
    assert (stats["store"], stats["why_buffered"]) == ("disk", "")
    assert {tensor["state"] for tensor in stats["tensors"]} == {"pooled 16/16"}
    assert stats["lookups"] > 0


def test_run_with_a_budget_slots_and_a_rail(run: Run, small: Path, plain_tokens: list[int]) -> None:
    made = document(run(small, "-n", 24, "--ram-budget", "40MiB", "--slots", 9, "--rail", "128MiB", "--no-repack", "--json"))
    stats = made["stats"]
    assert made["tokens"] == plain_tokens
    assert {tensor["state"] for tensor in stats["tensors"]} == {"pooled 9/16"}
    assert 0 < stats["slot_bytes"] < 40 * MIB
    assert stats["bytes_copied"] == stats["misses"] * sum(one.slab_bytes for one in model.read(small).experts if one.layer == 0)


def test_run_says_in_one_line_where_experts_are(run: Run, small: Path) -> None:
    done = run(small, "-n", 8, "--ram-budget", "auto", "--slots", 8)
    assert done.returncode == 0
    assert done.stdout.endswith("\n")
    (line,) = done.stderr.splitlines()
    assert "pool 6 of 6 expert tensors" in line
    assert "(8 of 16 experts, the others on disk)" in line


def test_the_smallest_budget_that_is_named_works_and_a_smaller_one_does_not(run: Run, small: Path, plain_tokens: list[int]) -> None:
    done = run(small, "--ram-budget", "1MiB")
    assert (done.returncode, done.stdout) == (MISUSED, "")
    (line,) = done.stderr.splitlines()
    said = re.search(r"4 slots per expert tensor, which one token uses, need .*, the RAM budget is 1MiB \(at --ram-budget\)\. (.*)", line)
    assert said, line
    named = re.fullmatch(r"Try --ram-budget (\d+)MiB, the smallest that works\.", said[1])
    assert named, line
    made = document(run(small, "-n", 24, "--ram-budget", f"{named[1]}MiB", "--no-repack", "--json"))
    assert made["tokens"] == plain_tokens
    assert all(layer["slots"] >= 4 for layer in made["stats"]["layers"])
    assert run(small, "--ram-budget", f"{int(named[1]) - 1}MiB").returncode == MISUSED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--slots", 0, "--ram-budget", "auto"), "expected slots for experts that stay on disk, found --slots 0 with a RAM budget"),
        (("--ram-budget", "much"), "auto"),
        (("--ram-budget", "auto", "--rail", "-5"), "--rail"),
    ],
)
def test_run_refuses_in_one_line(run: Run, small: Path, options: tuple[object, ...], words: str) -> None:
    done = run(small, *options)
    assert (done.returncode, done.stdout) == (MISUSED, "")
    (line,) = done.stderr.splitlines()
    assert words in line


def test_run_fails_in_one_line_when_the_file_changes_under_it(small: Path, tmp_path: Path) -> None:
    own = Path(shutil.copy(small, tmp_path / "own.gguf"))
    code = """
import os, sys
from slotpool import cli, generation
made = generation.tokenize
def tokenize_and_touch(llm, prompt):
    os.utime(sys.argv[1])
    return made(llm, prompt)
generation.tokenize = tokenize_and_touch
sys.exit(cli.main(["run", sys.argv[1], "-p", "hello", "--ram-budget", "auto", "--json"]))
"""
    env = os.environ | {"PYTHONPATH": str(Path(slotpool.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code, str(own)], capture_output=True, text=True, timeout=120, env=env)
    said = [line for line in done.stderr.splitlines() if not line.startswith("decode: ")]  # the engine's own
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert len(said) == 1
    assert f"found it changed ({own.stat().st_size} bytes) - at {own}. Load the model again" in said[0]


def test_the_bundled_model_writes_the_same_from_disk(run: Run) -> None:
    def tokens(*options: object) -> list[int]:
        made: list[int] = document(run(DEMO, "-n", 48, "--no-repack", "--json", *options))["tokens"]
        return made

    whole = tokens("--slots", 0)
    assert len(whole) == 48
    assert tokens("--ram-budget", "auto", "--slots", "8") == whole


# ---- programs that know nothing of slotpool ----

PROGRAM = """
import ctypes, json, os, sys
import llama_cpp
from tests.disk import watch

path, load_mode, steps, core = os.fsencode(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), os.environ.get("GGML_BACKEND_PATH")
quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
llama_cpp.llama_log_set(quiet, None)
lib = llama_cpp.llama_cpp._lib
lib.ggml_backend_load_all()
def read(): return watch.bytes_read()["rchar"]
params = llama_cpp.llama_model_default_params()
params.load_mode, params.use_extra_bufts, params.n_gpu_layers = load_mode, False, 0
watch.forget_pages(path)
start = read()
model = llama_cpp.llama_model_load_from_file(path, params)
loaded = read() - start
options = llama_cpp.llama_context_default_params()
options.n_ctx = options.n_batch = 512
options.n_ubatch, options.n_threads, options.n_threads_batch = 128, 1, 1
context = llama_cpp.llama_init_from_model(model, options)
n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
rows, start = [], read()
for step in steps:
    batch = llama_cpp.llama_batch_get_one((ctypes.c_int32 * len(step))(*step), len(step))
    assert llama_cpp.llama_decode(context, batch) == 0
    rows.append(ctypes.string_at(llama_cpp.llama_get_logits_ith(context, -1), 4 * n_vocab))
def text(name):
    to = ctypes.create_string_buffer(1000)
    getattr(ctypes.CDLL(core), name)(1, to, 1000)
    return to.value.decode()
failure = text("slotpool_session_take_failure") if core else ""
why = text("slotpool_session_why_buffered") if core else ""
used = read() - start
llama_cpp.llama_free(context)
llama_cpp.llama_model_free(model)
watch.answer(bits=watch.digest(rows), loaded=loaded, used=used, failure=failure, why=why, n_devices=lib.ggml_backend_dev_count(),
             imported="slotpool" in sys.modules)
"""
LOAD_MODES = {"none": 0, "mmap": 1, "direct": 4}
WORDS = ((1,), (2,), tuple(range(60)), (3,), (200,))


@pytest.fixture(scope="module")
def odd_model(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file in a folder whose name is no UTF-8."""
    folder = os.fsdecode(os.fsencode(tmp_path_factory.mktemp("odd")) + b"/caf\xe9 x")
    os.mkdir(folder)
    return shutil.copy(wide, os.path.join(folder, "model.gguf"))


@pytest.mark.parametrize("load_mode", LOAD_MODES)
def test_an_unmodified_program_reads_experts_from_disk(odd_model: str, run_child: RunChild, tmp_path: Path, load_mode: str) -> None:
    facts = model.read(Path(odd_model))
    made = plan.make(facts, 8, poison=True, ram_budget="auto")
    (tmp_path / "the.plan").write_bytes(plan.to_text(made).encode("utf-8", "surrogateescape"))
    arguments = (PROGRAM, odd_model, LOAD_MODES[load_mode], json.dumps(WORDS))
    alone = run_child(*arguments)
    found = run_child(*arguments, GGML_BACKEND_PATH=native.CORE_PATH, SLOTPOOL_PLAN=tmp_path / "the.plan")
    assert not found["imported"]
    assert found["n_devices"] == alone["n_devices"] + 2
    assert found["bits"] == alone["bits"]
    assert len(set(found["bits"])) == len(WORDS)
    assert (found["failure"], found["why"]) == ("", "")
    # the experts that the tokens wanted were read by the pool while it decoded, and by nobody while alone
    slabs = sum(tensor.slab_bytes for tensor in facts.experts if tensor.layer == 0)
    assert found["used"] > 20 * slabs
    assert alone["used"] < MIB
    if load_mode != "mmap":
        assert found["loaded"] < facts.other_bytes + 2 * MIB
        assert alone["loaded"] > facts.expert_bytes
