"""Tests as linters: who may import whom, what pure rooms may include, and that every room says its one job.

Every rule is a function of a tree. It is applied to the repository, and to a small wrong tree that it must object to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ROOMS = [
    "errors",
    "about",
    "sizes",
    "texts",
    "native",
    "machine",
    "page_cache",
    "speeds",
    "model",
    "trace",
    "profile",
    "policies",
    "simulate",
    "analyze",
    "budget",
    "plan",
    "predict",
    "pool_stats",
    "exec",
    "page",
    "engine",
    "generation",
    "reserve",
    "probe",
    "planning",
    "loading",
    "cliff",
    "recording",
    "__init__",
    "records",
    "bench",
    "drift",
    "soak",
    "report",
    "server",
    "cli",
]
"""The Python rooms from left to right, as in docs/design.md: a room imports only rooms to its left. A new room needs a place here."""
NEED_NO_ENGINE = set(ROOMS[: ROOMS.index("engine")])
ENGINE_ROOMS = {"engine", "generation", "loading", "reserve", "recording", "soak", "bench", "cli"}
"""`generation` drives any llama_cpp.Llama, pooled or not, so it knows the engine and nothing of pools."""
CTYPES_ROOMS = {"native", "engine", "reserve", "recording", "page_cache"}
"""`native` is the only door to the core; `engine` and `reserve` use the engine's own handle, `recording` the nodes of a callback;
`page_cache` asks the system in processes that must not have the core."""

CORE_ROOMS = [
    *("os", "abi", "stats", "trace", "plan", "policy", "pool", "store", "repack", "transfer"),
    *("dispatch", "probe", "backend", "door"),
]
"""The rooms of the core from left to right: a room includes only rooms to its left, and the registry, the one global ggml requires."""
PURE_CORE_ROOMS = {"policy": {"policy"}, "pool": {"pool", "policy"}, "plan": {"plan"}, "stats": {"stats"}}
"""Rooms that know no ggml and no system, and the rooms they may know."""
UNTIMED = {"pool", "policy"}
CLOCKS_AND_THREADS = {"chrono", "ctime", "thread", "mutex", "shared_mutex", "condition_variable", "future", "atomic"}

Rule = Callable[[Path], Iterator[str]]


# ---- Python ----


def modules(root: Path) -> Iterator[tuple[str, str, ast.Module]]:
    """(room, path inside the package, syntax tree) of every module of the package."""
    package = root / "src/slotpool"
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        yield name.split("/")[0].removesuffix(".py"), name, ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[str]:
    """Dotted names of everything a module imports, anywhere in it, by statement or by import_module("...")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield ast.unparse(node.args[0]).strip("f'\"")


def imported_rooms(tree: ast.Module) -> Iterator[str]:
    for name in imported(tree):
        parts = name.split(".")
        if parts[0] == "slotpool":
            yield parts[1] if len(parts) > 1 and parts[1] in ROOMS else "__init__"


def every_room_has_a_place(root: Path) -> Iterator[str]:
    for room, name, _ in modules(root):
        if room not in ROOMS:
            yield f"{name}: {room} has no place in ROOMS"


def left_never_imports_right(root: Path) -> Iterator[str]:
    for room, name, tree in modules(root):
        for other in imported_rooms(tree):
            if room in ROOMS and room != "__init__" and ROOMS.index(other) > ROOMS.index(room):
                yield f"{name} imports {other}"


def imports_are_absolute(root: Path) -> Iterator[str]:
    for _, name, tree in modules(root):
        yield from (f"{name} imports {other}" for other in imported(tree) if other.startswith("."))


def policies_import_errors_only(root: Path) -> Iterator[str]:
    for room, name, tree in modules(root):
        if room == "policies":
            yield from (f"{name} imports {other}" for other in imported_rooms(tree) if other not in {"policies", "errors"})


def facts_import_no_engine(root: Path) -> Iterator[str]:
    for room, name, tree in modules(root):
        if room in NEED_NO_ENGINE:
            yield from (f"{name} imports {other}" for other in imported_rooms(tree) if other not in NEED_NO_ENGINE)


