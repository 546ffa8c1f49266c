"""What tests share: the oracle's process and tiny models, each written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit import syn
from testkit.oracle import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Plain llama.cpp in a process of its own."""
    with Oracle() as plain:
        yield plain


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[syn.Spec], Path]:
    """Writes a model once; equal specs share a file."""
    folder = tmp_path_factory.mktemp("models")
    known: dict[str, Path] = {}

    def written(spec: syn.Spec) -> Path:
        name = repr(spec)
        if name not in known:
            known[name] = syn.write(spec, folder / f"{len(known)}-{spec.arch}.gguf")
        return known[name]

    return written
