"""The doors of the chaos device: knobs from Python and the environment, what is refused, what it says about its memory, its cache."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testkit import chaos

Python = Callable[..., subprocess.CompletedProcess[str]]


def test_devices_are_the_ones_that_were_asked_for(python: Python) -> None:
    code = """
from slotpool import engine
from testkit.chaos import Chaos
Chaos.load(devices=3, total_bytes=1 << 20)
print([(d.name, d.type, d.total_bytes, d.free_bytes) for d in engine.devices() if d.type != "CPU"])
print(engine.ggml_copies())
"""
    done = python(code)
    assert done.stdout.splitlines() == [str([(f"CHAOS{i}", "GPU", 1 << 20, 1 << 20) for i in range(3)]), "[]"], done.stderr


def test_free_memory_is_answered_as_told_and_then_truly(python: Python) -> None:
    code = """
import ctypes
from slotpool import engine
from testkit.chaos import Chaos
chaos = Chaos.load(total_bytes=1000)
free = lambda: next(d.free_bytes for d in engine.devices() if d.name == "CHAOS0")
chaos.answer_free([500, 10])
function = lambda name, *kinds: ctypes.CFUNCTYPE(*kinds)(engine.function_address(name))
handle = function("ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)
props = function("ggml_backend_dev_get_props", None, ctypes.c_void_p, ctypes.c_void_p)
buffer = ctypes.create_string_buffer(256)  # for the properties, which are smaller
props(handle(b"CHAOS0"), buffer)
print([free() for _ in range(4)])
"""
    assert python(code).stdout.strip() == "[500, 10, 1000, 1000]"


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"speed": 1}, "knob"),
        ({"n_threads": 0}, "at least 1"),
        ({"link_bytes_per_second": float("nan")}, "found nan"),
        ({"devices": 17}, "at most 16"),
    ],
)
def test_knob_that_cannot_be_turned_so_is_refused(python: Python, knobs: dict[str, float], words: str) -> None:
    code = """
import sys
from testkit.chaos import Chaos, ChaosError
try:
    Chaos.load(**{sys.argv[1]: float(sys.argv[2])})
except ChaosError as error:
    print(error)
"""
    name, value = next(iter(knobs.items()))
    assert words in python(code, name, value).stdout


def test_number_of_devices_is_frozen_once_ggml_has_them(python: Python) -> None:
    code = """
from testkit.chaos import Chaos, ChaosError
chaos = Chaos.load()
try:
    chaos.set(devices=2)
except ChaosError as error:
    print(error)
"""
    assert "before ggml has them" in python(code).stdout


def test_environment_turns_knobs_for_programs_without_python(python: Python) -> None:
    code = "from testkit.chaos import Chaos; chaos = Chaos.load(devices=2); print(chaos.get('link_latency_ns', 1), chaos.get('n_threads'))"
    assert python(code, CHAOS_LINK_LATENCY_NS="5", CHAOS_N_THREADS="2").stdout.strip() == "5.0 2.0"


def test_nonsense_in_the_environment_keeps_the_devices_out(python: Python) -> None:
    code = """
from testkit.chaos import Chaos, ChaosError
try:
    Chaos.load()
except ChaosError as error:
    print(error)
"""
    assert "CHAOS_LINK_LATENCY_NS" in python(code, CHAOS_LINK_LATENCY_NS="fast").stdout


def test_core_accepts_a_ggml_whose_cpu_is_slowed_down(python: Python) -> None:
    code = (
        "from slotpool import engine; from testkit.chaos import Chaos; Chaos.load(cpu_ns_per_byte=0.001); print(repr(engine.abi_problem()))"
    )
    assert python(code).stdout.strip() == "''"


def test_library_is_compiled_once_per_state_of_its_sources(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "c++")
    before = chaos.library().stat().st_mtime_ns
    assert chaos.library() == library
    assert chaos.library().stat().st_mtime_ns == before
    monkeypatch.setenv("CXX", "a-compiler-that-is-not-there")
    with pytest.raises(chaos.ChaosError, match="a-compiler-that-is-not-there"):
        chaos.library()


def test_library_that_does_not_compile_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(chaos.ChaosError, match="no-such-flag"):
        chaos.library("-Wno-such-flag-as-this", "--no-such-flag")
    assert list((tmp_path / "slotpool-chaos").iterdir()) == []