def only_engine_rooms_import_llama_cpp(root: Path) -> Iterator[str]:
    for room, name, tree in modules(root):
        if room not in ENGINE_ROOMS:
            yield from (f"{name} imports {other}" for other in imported(tree) if other.split(".")[0] == "llama_cpp")


def only_the_doors_import_ctypes(root: Path) -> Iterator[str]:
    for room, name, tree in modules(root):
        if room not in CTYPES_ROOMS:
            yield from (f"{name} imports {other}" for other in imported(tree) if other.split(".")[0] in {"ctypes", "_ctypes", "cffi"})


def nobody_imports_the_cli(root: Path) -> Iterator[str]:
    for room, name, tree in modules(root):
        if room != "cli" and "cli" in imported_rooms(tree):
            yield f"{name} imports the cli"


def every_module_has_a_docstring(root: Path) -> Iterator[str]:
    for _, name, tree in modules(root):
        text = ast.get_docstring(tree) or ""
        if not re.match(r"\S.{18,}[.:]", text):
            yield f"{name} does not begin with a sentence that says its job"


# ---- C++ ----


def core_files(root: Path) -> Iterator[tuple[str, str, str]]:
    """(room, path inside core/, text) of every file of the core."""
    for path in sorted((root / "core").rglob("*")):
        if path.suffix in {".h", ".cpp", ".c", ".hpp", ".inc"}:
            name = path.relative_to(root / "core").as_posix()
            yield name.split("/")[0], name, path.read_text()


