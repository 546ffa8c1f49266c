"""`slotpool exec` and any program: what the program sees is what it would see alone, but for two variables."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slotpool import native
from slotpool.errors import MISUSED, REFUSED
from testkit import syn
from tests.exec.conftest import Exec, command, environment, pool_lines

Script = Callable[[str], list[str]]
NEVER_LOADED = "never loaded the core: it is no llama.cpp program, or its ggml loads no backend from outside"


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_the_programs(slotpool_exec: Exec, script: Script, model_path: Path, code: int) -> None:
    done = slotpool_exec(("--slots", 8), [*script(f"raise SystemExit({code})"), "-m", model_path])
    assert (done.returncode, done.stdout) == (code, "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGINT])
def test_a_death_by_signal_is_told_as_a_shell_does(slotpool_exec: Exec, script: Script, model_path: Path, number: int) -> None:
    code = f"import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), {int(number)})"
    done = slotpool_exec(("--slots", 8), [*script(code), "-m", model_path])
    assert done.returncode == 128 + number


def test_streams_and_arguments_are_the_programs_own(slotpool_exec: Exec, script: Script, model_path: Path) -> None:
    code = "import sys; print(sys.stdin.read(), sys.argv[1:]); print('its own', file=sys.stderr)"
    arguments = ["-m", str(model_path), "-v", "--slots", "7", "a b", "--", "\u00fc", ""]
    done = slotpool_exec(("--slots", 8), [*script(code), *arguments], input="typed in")
    assert (done.returncode, done.stdout) == (0, f"typed in {arguments}\n")
    assert done.stderr.splitlines() == ["its own", f"slotpool: pool off: {sys.executable} {NEVER_LOADED}"]


def test_the_environment_has_two_variables_more_and_v_shows_them(slotpool_exec: Exec, script: Script, model_path: Path) -> None:
    program = [*script("import json, os; print(json.dumps(dict(os.environ)))"), "-m", model_path]
    alone = json.loads(subprocess.run([*map(str, program)], env=environment(), capture_output=True, text=True).stdout)
    done = slotpool_exec(("--slots", 8, "-v"), program)
    found = json.loads(done.stdout)
    added = {name: value for name, value in found.items() if alone.get(name) != value}
    assert {name: value for name, value in alone.items() if name not in found} == {}
    assert sorted(added) == ["GGML_BACKEND_PATH", "SLOTPOOL_PLAN"]
    assert added["GGML_BACKEND_PATH"] == str(native.CORE_PATH)
    assert [line for line in done.stderr.splitlines() if "=" in line] == [f"slotpool: {name}={added[name]}" for name in added]


def test_the_plan_is_private_and_gone_afterwards(slotpool_exec: Exec, script: Script, model_path: Path) -> None:
    code = """
