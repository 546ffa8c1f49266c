"""Builds the engine for CUDA and the core into a folder, resumable: what was compiled before a time limit is not compiled again.

A wheel of llama-cpp-python among the packed ones is taken instead: who has nvcc and more time elsewhere builds it there. Goes into a
folder of its own, beside whatever engine the Python that runs this has; nothing is installed anywhere else.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.gpu import source
from benchmarks.gpu.steps import Steps

ROOT = Path(__file__).parents[2]
_NEEDED = ("numpy", "click", "rich", "psutil", "gguf", "jinja2", "diskcache", "typing_extensions")
_BUILDERS = ("scikit_build_core", "cmake", "ninja")


def why_not() -> str:
    """Why nothing can be measured here: no GPU, or no compiler for it; empty when both are there."""
    found = _said("nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader")
    if not found:
        return "expected an NVIDIA GPU that nvidia-smi lists, found none"
    return "" if nvcc() else "expected nvcc on PATH or under CUDA_HOME, /usr/local/cuda, found none"


def nvcc() -> str:
    """The CUDA compiler; empty when there is none."""
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    places = [shutil.which("nvcc"), *(f"{home}/bin/nvcc" for home in homes if home)]
    return next((place for place in places if place and Path(place).exists()), "")


def facts(steps: Steps) -> None:
    """What this machine has, for the record."""
    steps.note(
        "facts",
        gpu=_said(
            "nvidia-smi",
            "--query-gpu=name,compute_cap,memory.total,driver_version,pcie.link.gen.max,pcie.link.width.max",
            "--format=csv,noheader",
        ),
        nvcc=_said(nvcc(), "--version").splitlines()[-1:],
        python=sys.version.split()[0],
        cmake=_said("cmake", "--version").splitlines()[:1],
        cores=os.cpu_count(),
    )


def build(steps: Steps, folder: Path, given: Path | None, seconds: float, *, flash_attention: bool) -> Mapping[str, str] | None:
    """The environment in which the engine for CUDA and the core are found; None when one of them could not be had."""
    folder.mkdir(parents=True, exist_ok=True)
    site = folder / "site"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (site, ROOT / "src", ROOT))), "PYTHONUNBUFFERED": "1"}
    environment["PATH"] = os.pathsep.join((str(Path(nvcc()).parent), environment.get("PATH", "")))
    environment.setdefault("CUDACXX", nvcc())
    if found := cublas():  # the engine's library is linked to it without a path
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (str(found[1]), environment.get("LD_LIBRARY_PATH", ""))))
    wheels = sorted(given.glob("*.whl")) if given and given.is_dir() else []
    if wheels and not steps.run("wheels", _pip(site, "--no-index", *map(str, wheels)), 60):
        return None
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None and not (site / name).exists()]
    if missing:
        steps.note(
            "engine", outcome=f"expected Python packages {', '.join(missing)}, found none (python -m benchmarks.gpu.source brings some)"
        )
        return None
    if not _core(steps, folder, environment):
        return None
    if any(wheel.name.startswith("llama_cpp_python-") for wheel in wheels):
        steps.note("engine", outcome="built before", wheel=True)
    elif not _engine(steps, folder, given, seconds, environment, flash_attention):
        return None
    return environment


def _engine(steps: Steps, folder: Path, given: Path | None, seconds: float, environment: Mapping[str, str], flash_attention: bool) -> bool:
    site, stamp = folder / "site", folder / "engine.built"
    flags = cmake_flags(folder, flash_attention)
    if stamp.exists() and stamp.read_text() == " ".join(flags):
        steps.note("engine", outcome="built before")
        return True
    is_packed = given is not None and given.is_dir() and (given / source.ENGINE).exists()
    try:
        root = source.unpacked(given / source.ENGINE if given and is_packed else given or source.downloaded(folder), folder / "source")
    except (OSError, subprocess.CalledProcessError, StopIteration) as error:
        steps.note("engine", outcome=f"expected llama-cpp-python's source (--source), found none: {error}")
        return False
    has_builders = all(importlib.util.find_spec(name) or shutil.which(name) for name in _BUILDERS)
    isolation = ("--no-build-isolation", "--no-index") if has_builders else ()
    command = _pip(site, "-v", *isolation, f"--config-settings=build-dir={folder / 'engine'}", str(root))
    cmake = {"CMAKE_ARGS": " ".join(flags), "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1), "CMAKE_GENERATOR": "Ninja"}
    if not steps.run("engine", command, seconds, environment={**environment, **cmake}):
        steps.note("engine", hint="run it again on this machine: what was compiled stays")
        return False
    stamp.write_text(" ".join(flags))
    return True


def cmake_flags(folder: Path, flash_attention: bool) -> list[str]:
    """For the GPU of this machine alone. Flash attention's kernels are most of the build and no part of what is measured.

    A toolkit without cuBLAS gets that of NVIDIA's Python packages, and one without the driver's stub does without virtual memory.
    """
    found = _said("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").split()
    capabilities = sorted({one.replace(".", "") for one in found if re.fullmatch(r"\d+\.\d", one)})
    return [
        "-DGGML_CUDA=ON",
        "-DGGML_RPC=ON",
        "-DLLAVA_BUILD=OFF",
        "-DGGML_CUDA_NCCL=OFF",
        f"-DGGML_CUDA_FA={'ON' if flash_attention else 'OFF'}",
        f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(f'{one}-real' for one in capabilities) or 'native'}",
        *([] if _of_toolkit("lib64/stubs/libcuda.so") else ["-DGGML_CUDA_NO_VMM=ON"]),
        *([] if _of_toolkit("include/cublas_v2.h") else [f"-DCMAKE_PROJECT_INCLUDE={_cublas_hook(folder)}"]),
    ]


def _of_toolkit(name: str) -> bool:
    """Whether the toolkit has a file, in either of the two layouts that toolkits have."""
    root = Path(nvcc()).resolve().parent.parent
    return any(place.exists() for place in (root / name, root / "targets/x86_64-linux" / name.replace("lib64", "lib")))


def cublas() -> tuple[Path, Path] | None:
    """cuBLAS of NVIDIA's Python packages: the folders of its headers and of its libraries. None where there is none."""
    for place in map(Path, sys.path):
        for header in sorted(place.glob("nvidia/*/include/cublas_v2.h"), reverse=True):
            libraries = header.parents[1] / "lib"
            if any(libraries.glob("libcublas.so.*")) and any(libraries.glob("libcublasLt.so.*")):
                return header.parent, libraries
    return None


