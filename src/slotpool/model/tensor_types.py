"""The tensor types of ggml: number in the file, name, elements per block, bytes per block.

Does not know how a type is encoded. Names and sizes are those of the `gguf` package.
"""

from __future__ import annotations

from typing import NamedTuple

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType


class TensorType(NamedTuple):
    """`block` elements of a row take `block_bytes` bytes."""

    name: str
    block: int
    block_bytes: int


# Types of llama.cpp (2026-10) that a released gguf package may not list yet: 0.17 lacks some, 0.19 lacks Q2_0.
_NEWER = {
    39: TensorType("MXFP4", 32, 1 + 16),
    40: TensorType("NVFP4", 64, 4 + 32),
    41: TensorType("Q1_0", 128, 2 + 16),
    42: TensorType("Q2_0", 64, 2 + 16),
}

TENSOR_TYPES: dict[int, TensorType] = _NEWER | {
    int(kind): TensorType(GGMLQuantizationType(kind).name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()
}
"""By the number that a GGUF file stores. What is not here, llama.cpp cannot read."""
