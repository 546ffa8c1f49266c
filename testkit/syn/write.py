"""Writes a model to one file or to shards, streaming: memory stays at a few pools (8 MiB each) whatever the size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from .archs import Keys, model_keys
from .blocks import Pools
from .header import header_bytes, padded
from .model import tensors_of
from .router import Router
from .spec import EXPERT_ROLES, Spec, SynError
from .tensors import Tensor
from .tokenizer import tokenizer_keys

BUFFER_BYTES = 1 << 20  # small tensors gather here, large chunks go past it


def write(spec: Spec, path: str | os.PathLike[str]) -> Path:
    """Write the model to `path`; equal specs give equal bytes. SynError when the spec cannot be written."""
    return write_with(spec, None, path)


def write_with(spec: Spec, router: Router | None, path: str | os.PathLike[str]) -> Path:
    """As `write`, with a router of one's own (replay)."""
    tensors = tensors_of(spec, router)
    return _write_file(Path(path), model_keys(spec) | tokenizer_keys(spec), tensors, pools_of(spec))


def write_shards(
    spec: Spec, path_stem: str | os.PathLike[str], n_shards: int, metadata_only_first: bool = False, contiguous: bool = False
) -> list[Path]:
    """Write the model as `stem-00001-of-0000N.gguf` and so on; all metadata is in the first.

    Tensors are dealt round, so that neighbours lie in different shards: from three shards on, a layer's gate, up and down
    all do. `contiguous` keeps neighbours together instead, as llama-gguf-split does. `metadata_only_first` leaves the first
    shard without tensors.
    """
    tensors = tensors_of(spec)
    parts = _deal(tensors, n_shards, metadata_only_first, contiguous)
    pools, paths = pools_of(spec), []
    for number, part in enumerate(parts):
        split: Keys = {"split.no": number, "split.count": n_shards, "split.tensors.count": len(tensors)}
        keys = model_keys(spec) | tokenizer_keys(spec) | split if number == 0 else split
        path = Path(f"{os.fspath(path_stem)}-{number + 1:05d}-of-{n_shards:05d}.gguf")
        paths.append(_write_file(path, keys, part, pools))
    return paths


def _deal(tensors: Sequence[Tensor], n_shards: int, metadata_only_first: bool, contiguous: bool) -> list[list[Tensor]]:
    full = n_shards - metadata_only_first
    if not 1 <= full <= len(tensors):
        raise SynError(f"expected 1 to {len(tensors)} shards with tensors ({len(tensors)} tensors), got {full}")
    if contiguous:
        cuts = [len(tensors) * i // full for i in range(full + 1)]
        parts = [list(tensors[a:b]) for a, b in pairwise(cuts)]
    else:
        parts = [list(tensors[i::full]) for i in range(full)]
    return [[]] * metadata_only_first + parts


def pools_of(spec: Spec) -> Pools:
    """The rings of noise that a model of this spec is cut from; none is made yet."""
    return Pools(spec.seed, spec.n_layer * len(EXPERT_ROLES) * spec.n_expert, spec.n_embd * spec.n_ff_exp)


def _write_file(path: Path, keys: Keys, tensors: Sequence[Tensor], pools: Pools) -> Path:
    with open(path, "wb", buffering=BUFFER_BYTES) as file:
        file.write(header_bytes(keys, tensors))
        for tensor in tensors:
            for chunk in tensor.chunks(pools):
                file.write(chunk)
            file.write(bytes(padded(tensor.nbytes) - tensor.nbytes))
    return path
