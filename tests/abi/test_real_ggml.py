"""The installed engine fits: asked at run time, and compared with its own headers at compile time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slotpool import engine, native

HERE = Path(__file__).parent
CHECK = """
import json, sys
from pathlib import Path
from slotpool import native
print(json.dumps(native.check_abi_of(Path(sys.argv[1]))))
"""


def test_the_installed_engine_fits() -> None:
    assert engine.abi_problem() == ""


def test_it_fits_again_and_again() -> None:
    # the check leaves nothing behind in ggml that the next one would stumble over
    assert {engine.abi_problem() for _ in range(100)} == {""}


def test_the_other_set_of_libraries_fits_too(wheel: Any, result_of: Callable[..., Any]) -> None:
    assert result_of(CHECK, wheel.other_lib / "libggml.so.0") == ""
    assert result_of(CHECK, wheel.lib / "libllama.so") == ""


def test_an_address_outside_of_ggml_is_refused() -> None:
    assert native.check_abi(8) == "Expected ggml at the address given, found no library there"
    somewhere = ctypes.cast(ctypes.CDLL(None).printf, ctypes.c_void_p).value or 0
    assert native.check_abi(somewhere) == "Expected ggml to export ggml_init, found no such symbol"


def test_declarations_agree_with_the_installed_headers(compile_cpp: Callable[..., Path], wheel: Any) -> None:
    """What cannot be asked at run time (enum values, `extra`, signatures): header_facts.cpp is static assertions only."""
    compile_cpp("header_facts.o", [HERE / "header_facts.cpp"], "-c", f"-I{wheel.include}", f"-I{HERE.parents[1] / 'core'}")
