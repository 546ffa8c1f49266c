"""Random weights in every ggml block format, made by numpy alone: random quants under sane scales.

It quantises nothing: there is no original weight. `Pool` is a ring of random blocks that big tensors are cut from.
Block layouts: ggml-common.h of llama.cpp; sizes: the gguf package.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from .spec import SynError

Bytes = NDArray[np.uint8]
MIN_POOL_BYTES, MAX_POOL_BYTES = 256 << 10, 8 << 20


@dataclass(frozen=True)
class Format:
    """One ggml type. `rms` is that of its values when the scale field is 1 and all other bits are random.

    `fields` are (offset, kind, factor): a scale of `factor` times the block's scale lies at `offset` (bytes).
    """

    name: str
    rms: float
    fields: tuple[tuple[int, str, float], ...]

    @property
    def type(self) -> GGMLQuantizationType:
        return GGMLQuantizationType[self.name]

    @property
    def elements(self) -> int:
        return int(GGML_QUANT_SIZES[self.type][0])

    @property
    def nbytes(self) -> int:
        return int(GGML_QUANT_SIZES[self.type][1])


def _f16(*fields: tuple[int, float]) -> tuple[tuple[int, str, float], ...]:
    return tuple((offset, "f16", factor) for offset, factor in fields)


# Where a format has a minimum besides a scale, its factor makes the mean of the values zero.
_FORMATS = (
    Format("F32", 1.0, ()),
    Format("F16", 1.0, ()),
    Format("BF16", 1.0, ()),
    Format("Q8_0", 73.93, _f16((0, 1.0))),
    Format("Q4_0", 4.637, _f16((0, 1.0))),
    Format("Q4_1", 4.612, _f16((0, 1.0), (2, -7.5))),
    Format("Q5_0", 9.241, _f16((0, 1.0))),
    Format("Q5_1", 9.22, _f16((0, 1.0), (2, -15.5))),
    Format("Q2_K", 13.9, _f16((80, 1.0), (82, 1.5))),
    Format("Q3_K", 43.55, _f16((108, 1.0))),
    Format("Q4_K", 257.3, _f16((0, 1.0), (2, 7.5))),
    Format("Q5_K", 527, _f16((0, 1.0), (2, 15.5))),
    Format("Q6_K", 1359, _f16((208, 1.0))),
    Format("IQ4_NL", 67.46, _f16((0, 1.0))),
    Format("IQ4_XS", 1248, _f16((0, 1.0))),
    Format("IQ3_S", 140.8, _f16((0, 1.0))),
    Format("IQ3_XXS", 142.4, _f16((0, 1.0))),
    Format("IQ2_S", 56.59, _f16((0, 1.0))),
    Format("IQ2_XS", 55.88, _f16((0, 1.0))),
    Format("IQ2_XXS", 53.31, _f16((0, 1.0))),
    Format("IQ1_S", 7.176, _f16((0, 1.0))),
    Format("MXFP4", 2.926, ((0, "e8m0", 1.0),)),
    Format("NVFP4", 2.926, tuple((i, "ue4m3", 1.0) for i in range(4))),
)
FORMATS = {fmt.name: fmt for fmt in _FORMATS}


def format_of(name: str) -> Format:
    """The format with that ggml type name; SynError lists the valid ones."""
    if name not in FORMATS:
        raise SynError(f'unknown ggml type "{name}" (valid: {", ".join(FORMATS)})')
    return FORMATS[name]


def row_bytes(fmt: Format, n: int) -> int:
    """Bytes of a row of n elements; SynError when n is not whole blocks."""
    if n % fmt.elements:
        raise SynError(f"{fmt.name} needs rows of a multiple of {fmt.elements} elements, got {n}. Take another width or type")
    return n // fmt.elements * fmt.nbytes


def encode(fmt: Format, values: NDArray[np.float32]) -> NDArray[np.generic]:
    """Known values in one of the float types (BF16 truncates: exact for what it can hold)."""
    if fmt.name == "F32":
        return values.astype("<f4")
    if fmt.name == "F16":
        return values.astype("<f2")
    if fmt.name == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    raise SynError(f"expected F32, F16 or BF16 for a tensor with known values, got {fmt.name}")


def random_blocks(fmt: Format, sigma: float, n_blocks: int, rng: np.random.Generator) -> Bytes:
    """`n_blocks` blocks, flat bytes, whose values have mean 0 (about) and standard deviation `sigma`."""
    if not fmt.fields:
        uniform: NDArray[np.float32] = (rng.random(n_blocks, dtype=np.float32) - np.float32(0.5)) * np.float32(sigma * 12**0.5)
        return np.frombuffer(encode(fmt, uniform).tobytes(), np.uint8)
    blocks: Bytes = np.frombuffer(rng.bytes(n_blocks * fmt.nbytes), np.uint8).reshape(n_blocks, fmt.nbytes).copy()
    scale = (rng.random(n_blocks) + 0.5) * (sigma / fmt.rms)
    for offset, kind, factor in fmt.fields:
        field_bytes = _SCALES[kind](scale * factor)
        blocks[:, offset : offset + field_bytes.shape[1]] = field_bytes
    return blocks.reshape(-1)


def _f16_bytes(scale: NDArray[np.float64]) -> Bytes:
    return np.frombuffer(scale.astype("<f2").tobytes(), np.uint8).reshape(-1, 2)


def _e8m0_bytes(scale: NDArray[np.float64]) -> Bytes:
    codes: Bytes = np.clip(np.rint(np.log2(scale)) + 127, 1, 254).astype(np.uint8)
    return codes.reshape(-1, 1)


def _ue4m3_bytes(scale: NDArray[np.float64]) -> Bytes:
    codes: Bytes = np.clip(np.searchsorted(_UE4M3, scale), 1, 126).astype(np.uint8)
    return codes.reshape(-1, 1)


# Values of the codes 0 to 126: 4 bits of exponent (bias 7), 3 of mantissa.
_UE4M3 = np.array([(m / 8 if e == 0 else (1 + m / 8) * 2.0 ** (e - 1)) * 2.0**-6 for e in range(16) for m in range(8)][:127])
_SCALES = {"f16": _f16_bytes, "e8m0": _e8m0_bytes, "ue4m3": _ue4m3_bytes}


@dataclass(frozen=True)
class Pool:
    """A ring of random blocks. Its length is prime: no period fits a row, a page or a slab."""

    fmt: Format
    data: Bytes

    @property
    def n_blocks(self) -> int:
        return self.data.size // self.fmt.nbytes

    def cut(self, key: int, n_blocks: int) -> Iterator[memoryview]:
        """The bytes of `n_blocks` blocks from the place of `key`; keys below the ring's length have distinct places."""
        at, left = key * int(self.n_blocks * 0.618) % self.n_blocks, n_blocks
        while left:
            take = min(left, self.n_blocks - at)
            yield self.data[at * self.fmt.nbytes : (at + take) * self.fmt.nbytes].data
            at, left = 0, left - take


@dataclass
class Pools:
    """The pools of one model, made when first asked for; `n_keys` distinct cuts and slabs of `slab_elements` fit each."""

    seed: int
    n_keys: int
    slab_elements: int
    made: dict[tuple[str, float], Pool] = field(default_factory=dict)

    def get(self, fmt: Format, sigma: float) -> Pool:
        key = (fmt.name, sigma)
        if key not in self.made:
            rng = np.random.default_rng([self.seed, zlib.crc32(f"{fmt.name} {sigma!r}".encode())])
            self.made[key] = Pool(fmt, random_blocks(fmt, sigma, self._length(fmt), rng))
        return self.made[key]

    def _length(self, fmt: Format) -> int:
        slab_bytes = self.slab_elements // fmt.elements * fmt.nbytes
        pool_bytes = min(max(slab_bytes, MIN_POOL_BYTES), MAX_POOL_BYTES)
        return _next_prime(max(pool_bytes // fmt.nbytes, self.n_keys))


def _next_prime(n: int) -> int:
    while any(n % d == 0 for d in range(2, int(n**0.5) + 1)):
        n += 1
    return n
