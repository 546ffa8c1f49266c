"""A core that does not fit: slotpool.load fails with the core's line and exit code 2, and llama_cpp works on without it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import slotpool
from slotpool import native

LOAD = """
import ctypes, json, sys
import llama_cpp
import slotpool
from slotpool import engine

if sys.argv[2] == "other number":  # the running ggml's own registry, whose first word is the number
    lib = llama_cpp.llama_cpp._lib
    lib.ggml_backend_reg_get.restype = ctypes.c_void_p
    ctypes.c_int.from_address(lib.ggml_backend_reg_get(ctypes.c_size_t(0))).value = 3

def attempt():
    try:
        slotpool.load(sys.argv[1], 4, n_ctx=64)
    except slotpool.SlotpoolError as error:
        return [str(error), error.exit_code]
    return ["loaded", 0]

first, second = attempt(), attempt()
llm = llama_cpp.Llama(sys.argv[1], n_ctx=64, verbose=False)
llm.eval([1, 2, 3])
print(json.dumps([first, second, engine.abi_problem(), engine.is_registered(), llm.n_tokens]))
"""
OTHER_INTERFACE = f"expected a core of interface {native.INTERFACE}, found {native.INTERFACE + 1}"
ADVICE = "slotpool doctor shows what is installed. The pool stays out."


@pytest.fixture
def fresh_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """fresh_core(path) makes slotpool.native load the core at `path`, as at its first use."""

    def use(path: Path) -> None:
        monkeypatch.setattr(native.library, "CORE_PATH", path)
        native.library.load.cache_clear()

    yield use
    native.library.load.cache_clear()


@pytest.fixture
def other_engine(wheel: Any, tmp_path: Path) -> Path:
    """The installed engine but for one name in its op table, as another version would have it."""
    for library in ("libllama.so", *(path.name for path in wheel.lib.glob("libggml*.so.0"))):
        shutil.copy(wheel.lib / library, tmp_path / library)
    base = tmp_path / "libggml-base.so.0"
    data = base.read_bytes()
    assert data.count(b"\0MUL_MAT_ID\0") == 1
    base.write_bytes(data.replace(b"\0MUL_MAT_ID\0", b"\0MUL_MAT_IX\0"))
    return tmp_path


def other_core(compile_cpp: Callable[..., Path], folder: Path, functions: set[str]) -> Path:
    """A core of the next interface number with these functions."""
    source = folder / "other_core.cpp"
    names = sorted(functions | {"slotpool_interface"})
    source.write_text("\n".join(f'extern "C" int {name}() {{ return {native.INTERFACE + 1}; }}' for name in names))
    return compile_cpp(f"libother-{len(functions)}.so", [source], "-shared", "-fPIC")  # a path is loaded only once


def test_another_api_number_is_refused_with_the_cores_line(result_of: Callable[..., Any], tiny: Any) -> None:
    line = "Expected ggml's backend API number to be 2, found 3"
    first, second, problem, is_registered, n_tokens = result_of(LOAD, tiny.model, "other number")
    assert first == second == [f"{line}. {ADVICE}", 2]
    assert (problem, is_registered, n_tokens) == (line, False, 3)


def test_another_op_table_is_refused_with_the_cores_line(result_of: Callable[..., Any], tiny: Any, other_engine: Path) -> None:
    line = "Expected ggml's op table entry of an expert matmul to be MUL_MAT_ID, found MUL_MAT_IX"
    first, second, problem, is_registered, n_tokens = result_of(LOAD, tiny.model, "", LLAMA_CPP_LIB_PATH=other_engine)
    assert first == second == [f"{line}. {ADVICE}", 2]
    assert (problem, is_registered, n_tokens) == (line, False, 3)


def test_a_core_of_another_interface_is_refused(
    compile_cpp: Callable[..., Path], fresh_core: Callable[[Path], None], tiny: Any, tmp_path: Path
) -> None:
    path = other_core(
        compile_cpp, tmp_path, {name for room in (native.library, native.memory, native.session) for name, *_ in room._FUNCTIONS}
    )
    fresh_core(path)
    with pytest.raises(slotpool.SlotpoolError) as caught:
        slotpool.load(tiny.model, 4, n_ctx=64)
    assert str(caught.value) == f"{OTHER_INTERFACE} (at {path}). Install slotpool again."
    assert caught.value.exit_code == 2


def test_a_core_of_another_interface_with_other_functions_is_refused(
    compile_cpp: Callable[..., Path], fresh_core: Callable[[Path], None], tiny: Any, tmp_path: Path
) -> None:
    fresh_core(other_core(compile_cpp, tmp_path, set()))
    with pytest.raises(slotpool.SlotpoolError, match=OTHER_INTERFACE):
        slotpool.load(tiny.model, 4, n_ctx=64)


def test_a_missing_core_is_said(fresh_core: Callable[[Path], None], tiny: Any, tmp_path: Path) -> None:
    fresh_core(tmp_path / "libslotpool.so")
    with pytest.raises(slotpool.SlotpoolError, match="expected the core library, found none: ") as caught:
        slotpool.load(tiny.model, 4, n_ctx=64)
    assert caught.value.exit_code == 2
