"""Models that llama.cpp has downloaded before: the files of its caches, found without network and without changing anything.

Where they are and which file of a repository is meant follows llama.cpp's own rules; a program that asks the network may still
choose a newer one, and then finds no pool for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_PLACES = (
    ("LLAMA_CACHE", ""),
    ("HF_HUB_CACHE", ""),
    ("HUGGINGFACE_HUB_CACHE", ""),
    ("HF_HOME", "hub"),
    ("XDG_CACHE_HOME", "huggingface/hub"),
    ("HOME", ".cache/huggingface/hub"),
)
"""Where repositories are kept: the first variable that is set decides."""
_DEFAULT_TAGS = ("Q4_K_M", "Q8_0")
_NO_MODELS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_REPOSITORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}", re.IGNORECASE)
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)


def cached_repository(name: str, file: str, environment: Mapping[str, str]) -> Path | None:
    """The cached file that `-hf name[:tag]` means, or the named `file` of the repository; None when it is not there."""
    repository, _, tag = name.partition(":")
    if not _REPOSITORY.fullmatch(repository):
        return None
    snapshot = _snapshot(_repositories(environment) / f"models--{repository.replace('/', '--')}")
    if snapshot is None:
        return None
    names = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf") if path.is_file())
    chosen = file if file in names else "" if file else _meant(names, tag)
    return snapshot / chosen if chosen else None


def cached_download(url: str, environment: Mapping[str, str]) -> Path | None:
    """The cached file of `--model-url url`; None when it is not there."""
    name = re.split("[#?]", url)[0].rsplit("/", 1)[-1]
    if environment.get("LLAMA_CACHE"):
        folder = Path(environment["LLAMA_CACHE"])
    else:
        folder = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/"), ".cache")) / "llama.cpp"
    return folder / name if name and (folder / name).is_file() else None


def _repositories(environment: Mapping[str, str]) -> Path:
    for variable, below in _PLACES:
        if environment.get(variable):
            return Path(environment[variable], below)
    return Path("/nonexistent")


def _snapshot(repository: Path) -> Path | None:
    """The folder of the commit that the branch main was at, or another branch where there is no main."""
    references = repository / "refs"
    if not references.is_dir():
        return None
    for reference in sorted(references.iterdir(), key=lambda path: (path.name != "main", path.name)):
        with reference.open(errors="replace") as lines:
            commit = lines.readline(64).strip()
        if _COMMIT.fullmatch(commit) and (repository / "snapshots" / commit).is_dir():
            return repository / "snapshots" / commit
    return None


def _meant(names: list[str], tag: str) -> str:
    models = [name for name in names if not _LATER_SHARD.search(name) and not any(word in name.rsplit("/", 1)[-1] for word in _NO_MODELS)]
    return next(_matching(models, (tag,) if tag else _DEFAULT_TAGS), "" if tag else next(iter(models), ""))


def _matching(models: list[str], tags: tuple[str, ...]) -> Iterator[str]:
    for tag in tags:
        wanted = re.compile(re.escape(tag) + "[.-]", re.IGNORECASE)
        yield from (name for name in models if wanted.search(name))