import os
path = os.environ["SLOTPOOL_PLAN"]
print(path, oct(os.stat(path).st_mode), oct(os.stat(os.path.dirname(path)).st_mode))
print(open(path).read())
"""
    done = slotpool_exec(("--slots", 8, "--policy", "lru"), [*script(code), "-m", model_path])
    path, mode, folder_mode = done.stdout.splitlines()[0].split()
    assert (stat.S_IMODE(int(mode, 8)), stat.S_IMODE(int(folder_mode, 8))) == (0o600, 0o700)
    assert "policy lru" in done.stdout
    assert done.stdout.count(" slots=8 ") == 3
    assert not os.path.exists(os.path.dirname(path))


@pytest.mark.parametrize("name", ["GGML_BACKEND_PATH", "SLOTPOOL_PLAN"])
def test_a_variable_that_is_set_already_is_an_error(slotpool_exec: Exec, script: Script, model_path: Path, name: str) -> None:
    done = slotpool_exec((), [*script("print('ran')"), "-m", model_path], env=environment(**{name: "/there"}))
    assert (done.returncode, done.stdout) == (MISUSED, "")
    (line,) = done.stderr.splitlines()
    assert f'expected {name} unset, since slotpool exec sets it, found "/there" (at the environment). Unset it' in line


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (("no-such-program", "-m", "{model}"), 'expected a program, found none of the name "no-such-program" in PATH'),
        (("/no/such/program", "-m", "{model}"), 'expected a program, found none of the name "/no/such/program"'),
        (("{model}", "-m", "{model}"), "expected a program, found something that cannot be run"),
        (("true",), "expected a model in the program's arguments, found none"),
        (("true", "-md", "{model}"), "expected a model in the program's arguments, found none"),
        (("true", "-m", "/no/such.gguf"), "/no/such.gguf"),
        (("true", "-hf", "some/where:Q4_K_M"), 'expected the model of "some/where:Q4_K_M" in the cache of downloads, found none'),
        (("true", "-m", "{model}", "-m", "other.gguf"), "expected one model in the program's arguments, found 2"),
    ],
)
def test_what_cannot_run_is_one_line_and_exit_code_2(
    slotpool_exec: Exec, model_path: Path, tmp_path: Path, program: tuple[str, ...], words: str
) -> None:
    done = slotpool_exec((), [part.format(model=model_path) for part in program], env=environment(HF_HOME=str(tmp_path)))
    assert (done.returncode, done.stdout) == (MISUSED, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("slotpool: ")
    assert words in line


def test_a_file_that_the_system_cannot_run_is_an_error(slotpool_exec: Exec, model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\x00\x01")
    (tmp_path / "odd").chmod(0o755)
    done = slotpool_exec(("--slots", 8), [tmp_path / "odd", "-m", model_path])
    assert (done.returncode, done.stdout) == (MISUSED, "")
    assert done.stderr == f"slotpool: cannot run the program: Exec format error (at {tmp_path}/odd)\n"


def test_pool_options_are_checked_before_the_program_runs(slotpool_exec: Exec, script: Script, model_path: Path) -> None:
    done = slotpool_exec(("--slots", 3), [*script("print('ran')"), "-m", model_path])
    assert (done.returncode, done.stdout) == (MISUSED, "")
    assert "expected at least 4 slots" in done.stderr


# ---- nothing pooled ----


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("options", [(), ("--slots", 0)])
def test_with_nothing_to_pool_the_program_runs_as_it_is_unless_a_pool_is_required(
    slotpool_exec: Exec, script: Script, model_path: Path, options: tuple[object, ...], required: bool
) -> None:
    program = [*script("import os; print('SLOTPOOL_PLAN' in os.environ); raise SystemExit(7)"), "-m", model_path]
    done = slotpool_exec((*options, *["--require-pool"] * required), program)
    (line,) = done.stderr.splitlines()
    reason = "0 slots asked for" if options else "no device to pool on, and RAM suffices (slots would only double the memory)"
    if required:
        assert (done.returncode, done.stdout) == (REFUSED, "")
        assert line.startswith(f"slotpool: expected something pooled, found nothing: {reason} (at ")
    else:
        assert (done.returncode, done.stdout) == (7, "False\n")
        assert line == f"slotpool: pool off: {reason}"


@pytest.mark.parametrize(("code", "required", "expected"), [(0, False, 0), (0, True, 1), (6, True, 6)])
def test_a_program_that_never_loads_the_core_is_told(
    slotpool_exec: Exec, script: Script, model_path: Path, code: int, required: bool, expected: int
) -> None:
    program = [*script(f"raise SystemExit({code})"), "-m", model_path]
    done = slotpool_exec(("--slots", 8, *["--require-pool"] * required), program)
    assert done.returncode == expected
    assert pool_lines(done.stderr) == [f"slotpool: pool off: {sys.executable} {NEVER_LOADED}"]


def test_the_engine_is_not_imported(script: Script, model_path: Path) -> None:
    code = """
import sys
from slotpool import cli
code = cli.main(["exec", "--slots", "8", "--", "true", "-m", sys.argv[1]])
assert "llama_cpp" not in sys.modules
assert code == 0
"""
    done = subprocess.run([sys.executable, "-c", code, str(model_path)], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_dense_model_has_nothing_to_pool(slotpool_exec: Exec, model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    # a model without expert tensors: the header of a SYN file with its experts named otherwise
    data = model_file(syn.Spec()).read_bytes()
    path = tmp_path / "dense.gguf"
    path.write_bytes(re.sub(rb"_exps\.weight", b"_none.weight", data))
    done = slotpool_exec(("--slots", 8), ["true", "-m", path])
    assert (done.returncode, done.stderr) == (0, "slotpool: pool off: the model has no expert tensors (a dense model)\n")


def test_command_needs_no_dashes_before_the_program(run: Exec, model_path: Path) -> None:
    made = [part for part in command(("--slots", 0), ["echo", "-m", model_path]) if part != "--"]
    assert run(made).stdout == f"-m {model_path}\n"


@pytest.mark.parametrize(
    ("options", "arguments", "variables", "expected"),
    [
        (("--ram-budget", "auto"), (), {}, "repack on"),
        (("--ram-budget", "auto"), ("--no-repack",), {}, ""),
        (("--ram-budget", "auto"), ("--repack", "0"), {}, ""),
        (("--ram-budget", "auto"), (), {"LLAMA_ARG_REPACK": "off"}, ""),
        ((), (), {}, ""),  # experts are in host memory, where nobody repacks them
    ],
)
def test_slots_over_a_disk_are_repacked_where_the_program_lets_weights_be(
    slotpool_exec: Exec,
    script: Script,
    model_path: Path,
    options: tuple[str, ...],
    arguments: tuple[str, ...],
    variables: dict[str, str],
    expected: str,
) -> None:
    code = "import os; print([line for line in open(os.environ['SLOTPOOL_PLAN']) if line.startswith('repack')])"
    program = [*script(code), "-m", model_path, *arguments]
    done = slotpool_exec(("--slots", 12, *options), program, env=environment(**variables))
    assert done.returncode == 0
    assert done.stdout == f"{[expected + chr(10)] if expected else []}\n"
