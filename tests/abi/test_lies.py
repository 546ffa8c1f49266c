"""The check of ggml's interface finds what is not as declared and says it in one line, and never crashes on it.

lies.tsv has every lie of lying_ggml.cpp and its answer. Here the built core is asked, and the same sources under sanitizers.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CORE_SOURCES = HERE.parents[1] / "core"
MEMORY = str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
LIES = dict(
    line.replace("MEMORY", MEMORY).split("\t") for line in (HERE / "lies.tsv").read_text().splitlines() if line[:1] not in ("", "#")
)
SYMBOLS = re.findall(r"^    F\(\w+, (\w+), ", (CORE_SOURCES / "abi" / "ggml_api.h").read_text(), re.MULTILINE)

ASK = """
import ctypes, json, os, sys
from pathlib import Path
from slotpool import native

def ask(library, lie):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ["SLOTPOOL_LIE"] = lie
        os.write(write, native.check_abi_of(Path(library)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    return text, os.waitpid(child, 0)[1]

ggml, library, *lies = sys.argv[1:]
ctypes.CDLL(ggml)  # first: the real ggml then calls its own functions, not the stub's
native.library.load()
print(json.dumps({lie: ask(library, lie) for lie in lies}))
"""
"""Asks the core about a library that tells each lie, in a fork of its own: {lie: [text, wait status]}."""

CHECK_EACH = """
import json, sys
from pathlib import Path
from slotpool import native
print(json.dumps({path: native.check_abi_of(Path(path)) for path in sys.argv[1:]}))
"""


@pytest.fixture(scope="session")
def verdicts(result_of: Callable[..., Any], wheel: Any, lying_ggml: Path) -> dict[str, list[Any]]:
    """lie -> [what the built core says, how its process ended]."""
    found: dict[str, list[Any]] = result_of(ASK, wheel.ggml, lying_ggml, *LIES)
    return found


@pytest.fixture(scope="session")
def sanitized(compile_cpp: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """check_program.cpp and the core's check, with the sanitizers of addresses and of undefined behaviour."""
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    empty = tmp_path_factory.mktemp("sanitizer") / "empty.cpp"
    empty.write_text("int main() { return 0; }\n")
    link = subprocess.run([os.environ.get("CXX", "c++"), str(empty), "-o", str(empty.with_suffix("")), *flags], capture_output=True)
    if link.returncode != 0:
        pytest.skip("the compiler has no sanitizer runtime")
    sources = [HERE / "check_program.cpp", *sorted((CORE_SOURCES / "abi").glob("*.cpp")), CORE_SOURCES / "os" / "library_posix.cpp"]
    return compile_cpp("check_sanitized", sources, f"-I{CORE_SOURCES}", "-ldl", *flags)


def told(verdict: str) -> str:
    return verdict or "fits"


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_answered_with_one_line_that_says_what_was_expected_and_found(verdicts: dict[str, list[Any]], lie: str) -> None:
    text, status = verdicts[lie]
    assert status == 0, f"the process ended with wait status {status}"
    assert told(text) == LIES[lie]
    assert "\n" not in text


def test_every_lie_of_the_stub_is_in_the_list() -> None:
    source = (HERE / "lying_ggml.cpp").read_text()
    nulls = {f"null:{name}" for name in re.findall(r"OR_NULL\((\w+)\);", source)}
    named = set(re.findall(r'is\("([\w:-]+)"\)', source))
    assert nulls | named <= set(LIES)


def test_every_lie_is_answered_alike_under_sanitizers(sanitized: Path, wheel: Any, lying_ggml: Path) -> None:
    # what a ggml that lied has made is left alone on purpose: no leaks here
    done = _run(sanitized, wheel.ggml, lying_ggml, *LIES, leaks=0)
    answers = re.findall(r"^\|(.+)\|(.*)\|(\d+)$", done.stdout, re.MULTILINE)
    assert {lie: (text, status) for lie, text, status in answers} == {lie: (text, "0") for lie, text in LIES.items()}, done.stderr


def test_the_real_ggml_fits_under_sanitizers_and_nothing_is_left_behind(sanitized: Path, wheel: Any) -> None:
    arguments = wheel.lib / "libllama.so", wheel.lib / "libllama.so", "honest"
    done = _run(sanitized, *arguments, leaks=1)
    if "LeakSanitizer has encountered a fatal error" in done.stderr:  # where ptrace is forbidden
        done = _run(sanitized, *arguments, leaks=0)
    assert (done.stdout, done.stderr) == ("|honest|fits|0\n", "")


def test_each_missing_function_is_named(compile_cpp: Callable[..., Path], result_of: Callable[..., Any], tmp_path: Path) -> None:
    # a library of nothing but names, then copies of it in each of which one name is spelt otherwise
    source = tmp_path / "names.cpp"
    source.write_text("\n".join(f'extern "C" void {name}() {{ __builtin_trap(); }}' for name in SYMBOLS))
    whole = compile_cpp("libnames.so", [source], "-shared", "-fPIC").read_bytes()
    without = {}
    for name in SYMBOLS:
        assert whole.count(f"\0{name}\0".encode()) >= 1
        path = tmp_path / f"lib-without-{name}.so"
        path.write_bytes(whole.replace(f"\0{name}\0".encode(), f"\0{name[:-1]}?\0".encode()))
        without[str(path)] = f"Expected ggml to export {name}, found no such symbol"
    assert len(SYMBOLS) > 50
    assert result_of(CHECK_EACH, *without) == without


def test_half_a_ggml_is_refused(wheel: Any, result_of: Callable[..., Any]) -> None:
    # the registry is in libggml, the rest in libggml-base
    base = wheel.lib / "libggml-base.so.0"
    assert result_of(CHECK_EACH, base) == {str(base): "Expected ggml to export ggml_backend_reg_count, found no such symbol"}


def _run(program: Path, *arguments: object, leaks: int) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"ASAN_OPTIONS": f"detect_leaks={leaks}", "GGML_NO_BACKTRACE": "1"}
    return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, timeout=120, env=env)