def _cublas_hook(folder: Path) -> Path:
    """A file for CMake that makes the targets which a toolkit with cuBLAS would have made."""
    hook = folder / "cublas.cmake"
    found = cublas()
    lines = ["# cuBLAS of a Python package, for a toolkit that has none"]
    for name in ("cublas", "cublasLt") if found else ():
        include, libraries = found
        library = sorted(libraries.glob(f"lib{name}.so.*"))[-1]
        lines += [
            f"if(NOT TARGET CUDA::{name})",
            f"  add_library(CUDA::{name} SHARED IMPORTED GLOBAL)",
            f'  set_target_properties(CUDA::{name} PROPERTIES IMPORTED_LOCATION "{library}" INTERFACE_INCLUDE_DIRECTORIES "{include}")',
            "endif()",
        ]
    hook.write_text("\n".join(lines) + "\n")
    return hook


def _core(steps: Steps, folder: Path, environment: Mapping[str, str]) -> bool:
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder / "core"), "-DCMAKE_BUILD_TYPE=Release"]
    make = ["cmake", "--build", str(folder / "core"), "--parallel", str(os.cpu_count() or 1)]
    if not steps.run("core-configure", configure, 60, environment=environment) or not steps.run("core", make, 180, environment=environment):
        return False
    shutil.copy2(folder / "core/libslotpool.so", ROOT / "src/slotpool/libslotpool.so")
    return True


def _pip(site: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--upgrade", "--target", str(site), *arguments]


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
