"""Finds the other files of a sharded model, given any one of them, and reads all their headers.

The metadata decides whether a model is sharded, the file name only where its other shards are, as in llama.cpp: a single
file that kept a shard's name is a single file. Names are built in the folder of the path as given, symlinks not resolved:
in a Hugging Face cache only the links have the names. Does not judge tensors.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from gguf.constants import Keys

from slotpool.errors import SlotpoolError, printable
from slotpool.model.facts import GgufFile
from slotpool.model.findings import Findings
from slotpool.model.walk import read_gguf

_SHARD_NAME = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)
_MAX_SHARDS = 2**16 - 1


@dataclass(frozen=True)
class ShardSet:
    """The files that are there, in the order of their shards, out of `n_shards`, and what is wrong with the set."""

    files: tuple[GgufFile, ...]
    n_shards: int
    problems: tuple[str, ...]


def read_shards(given: GgufFile) -> ShardSet:
    """All shards of the model that the file `given` belongs to; for a model in one file, that file. Raises nothing."""
    n_shards = given.number(Keys.Split.LLM_KV_SPLIT_COUNT) or 1
    if n_shards == 1:
        return ShardSet((given,), 1, ())
    if not 0 < n_shards <= _MAX_SHARDS:
        return ShardSet((given,), 1, (f"split.count is {n_shards}, expected 1 to {_MAX_SHARDS}",))
    findings = Findings()
    index = _index_by_name(given, n_shards)
    if index is None:
        findings.add("name", _misnamed(given, n_shards))
        return ShardSet((_placed(given),), n_shards, findings.texts())
    found = [given if i == index else _read_sibling(given.path, i, n_shards, findings) for i in range(n_shards)]
    files = tuple(replace(file, shard=i) for i, file in enumerate(found) if file)
    _check_numbers(files, n_shards, findings)
    return ShardSet(files, n_shards, findings.texts())


def shard_path(path: Path, index: int, n_shards: int) -> Path:
    """The path of shard `index`, from 0, beside the shard at `path`."""
    match = _SHARD_NAME.fullmatch(path.name)
    prefix = match[1] if match else path.stem
    return path.parent / f"{prefix}-{index + 1:05d}-of-{n_shards:05d}.gguf"


def _index_by_name(file: GgufFile, n_shards: int) -> int | None:
    match = _SHARD_NAME.fullmatch(file.path.name)
    if match is None or int(match[3]) != n_shards or not 0 < int(match[2]) <= n_shards:
        return None
    return int(match[2]) - 1


def _placed(file: GgufFile) -> GgufFile:
    return replace(file, shard=file.number(Keys.Split.LLM_KV_SPLIT_NO) or 0)


def _misnamed(file: GgufFile, n_shards: int) -> str:
    index = file.number(Keys.Split.LLM_KV_SPLIT_NO) or 0
    end = f"-{index + 1:05d}-of-{n_shards:05d}.gguf"
    name = printable(file.path.name)
    return f"{name} is shard {index + 1} of {n_shards}, expected a name that ends in {end}: rename it, or give the link that has it"


def _read_sibling(given: Path, index: int, n_shards: int, findings: Findings) -> GgufFile | None:
    path = shard_path(given, index, n_shards)
    if not os.path.exists(path):
        folder = printable(path.parent.absolute())
        findings.add("missing", f"missing shard: {printable(path.name)} (shard {index + 1} of {n_shards}, expected in {folder})")
        return None
    try:
        return read_gguf(path)
    except SlotpoolError as error:
        findings.add("unreadable", f"unreadable shard: {error}")
        return None


def _check_numbers(files: tuple[GgufFile, ...], n_shards: int, findings: Findings) -> None:
    for file in (file for file in files if file.is_complete):
        count, index = file.number(Keys.Split.LLM_KV_SPLIT_COUNT), file.number(Keys.Split.LLM_KV_SPLIT_NO)
        if (count, index) != (n_shards, file.shard):
            says = f"split.no {index}, split.count {count}"
            findings.add("split", f"{printable(file.path.name)} says {says}; by its name it is {file.shard} of {n_shards}, counted from 0")
    total = sum(len(file.tensors) for file in files)
    claims = {file.number(Keys.Split.LLM_KV_SPLIT_TENSORS_COUNT) for file in files if file.shard == 0}
    if len(files) == n_shards and all(file.is_complete for file in files) and claims != {total}:
        claim = next(iter(claims))
        expected = "found no number" if claim is None else f"expected {claim}"
        findings.add("tensors", f"the shards hold {total} tensors, {expected} (split.tensors.count of the first)")
