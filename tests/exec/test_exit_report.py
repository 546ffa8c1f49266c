"""The line at exit, and what another model in the process may do to it: nothing."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotpool import loading, model, native, plan
from slotpool.cli.pool_table import summary
from slotpool.errors import REFUSED
from slotpool.exec.report import read_report
from testkit import syn
from tests.exec.conftest import SPEC, Exec, environment, pool_lines

TOKENS = [3, 200, 3, 17, 99, 3, 41, 17, 250, 5, 3, 90]
Arguments = Callable[..., list[object]]
ELSEWHERE = "off: not in the store: the loader put it elsewhere (a device, an override), or does not use it"


@pytest.fixture
def arguments(host: Path, model_path: Path) -> Arguments:
    """arguments(NAME, VALUE...): host.cpp on the model and the tokens."""
    return lambda *more: [host, "-m", model_path, "--tokens", ",".join(map(str, TOKENS)), *more]


def stats_of(path: Path, slots: int, **options: Any) -> str:
    """The line that `slotpool run` would print for the same tokens."""
    llm = loading.load(path, slots, n_ctx=128, n_threads=1, n_threads_batch=1, **options)
    for token in TOKENS:
        llm.eval([token])
    line = summary(loading.read_stats(llm))
    llm.close()
    return line


@pytest.mark.parametrize("how", ["return", "free", "fork", "thread"])
@pytest.mark.parametrize("options", [{}, {"ram_budget": "auto"}], ids=["memory", "disk"])
def test_the_line_says_what_slotpool_run_would(
    run: Exec, slotpool_exec: Exec, arguments: Arguments, model_path: Path, how: str, options: dict[str, str]
) -> None:
    given = ["--slots", "8", *(["--ram-budget", "auto"] if options else [])]
    done = slotpool_exec(given, arguments("--end", how))
    alone = run(arguments("--end", how))
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    assert len(set(done.stdout.splitlines())) == len(TOKENS)
    assert pool_lines(done.stderr) == [f"slotpool: {stats_of(model_path, 8, **options)}"]


@pytest.mark.parametrize("options", [{}, {"ram_budget": "auto"}], ids=["memory", "disk"])
def test_a_plan_file_is_what_the_program_runs_under(
    run: Exec, slotpool_exec: Exec, arguments: Arguments, model_path: Path, options: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "plan"
    file.write_text(plan.to_text(plan.make(model.read(model_path), 8, slots_per_layer="0=10", **options)))  # type: ignore[arg-type]
    done = slotpool_exec(("--plan", file), arguments())
    assert done.stdout == run(arguments()).stdout
    assert pool_lines(done.stderr) == [f"slotpool: {stats_of(model_path, 8, slots_per_layer={0: 10}, **options)}"]
    refused = slotpool_exec(("--plan", file, "--slots", 8), arguments())
    assert (refused.returncode, "found both (--plan, --slots)" in refused.stderr) == (2, True)


@pytest.mark.parametrize("how", ["all", "init", "often"])
def test_however_a_program_looks_for_backends_the_core_is_there_once(
    run: Exec, slotpool_exec: Exec, arguments: Arguments, model_path: Path, how: str
) -> None:
    done = slotpool_exec(("--slots", 8), arguments("--look", how))
    assert (done.returncode, done.stdout) == (0, run(arguments("--look", how)).stdout)
    assert pool_lines(done.stderr) == [f"slotpool: {stats_of(model_path, 8)}"]


@pytest.mark.parametrize(("how", "code", "n_lines"), [("exit", 3, 1), ("_exit", 4, 0), ("abort", 134, 0)])
def test_a_program_that_skips_its_exit_handlers_has_no_line(
    slotpool_exec: Exec, arguments: Arguments, how: str, code: int, n_lines: int
) -> None:
    done = slotpool_exec(("--slots", 8, "--require-pool"), arguments("--end", how))
    lines = pool_lines(done.stderr)
    assert done.returncode == code
    assert len([line for line in lines if " lookups, " in line]) == n_lines
    unknown = "slotpool: the program ended without its exit handlers: what the pool did is not known"
    assert (unknown in lines) == (how == "_exit")


def test_stock_paths_are_in_the_line(slotpool_exec: Exec, model_file: Callable[[syn.Spec], Path], host: Path) -> None:
    # half of the layers cannot be pooled: the plan knows them as off
    path = model_file(SPEC)
    facts = model.read(path)
    made = plan.make(facts, 6)
    gone = made.groups[-1]
    cut = replace(made, groups=made.groups[:-1], off=tuple(plan.Off(tensor.name, "off: as a test") for tensor in gone.tensors))
    line = by_hand(host, path, cut)
    assert line.startswith("slotpool: pool 6 of 9 expert tensors, ")
    assert line.endswith("; 3 of 9 expert tensors off: as a test")


def by_hand(host: Path, path: Path, made: plan.Plan, arguments: Sequence[object] = (), folder: Path | None = None) -> str:
    """The one line of a host under a plan that no exec made."""
    file = (folder or path.parent) / "by-hand.plan"
    file.write_text(plan.to_text(made))
    env = environment(GGML_BACKEND_PATH=str(native.CORE_PATH), SLOTPOOL_PLAN=str(file))
    command = [host, "-m", path, "--tokens", "1,2,3", *arguments]
    done = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert sorted(one.name for one in file.parent.iterdir() if "report" in one.name) == []
    (line,) = pool_lines(done.stderr)
    return line


def test_a_plan_for_another_model_pools_nothing_and_says_why(host: Path, model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    other = plan.make(model.read(model_file(replace(SPEC, n_expert=8))), 6)
    line = by_hand(host, model_file(SPEC), other, folder=tmp_path)
    assert re.fullmatch(
        r"slotpool: pool off: expected 8 experts of \d+ bytes in blk\.\d\.ffn_\w+\.weight as planned, found 16 of \d+", line
    )


def test_a_plan_for_tensors_that_are_not_there_says_so(host: Path, model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    # layers that the model does not have
    path = model_file(replace(SPEC, n_layer=1))
    deeper = plan.make(model.read(model_file(SPEC)), 6)
    made = replace(deeper, groups=deeper.groups[1:])
    assert by_hand(host, path, made, folder=tmp_path) == f"slotpool: pool {ELSEWHERE}"


def test_a_core_that_stays_out_is_reported(slotpool_exec: Exec, arguments: Arguments, wheel: Any, tmp_path: Path, model_path: Path) -> None:
    # a real ggml but for one name in its op table, found before the program's own by the system's loader
    for library in wheel.lib.glob("libggml*.so.0"):
        (tmp_path / library.name).write_bytes(library.read_bytes().replace(b"\0MUL_MAT_ID\0", b"\0MUL_MAT_IX\0"))
    env = environment(LD_LIBRARY_PATH=str(tmp_path))
    done = slotpool_exec(("--slots", 8, "--require-pool"), arguments(), env=env)
    (line,) = pool_lines(done.stderr)
    assert line.startswith("slotpool: off: Expected ggml's op table entry")
    assert done.returncode == REFUSED


# ---- a draft model ----


@pytest.mark.parametrize("order", ["first", "second"])
@pytest.mark.parametrize(
    "draft",
    # the last is one whose experts the CPU repacks where nobody keeps it from that: other last bits
    [{"n_expert": 8}, {"n_ff_exp": 512}, {"seed": 2}, {"types": {"*": "Q4_K"}}],
    ids=["fewer experts", "larger experts", "same shapes", "repacked"],
)
@pytest.mark.parametrize("options", [{}, {"ram_budget": "auto"}], ids=["memory", "disk"])
def test_a_draft_changes_neither_the_pool_nor_the_numbers(
    run: Exec,
    slotpool_exec: Exec,
    arguments: Arguments,
    model_file: Callable[[syn.Spec], Path],
    model_path: Path,
    order: str,
    draft: dict[str, Any],
    options: dict[str, str],
) -> None:
    other = model_file(replace(SPEC, **draft))
    if order == "first" and "seed" in draft:
        pytest.skip("a model of the same shapes that is loaded before the planned one has the pool: nothing tells them apart")
    both = arguments("-md", other, "--draft", order)
    given = ["--slots", "8", *(["--ram-budget", "auto"] if options else [])]
    done = slotpool_exec(given, both)
    assert done.returncode == 0, done.stderr
    assert done.stdout == run(both).stdout
    assert pool_lines(done.stderr) == [f"slotpool: {stats_of(model_path, 8, **options)}"]


# ---- the file ----


def test_a_report_of_several_processes_is_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "report"
    assert not read_report(path).was_loaded
    path.write_bytes(b"1 loaded\n2 off Expected this, found that\n1 exit pooled=6 lookups=10\n3 loaded\n\xff garbage\n")
    found = read_report(path)
    assert (found.was_loaded, found.refusals, found.pooled, found.has_ended) == (True, ("Expected this, found that",), 6, False)
    path.write_bytes(b"1 loaded\n1 exit pooled=0 lookups=0\n")
    assert not read_report(path).may_have_pooled
    assert os.path.getsize(path) > 0
