"""Puts the files of a model together: which tensors are experts, where they lie, what they weigh, what is wrong.

Does not read bytes (`walk` does) and does not judge (`damage` does).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain

from gguf.constants import Keys

from slotpool.errors import printable
from slotpool.model.damage import expert_problems, file_problems, name_problems
from slotpool.model.experts import block_number, expert_place
from slotpool.model.facts import ExpertTensor, GgufFile, Model
from slotpool.model.shards import ShardSet, read_shards
from slotpool.model.walk import read_gguf


def read(path: str | bytes | os.PathLike[str]) -> Model:
    """The model at `path`, all its shards included, whichever of them is given.

    Raises SlotpoolError when this file cannot be opened or is no GGUF. Everything else that would keep llama.cpp from
    loading the model is named in `problems`: truncated, overlapping or misaligned tensors, missing shards, unknown types...
    """
    shards = read_shards(read_gguf(path))
    first = shards.files[0]
    architecture = _architecture(first)
    experts = tuple(chain.from_iterable(map(_experts, shards.files)))
    n_bytes = sum(tensor.n_bytes for file in shards.files for tensor in file.tensors)
    expert_bytes = sum(tensor.n_bytes for tensor in experts)
    return Model(
        files=shards.files,
        n_shards=shards.n_shards,
        architecture=architecture,
        n_layer=_n_layer(shards.files, architecture),
        n_expert=first.number(f"{architecture}.expert_count") or _most(experts),
        n_expert_used=first.number(f"{architecture}.expert_used_count") or 0,
        experts=experts,
        expert_bytes=expert_bytes,
        other_bytes=n_bytes - expert_bytes,
        problems=_problems(shards, experts, architecture),
    )


def _architecture(first: GgufFile) -> str:
    value = first.metadata.get(Keys.General.ARCHITECTURE)
    return value if isinstance(value, str) else ""


def _experts(file: GgufFile) -> list[ExpertTensor]:
    placed = ((tensor, expert_place(tensor.name)) for tensor in file.tensors)
    return [
        ExpertTensor(
            name=tensor.name,
            layer=place.layer,
            role=place.role,
            type=tensor.type,
            ne=tensor.ne,
            n_expert=tensor.ne[2],
            slab_bytes=tensor.slab_bytes,
            shard=file.shard,
            offset=tensor.offset,
            n_bytes=tensor.n_bytes,
        )
        for tensor, place in placed
        if place
    ]


def _most(experts: Sequence[ExpertTensor]) -> int:
    return max((tensor.n_expert for tensor in experts), default=0)


def _n_layer(files: Sequence[GgufFile], architecture: str) -> int:
    """`block_count`; for a file without that key (projectors, adapters), one more than the highest layer of a name."""
    blocks = (block_number(tensor.name) for file in files for tensor in file.tensors)
    return files[0].number(f"{architecture}.block_count") or max((n + 1 for n in blocks if n is not None), default=0)


def _problems(shards: ShardSet, experts: Sequence[ExpertTensor], architecture: str) -> tuple[str, ...]:
    of_files = [_named(file, text, shards.n_shards) for file in shards.files for text in file_problems(file)]
    first = shards.files[0]
    nameless = () if architecture or not _describes(first) else (f"expected a name in {Keys.General.ARCHITECTURE}, found none",)
    return (*shards.problems, *of_files, *nameless, *name_problems(shards.files), *expert_problems(experts, first, architecture))


def _describes(first: GgufFile) -> bool:
    return first.is_complete and first.shard == 0


def _named(file: GgufFile, text: str, n_shards: int) -> str:
    return f"{printable(file.path.name)}: {text}" if n_shards > 1 else text
