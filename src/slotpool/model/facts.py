"""The facts of a model, frozen: a file, its tensors, the whole model over all its shards.

Holds no file open and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | tuple[Scalar, ...]
"""A metadata value. Strings that are not UTF-8 have the offending bytes written as `\\xNN`."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of one file. `ne` has four entries, as in ggml; `offset` counts from the start of the file.

    `type` is ggml's name (`Q4_K`), or `type 77` for a number that llama.cpp does not know; `n_bytes` is then 0.
    """

    name: str
    type: str
    ne: tuple[int, int, int, int]
    offset: int
    n_bytes: int

    @property
    def is_sized(self) -> bool:
        """Whether `n_bytes` is known: the type is, and the shape fits it."""
        return self.n_bytes > 0 or 0 in self.ne

    @property
    def slab_bytes(self) -> int:
        """nb[2] of ggml: bytes from one index of ne[2] to the next, one expert in an expert tensor."""
        n_slabs = self.ne[2] * self.ne[3]
        return self.n_bytes // n_slabs if n_slabs else 0


@dataclass(frozen=True)
class GgufFile:
    """The header of one file. `shard` is its place in its set, from 0.

    Tensor data starts at byte `data_offset`, a multiple of `alignment`. `metadata` has the scalars and the small arrays;
    `skipped` names the other keys with their number of elements.
    A header that could not be walked to its end has `is_complete` false, no tensors, and the reason in `problems`.
    `mtime_ns` is when the file was last changed before its header was read, nanoseconds since the epoch.
    """

    path: Path
    size: int
    version: int
    alignment: int
    data_offset: int
    metadata: Mapping[str, Value]
    skipped: Mapping[str, int]
    tensors: tuple[Tensor, ...]
    problems: tuple[str, ...]
    is_complete: bool
    shard: int = 0
    mtime_ns: int = field(default=0, compare=False)

    def number(self, key: str) -> int | None:
        """The integer at `key`, the largest one where a file has an entry per layer, None where there is none."""
        value = self.metadata.get(key)
        values = value if isinstance(value, tuple) else (value,)
        return max((n for n in values if isinstance(n, int) and not isinstance(n, bool)), default=None)


@dataclass(frozen=True)
class ExpertTensor:
    """An expert tensor: `n_expert` slabs of `slab_bytes` (nb[2]), one after the other from `offset` of the file of `shard`.

    `role` is one of `experts.ROLES`; `ne` is (in, out, n_expert, 1). `layer` may lie past the trunk (NextN/MTP blocks).
    """

    name: str
    layer: int
    role: str
    type: str
    ne: tuple[int, int, int, int]
    n_expert: int
    slab_bytes: int
    shard: int
    offset: int
    n_bytes: int

    @property
    def is_chunk(self) -> bool:
        """Whether these are chunk experts (grovemoe): fewer of them, chosen by ids of their own."""
        return self.role.endswith("_ch")


@dataclass(frozen=True)
class Model:
    """A model over all its shards. Sizes are bytes of tensor data, headers and padding not counted.

    `files` lacks the shards that are missing, so look a file up with `file_of`. `architecture` is empty when unknown.
    `n_expert` is 0 in a dense model; `n_expert_used` is the largest of all layers. Every entry of `problems` keeps llama.cpp
    from loading the model.
    """

    files: tuple[GgufFile, ...]
    n_shards: int
    architecture: str
    n_layer: int
    n_expert: int
    n_expert_used: int
    experts: tuple[ExpertTensor, ...]
    expert_bytes: int
    other_bytes: int
    problems: tuple[str, ...]

    def file_of(self, shard: int) -> GgufFile:
        """The file of a shard. KeyError when that shard is missing."""
        return self._files[shard]

    @property
    def metadata(self) -> Mapping[str, Value]:
        """The metadata of the first file: in a sharded model only that one describes the model."""
        return self.files[0].metadata

    @property
    def drafting_layers(self) -> range:
        """Blocks after the trunk that only draft (NextN, MTP); none in a model that has no others."""
        n = (self.files[0].number(f"{self.architecture}.nextn_predict_layers") or 0) if self.files else 0
        return range(self.n_layer - n, self.n_layer) if 0 < n < self.n_layer else range(0)

    @property
    def layers(self) -> dict[int, tuple[ExpertTensor, ...]]:
        """The expert tensors by layer, in the order of the layers; a layer without experts has no entry."""
        return by_layer(self.experts)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of its expert tensors, in the order in which they are first met."""
        return tuple(dict.fromkeys(tensor.role for tensor in self.experts))

    @cached_property
    def _files(self) -> dict[int, GgufFile]:
        return {file.shard: file for file in self.files}


def by_layer(experts: Sequence[ExpertTensor]) -> dict[int, tuple[ExpertTensor, ...]]:
    """Expert tensors grouped by layer; within a layer the order stays."""
    in_order = sorted(experts, key=attrgetter("layer"))
    return {layer: tuple(tensors) for layer, tensors in groupby(in_order, attrgetter("layer"))}