def includes(text: str) -> Iterator[tuple[str, bool]]:
    """(header, whether it is one of our own) of every include."""
    for mark, header in re.findall(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', text, re.MULTILINE):
        yield header, mark == '"'


def pure_core_rooms_know_no_ggml(root: Path) -> Iterator[str]:
    for room, name, text in core_files(root):
        allowed = PURE_CORE_ROOMS.get(room)
        if allowed is None:
            continue
        yield from (f"{name} includes {header}" for header, is_ours in includes(text) if is_ours and header.split("/")[0] not in allowed)
        if re.search(r"\bggml_\w+\s*\(|\babi::", text):
            yield f"{name} names ggml"


def pool_and_policy_have_no_clock_and_no_threads(root: Path) -> Iterator[str]:
    for room, name, text in core_files(root):
        if room in UNTIMED:
            yield from (f"{name} includes <{header}>" for header, _ in includes(text) if header in CLOCKS_AND_THREADS)


def only_the_os_room_includes_the_system(root: Path) -> Iterator[str]:
    for room, name, text in core_files(root):
        allowed = {"stddef.h", "stdint.h"} if room == "include" else set()
        for header, is_ours in includes(text):
            if room != "os" and not is_ours and re.search(r"\.h$|/", header) and header not in allowed:
                yield f"{name} includes <{header}>"


def left_never_includes_right(root: Path) -> Iterator[str]:
    for room, name, text in core_files(root):
        for header, is_ours in includes(text):
            other = header.split("/")[0]
            if not is_ours or header in {"backend/registry.h", "slotpool.h"} or room == other:
                continue
            if other not in CORE_ROOMS or CORE_ROOMS.index(other) > CORE_ROOMS.index(room):
                yield f"{name} includes {header}"


def every_core_header_says_its_job(root: Path) -> Iterator[str]:
    for _, name, text in core_files(root):
        if name.endswith((".h", ".hpp")) and not re.match(r"// \S.{18,}[.:;,]", text):
            yield f"{name} does not begin with a comment that says its job"


RULES: dict[Rule, list[tuple[str, str]]] = {
    # rule: files, each of which alone must be objected to
    every_room_has_a_place: [("src/slotpool/utils.py", "")],
    left_never_imports_right: [
        ("src/slotpool/errors.py", "from slotpool import sizes"),
        ("src/slotpool/model/walk.py", "def read():\n    import slotpool.loading"),
        ("src/slotpool/plan.py", "from slotpool.cli.output import print_table"),
        ("src/slotpool/engine.py", "from slotpool import load"),
        ("src/slotpool/simulate.py", "from importlib import import_module\nimport_module('slotpool.plan')"),
    ],
    imports_are_absolute: [("src/slotpool/model/walk.py", "from . import facts"), ("src/slotpool/plan.py", "from .loading import load")],
    policies_import_errors_only: [
        ("src/slotpool/policies/lru.py", "from slotpool.native import Lookup"),
        ("src/slotpool/policies/__init__.py", "from slotpool import sizes"),
    ],
    facts_import_no_engine: [
        ("src/slotpool/sizes.py", "from slotpool import engine"),
        ("src/slotpool/pool_stats.py", "import slotpool.loading"),
    ],
    only_engine_rooms_import_llama_cpp: [
        ("src/slotpool/model/facts.py", "import llama_cpp"),
        ("src/slotpool/plan.py", "from llama_cpp.llama_cpp import llama_log_set"),
    ],
    only_the_doors_import_ctypes: [("src/slotpool/loading.py", "import ctypes"), ("src/slotpool/cli/run.py", "from ctypes import cdll")],
    nobody_imports_the_cli: [
        ("src/slotpool/report/page.py", "from slotpool.cli import main"),
        ("src/slotpool/loading.py", "import slotpool.cli"),
    ],
    every_module_has_a_docstring: [("src/slotpool/plan.py", "import os"), ("src/slotpool/cli/run.py", '"""run"""')],
    pure_core_rooms_know_no_ggml: [
        ("core/pool/pool.cpp", '#include "abi/ggml_abi.h"'),
        ("core/policy/lru.h", '#include "pool/pool.h"'),
        ("core/plan/plan.cpp", '  #  include "os/memory.h"'),
        ("core/stats/stats.h", "void count(abi::Tensor *tensor);"),
        ("core/policy/decay.cpp", "size_t n = ggml_nbytes(tensor);"),
    ],
    pool_and_policy_have_no_clock_and_no_threads: [
        *(("core/pool/pool.h", f"#include <{header}>") for header in sorted(CLOCKS_AND_THREADS)),
        ("core/policy/policy.h", "#include <mutex>"),
    ],
    only_the_os_room_includes_the_system: [
        *(("core/store/store.cpp", f"#include <{header}>") for header in ("dlfcn.h", "sys/mman.h", "unistd.h", "fcntl.h", "linux/fs.h")),
        ("core/pool/pool.cpp", "#include <pthread.h>"),
        ("core/include/slotpool.h", "#include <stdio.h>"),
    ],
    left_never_includes_right: [
        ("core/store/session.h", '#include "dispatch/dispatch.h"'),
        ("core/dispatch/dispatch.cpp", '#include "backend/pool_backend.h"'),
        ("core/abi/load.cpp", '#include "util/strings.h"'),
    ],
    every_core_header_says_its_job: [("core/pool/pool.h", "#pragma once"), ("core/pool/pool.h", "// todo\n#pragma once")],
}


def named(rules: Iterable[Rule]) -> list[object]:
    return [pytest.param(rule, id=rule.__name__) for rule in rules]


@pytest.mark.parametrize("rule", named(RULES))
def test_rule_holds(rule: Rule) -> None:
    assert list(rule(ROOT)) == []


@pytest.mark.parametrize("rule", named(RULES))
def test_rule_objects_to_what_breaks_it(rule: Rule, tmp_path: Path) -> None:
    for number, (name, text) in enumerate(RULES[rule]):
        broken = tmp_path / str(number) / name
        broken.parent.mkdir(parents=True)
        broken.write_text(text + "\n")
        found = list(rule(tmp_path / str(number)))
        assert len(found) == 1, (name, text, found)
        assert found[0].startswith(name.removeprefix("src/slotpool/").removeprefix("core/"))


def test_linters_look_at_the_whole_repository() -> None:
    assert {"native", "plan", "policies", "model", "cli"} <= {room for room, _, _ in modules(ROOT)}
    assert {"pool", "policy", "store", "dispatch", "door"} <= {room for room, _, _ in core_files(ROOT)} <= {*CORE_ROOMS, "include"}
    assert sum(len(list(includes(text))) for _, _, text in core_files(ROOT)) > 50
    assert sum(len(list(imported_rooms(tree))) for _, _, tree in modules(ROOT)) > 30
