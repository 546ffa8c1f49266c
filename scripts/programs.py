"""Builds llama.cpp's own programs from the source that the engine's package carries, once, into the user's cache.

`python scripts/programs.py` builds what tests/exec wants and prints where it is; `find` only looks. Tests never build, and nothing
here is part of the package: who has llama.cpp installed uses `slotpool exec` with that.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PACKAGE = "llama-cpp-python"
SOURCE_VARIABLE = "SLOTPOOL_ENGINE_SOURCE"
COMMAND = "make programs"
"""What a test that finds no programs tells its reader to do."""


@dataclass(frozen=True)
class Preset:
    """What is built how: CMake's flags, and the targets that are worth it."""

    flags: tuple[str, ...]
    targets: tuple[str, ...]


_SHARED = (
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_RPC=ON",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
)
PRESETS = {
    # everything else as the engine's package is built by scripts/setup.sh: for this processor, with OpenMP
    "release": Preset(
        ("-DCMAKE_BUILD_TYPE=Release", *_SHARED),
        ("llama-bench", "llama-completion", "llama-perplexity", "ggml-rpc-server", "llama-server", "llama-cli"),
    ),
    # backends in libraries of their own, found at run time: as llama.cpp's releases are
    "dynamic": Preset(
        ("-DCMAKE_BUILD_TYPE=Release", *_SHARED, "-DGGML_BACKEND_DL=ON", "-DGGML_NATIVE=OFF"),
        ("ggml-cpu", "llama-completion", "llama-server"),
    ),
    # for tests/storm: libraries alone. ThreadSanitizer does not know OpenMP's barriers and would report every one of them
    "tsan": Preset(
        (
            "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
            "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g1 -DNDEBUG",
            "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1 -DNDEBUG",
            *_SHARED,
            "-DGGML_OPENMP=OFF",
            "-DGGML_SANITIZE_THREAD=ON",
            "-DLLAMA_SANITIZE_THREAD=ON",
            "-DCMAKE_SHARED_LINKER_FLAGS=-fsanitize=thread",
            "-DCMAKE_EXE_LINKER_FLAGS=-fsanitize=thread",
        ),
        ("ggml", "ggml-cpu", "llama"),
    ),
}


def find(preset: str = "release", version: str | None = None) -> Path | None:
    """The folder of the programs and libraries of a build that is complete; None when there is none."""
    folder = _folder(version or engine_version(), PRESETS[preset])
    return folder / "build" / "bin" if (folder / "complete.json").exists() else None


def build(preset: str, *, source: Path | None = None, jobs: int = 1, targets: Sequence[str] = ()) -> Path:
    """Builds what is missing and returns the folder of the programs; `targets` are built beside those of the preset.

    Raises CalledProcessError when a tool fails; its output went to stderr.
    """
    version, chosen = engine_version(), PRESETS[preset]
    folder = _folder(version, chosen)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock"):
        if not (folder / "build" / "CMakeCache.txt").exists():
            code = _engine_source(version, source)
            _call("cmake", "-S", str(code), "-B", str(folder / "build"), *chosen.flags)
        for target in (*chosen.targets, *targets):  # one after the other: what is there early can be used early
            _call("cmake", "--build", str(folder / "build"), "--target", target, "--parallel", str(jobs))
        record = {"engine": version, "preset": preset, "flags": chosen.flags, "targets": chosen.targets}
        (folder / "complete.json").write_text(json.dumps(record, indent=2) + "\n")
    return folder / "build" / "bin"


def engine_version() -> str:
    """The version of the engine that is installed: its source has the ggml that the core was made for."""
    return metadata.version(PACKAGE)


def cache() -> Path:
    """The user's cache folder of this project."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slotpool"


def _folder(version: str, preset: Preset) -> Path:
    # other flags are another build; other targets are not
    key = hashlib.sha256("\0".join(preset.flags).encode()).hexdigest()[:12]
    return cache() / "programs" / f"{version}-{key}"


def _engine_source(version: str, given: Path | None) -> Path:
    """llama.cpp's folder: in the source that was named, else in the package's source distribution."""
    named = os.environ.get(SOURCE_VARIABLE)
    root = given or (Path(named) if named else _unpacked(version))
    for code in (root, root / "vendor" / "llama.cpp"):
        if (code / "tools" / "server").is_dir():
            return code.resolve()
    sys.exit(f"programs: expected llama.cpp's source, found none - at {root}. Name the unpacked source distribution of {PACKAGE}.")


def _unpacked(version: str) -> Path:
    """The source distribution, through pip and its cache, unpacked beside the builds."""
    kept = cache() / "source" / version
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        options = ("--no-deps", "--no-binary", PACKAGE, "--dest", folder)
        _call(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options, f"{PACKAGE}=={version}")
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            _extract(tar, folder)
        (unpacked,) = (one for one in Path(folder).iterdir() if one.is_dir())
        unpacked.rename(kept)
    return kept


def _extract(tar: tarfile.TarFile, folder: str) -> None:
    # Pythons older than the last security releases have no filters
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
    else:
        tar.extractall(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _call(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def main() -> int:
    """Builds as the command line says and prints the folder of the programs on stdout."""
    options = argparse.ArgumentParser(prog="programs", description=(__doc__ or "").split("\n")[0])
    options.add_argument("--preset", choices=sorted(PRESETS), default="release")
    options.add_argument("--source", type=Path, help=f"llama.cpp, or the package unpacked (default: ${SOURCE_VARIABLE}, else by pip)")
    options.add_argument("--target", action="append", default=[], help="build this target as well; may be given several times")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--find", action="store_true", help="build nothing; exit code 1 when the programs are not there")
    chosen = options.parse_args()
    if chosen.find:
        found = find(chosen.preset)
        print(found or f"no {chosen.preset} programs yet: {COMMAND}")
        return 0 if found else 1
    try:
        print(build(chosen.preset, source=chosen.source, jobs=chosen.jobs, targets=chosen.target))
    except subprocess.CalledProcessError as error:
        sys.exit(f"programs: {error.cmd[0]} failed with exit code {error.returncode}, see above")
    return 0


if __name__ == "__main__":
    sys.exit(main())
