"""What a program is linked with: asked of the system's loader, never by running the program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slotpool.exec.linked import has_linked_backends, linked_libraries
from tests.exec.conftest import Exec, environment, pool_lines


def test_libraries_of_a_program(host: Path) -> None:
    names = linked_libraries(str(host))
    assert {"libllama.so.0", "libggml.so.0", "libggml-cpu.so.0"} <= set(names)
    assert has_linked_backends(str(host))
    assert not has_linked_backends(os.path.realpath(sys.executable))


def test_a_program_that_is_asked_does_not_run(compile_cpp: Callable[..., Path], tmp_path: Path) -> None:
    source = tmp_path / "mark.cpp"
    source.write_text(f'#include <cstdio>\nint main() {{ std::fclose(std::fopen("{tmp_path}/ran", "w")); }}\n')
    for flags in ((), ("-static",)):
        program = compile_cpp(f"mark{len(flags)}", [source], *flags)
        assert bool(linked_libraries(str(program))) == (not flags)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("length", [0, 3, 63, 64, 120, 800])
def test_damaged_programs_have_no_libraries(host: Path, tmp_path: Path, length: int) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(host.read_bytes()[:length])
    assert linked_libraries(str(cut)) == []
    assert not has_linked_backends(str(cut))


def test_scripts_and_absent_files_have_none(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert linked_libraries(str(tmp_path / "script")) == []
    assert linked_libraries(str(tmp_path / "absent")) == []


def test_a_preload_of_the_users_stays(
    slotpool_exec: Exec, host: Path, model_path: Path, compile_cpp: Callable[..., Path], tmp_path: Path
) -> None:
    source = tmp_path / "own.cpp"
    source.write_text('#include <cstdio>\n__attribute__((constructor)) static void here() { std::fputs("own\\n", stderr); }\n')
    own = compile_cpp("libown.so", [source], "-shared", "-fPIC")
    done = slotpool_exec(("--slots", 8, "-v"), [host, "-m", model_path], env=environment(LD_PRELOAD=str(own)))
    assert done.returncode == 0
    (line,) = [line for line in pool_lines(done.stderr) if "LD_PRELOAD" in line]
    assert line.endswith(f"/libslotpool-preload.so:{own}")
    assert "\nown\n" in done.stderr
