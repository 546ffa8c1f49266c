"""Trap 1 of the design, two copies of ggml in one process: only the one that libllama uses gets the core, the other is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slotpool import native

LOOKUPS = 8
"""Of two tokens in the tiny model: two layers, two experts each."""
LIBRARIES = ("libggml.so.0", "libggml-base.so.0", "libggml-cpu.so.0", "libggml-rpc.so.0")
BEGIN = """
import ctypes, json, sys

def load_into(path):
    "Makes the ggml at `path` load the core: its registry's entry, and the number of its devices."
    ggml = ctypes.CDLL(path)
    ggml.ggml_backend_load.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    return ggml.ggml_backend_load(core.encode()), ggml.ggml_backend_dev_count()

def pooled():
    "Loads the model with four slots and evaluates two tokens: the number of lookups."
    import slotpool
    llm = slotpool.load(model, 4, require_pool=True, n_ctx=64)
    llm.eval([1]); llm.eval([2])
    lookups = slotpool.stats(llm)["lookups"]
    llm.close()
    return lookups

core, model, plan, *copies = sys.argv[1:]
"""

LLAMA_FIRST = (
    BEGIN
    + """
import llama_cpp
from slotpool import engine, native

refused = []
for path in copies:
    session = native.Session(open(plan).read())
    refused.append([*load_into(path), native.last_error(), engine.is_registered()])
    session.loaded()
    session.close()
print(json.dumps([refused, str(engine.ggml_path()), pooled()]))
"""
)

OTHER_FIRST = (
    BEGIN
    + """
entry, n_devices = load_into(copies[0])
from slotpool import engine
was_registered = engine.is_registered()
print(json.dumps([bool(entry), n_devices, was_registered, str(engine.ggml_path()), pooled()]))
"""
)

PLAIN = BEGIN + "import llama_cpp\nprint(json.dumps([load_into(path) for path in copies]))"

Result = Callable[..., Any]


@pytest.fixture(scope="module")
def copies(wheel: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Second ggmls: of the wheel's other set; the `.so` beside the `.so.0`, which is no link; and a set with names of its own."""
    folder = tmp_path_factory.mktemp("renamed")
    for library in LIBRARIES:
        data = (wheel.lib / library).read_bytes()
        for name in LIBRARIES:
            data = data.replace(f"\0{name}\0".encode(), f"\0{_renamed(name)}\0".encode())
        (folder / _renamed(library)).write_bytes(data)
    return [wheel.other_lib / "libggml.so.0", wheel.lib / "libggml.so", folder / _renamed("libggml.so.0")]


def _renamed(name: str) -> str:
    return name.replace("ggml", "ggmm")


def refusal(used: Path, found: Path) -> str:
    return f"Expected the ggml that libllama uses ({used}), found {found}: two copies of ggml in one process"


def test_a_second_ggml_is_refused_by_name_and_the_right_one_still_works(
    copies: list[Path], result_of: Result, wheel: Any, tiny: Any
) -> None:
    refused, used, lookups = result_of(LLAMA_FIRST, native.CORE_PATH, tiny.model, tiny.plan, *copies)
    assert refused == [[None, 1, refusal(wheel.ggml, path), False] for path in copies]
    assert used == str(wheel.ggml)
    assert lookups == LOOKUPS


def test_a_program_with_a_second_ggml_hears_of_it(copies: list[Path], run_python: Callable[..., Any], wheel: Any, tiny: Any) -> None:
    done = run_python(PLAIN, native.CORE_PATH, tiny.model, tiny.plan, *copies, SLOTPOOL_PLAN=tiny.plan)
    lines = [line for line in done.stderr.splitlines() if line.startswith("slotpool:")]
    assert lines == [f"slotpool: off: {refusal(wheel.ggml, path)}" for path in copies]
    assert (done.returncode, done.stdout) == (0, f"{[[None, 1]] * len(copies)}\n".replace("None", "null"))


def test_registered_elsewhere_before_libllama_came_it_is_registered_again_where_it_counts(
    copies: list[Path], result_of: Result, wheel: Any, tiny: Any
) -> None:
    # before libllama there is nothing to compare with: the other ggml takes the core, and says so. That must not pass for success
    other = copies[2]
    found = result_of(OTHER_FIRST, native.CORE_PATH, tiny.model, tiny.plan, other, SLOTPOOL_PLAN=tiny.plan)
    entry, n_devices, was_registered, used, lookups = found
    assert (entry, n_devices) == (True, 3)
    assert not was_registered, "the registry that counts is libllama's"
    assert (used, lookups) == (str(wheel.ggml), LOOKUPS)


def test_a_ggml_of_the_same_name_that_came_first_is_the_one_libllama_uses(copies: list[Path], result_of: Result, tiny: Any) -> None:
    # the system's loader goes by name (soname): there is then one ggml, and it is the right one
    found = result_of(OTHER_FIRST, native.CORE_PATH, tiny.model, tiny.plan, copies[0], SLOTPOOL_PLAN=tiny.plan)
    assert found == [True, 3, True, str(copies[0]), LOOKUPS]
