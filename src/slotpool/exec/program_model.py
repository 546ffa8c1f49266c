"""Which model a llama.cpp program's own arguments and environment name.

Knows the few options that name the model to run, and no other option of any program; downloads nothing. A draft model, a projector
or an adapter is never it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from slotpool.errors import SlotpoolError, quoted
from slotpool.exec.cached_model import cached_download, cached_repository
from slotpool.exec.program_options import values

_OPTIONS = {
    "-m": "model",
    "--model": "model",
    "-hf": "repository",
    "-hfr": "repository",
    "--hf-repo": "repository",
    "-hff": "repository file",
    "--hf-file": "repository file",
    "-mu": "url",
    "--model-url": "url",
    "-dr": "docker",
    "--docker-repo": "docker",
}
_VARIABLES = {
    "LLAMA_ARG_MODEL": "model",
    "LLAMA_ARG_HF_REPO": "repository",
    "LLAMA_ARG_HF_FILE": "repository file",
    "LLAMA_ARG_MODEL_URL": "url",
    "LLAMA_ARG_DOCKER_REPO": "docker",
}
_GIVE_MODEL = "Give the program its model with -m FILE."


def program_model(arguments: Sequence[str], environment: Mapping[str, str]) -> Path:
    """The file of the model that a program with these arguments will load; arguments count before the environment, as they do there.

    Raises SlotpoolError when they name none, several, or one that is not on this machine.
    """
    named = _named(arguments, environment)
    sources = [kind for kind in ("model", "repository", "docker") if kind in named]
    if len(sources) > 1:
        raise _several([named[kind] for kind in sources])
    if "repository" in named:
        return _in_repository(named["repository"], named.get("repository file", ""), environment)
    if "model" in named:
        return _one_file(named["model"])
    if "url" in named:
        return _downloaded(named["url"], environment)
    found = f'a repository of Docker Hub ("{quoted(named["docker"])}")' if "docker" in named else "none"
    raise SlotpoolError(f"expected a model in the program's arguments, found {found}", where="slotpool exec", do=_GIVE_MODEL)


def _named(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    named = {kind: environment[name] for name, kind in _VARIABLES.items() if environment.get(name)}
    given: dict[str, str] = {}
    for option, kind in _OPTIONS.items():
        for value in values(arguments, (option,)):
            if given.get(kind, value) != value:
                raise _several([given[kind], value])
            given[kind] = value
    return named | given


def _one_file(text: str) -> Path:
    # llama-bench takes several models with commas between them
    parts = text.split(",")
    if len(parts) > 1 and not Path(text).exists() and all(Path(part).exists() for part in parts):
        raise _several(parts)
    return Path(text)


def _in_repository(repository: str, file: str, environment: Mapping[str, str]) -> Path:
    found = cached_repository(repository, file, environment)
    if found is None:
        raise _not_cached(repository)
    return found


def _downloaded(url: str, environment: Mapping[str, str]) -> Path:
    found = cached_download(url, environment)
    if found is None:
        raise _not_cached(url)
    return found


def _not_cached(name: str) -> SlotpoolError:
    return SlotpoolError(
        f'expected the model of "{quoted(name)}" in the cache of downloads, found none',
        where="slotpool exec",
        do=f"Run the program once without slotpool exec, which downloads it. Or: {_GIVE_MODEL[0].lower()}{_GIVE_MODEL[1:]}",
    )


def _several(names: Sequence[str]) -> SlotpoolError:
    shown = ", ".join(f'"{quoted(name)}"' for name in names)
    do = "A plan is for one model: run the program once for each."
    return SlotpoolError(f"expected one model in the program's arguments, found {len(names)}: {shown}", where="slotpool exec", do=do)
