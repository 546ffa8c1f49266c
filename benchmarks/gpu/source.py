"""The engine's source for a machine without a network, cut to what a build for CUDA reads: `python -m benchmarks.gpu.source FOLDER`.

Makes FOLDER/engine.tar.gz of llama-cpp-python's source package (a path to its archive or folder, or downloaded by pip), and puts the
wheels beside it that such a machine may lack. Builds nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

ENGINE = "engine.tar.gz"
_LLAMA_CPP = "vendor/llama.cpp"
_LEFT_OUT = (
    *(".git", ".github", "docs", "examples", "tests", "docker", "notebooks"),
    *(
        f"{_LLAMA_CPP}/{name}"
        for name in ("models", "docs", "media", "benches", "tests", "examples", "tools", "gguf-py", "conversion", ".git")
    ),
    *(f"{_LLAMA_CPP}/{name}" for name in ("scripts", "ci", "pocs", "skills", ".github", ".devops", "grammars", "requirements")),
)
_LEFT_IN = (f"{_LLAMA_CPP}/scripts/build-info.cmake",)
_WHEELS = ("diskcache", "gguf")
"""What the engine and the testkit import and few machines have; others are asked for by name when they are missing."""


def pack(folder: Path, source: Path | None) -> None:
    """Fills `folder`. SystemExit when there is no source."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="slotpool-source-") as work:
        root = unpacked(source or downloaded(Path(work)), Path(work) / "source")
        with tarfile.open(folder / ENGINE, "w:gz") as archive:
            archive.add(root, "engine", filter=lambda entry: entry if is_wanted(entry.name.removeprefix("engine").lstrip("/")) else None)
    versions = [f"{name}=={metadata.version(name)}" for name in _WHEELS]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), *versions], check=True)
    print(*(f"{file} ({file.stat().st_size / 1e6:.1f} MB)" for file in sorted(folder.iterdir())), sep="\n")


def is_wanted(name: str) -> bool:
    """Whether a file or folder of the source is read by a build."""
    is_parent = any(kept.startswith(f"{name}/") for kept in _LEFT_IN)
    return name in _LEFT_IN or is_parent or not any(name == left or name.startswith(f"{left}/") for left in _LEFT_OUT)


def downloaded(folder: Path) -> Path:
    """llama-cpp-python's source package of the version that is installed, from pip."""
    wanted = f"llama-cpp-python=={metadata.version('llama-cpp-python')}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--no-build-isolation",
        "-d",
        str(folder),
        wanted,
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("*.tar.gz"))


def unpacked(source: Path, folder: Path) -> Path:
    """The folder with the source's pyproject.toml: `source` itself, or what its archive holds, unpacked into `folder`."""
    if source.is_dir():
        return source
    with tarfile.open(source) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    found = sorted(folder.glob("*/pyproject.toml"))
    if not found:
        raise SystemExit(f"expected llama-cpp-python's source in {source}, found no pyproject.toml")
    return found[0].parent


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--source", type=Path, help="the source package's archive or folder")
    chosen = options.parse_args()
    pack(chosen.folder, chosen.source)
