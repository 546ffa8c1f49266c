"""The bytes in front of a GGUF's data: metadata and tensor table, version 3, little endian. Streams nothing.

Own code, because gguf.GGUFWriter cannot stream a tensor and puts model keys into every shard.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gguf.constants import GGUF_DEFAULT_ALIGNMENT, GGUF_MAGIC, GGUFValueType

from .archs import Keys, Value
from .tensors import Tensor

ALIGNMENT: int = GGUF_DEFAULT_ALIGNMENT
U16_KEYS, I32_KEYS = ("split.no", "split.count"), ("split.tensors.count",)


def header_bytes(keys: Keys, tensors: Sequence[Tensor]) -> bytes:
    """Everything up to the data section, padded to the alignment."""
    parts = [struct.pack("<IIQQ", GGUF_MAGIC, 3, len(tensors), len(keys))]
    parts += [_string(name) + _value(name, value) for name, value in keys.items()]
    offset = 0
    for tensor in tensors:
        parts.append(_tensor_info(tensor, offset))
        offset += padded(tensor.nbytes)
    head = b"".join(parts)
    return head.ljust(padded(len(head)), b"\0")


def padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _tensor_info(tensor: Tensor, offset: int) -> bytes:
    n_dims = len(tensor.ne)
    return _string(tensor.name) + struct.pack(f"<I{n_dims}QIQ", n_dims, *tensor.ne, tensor.fmt.type, offset)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(name: str, value: Value) -> bytes:
    if isinstance(value, list):
        kind = _kind("", value[0]) if value else GGUFValueType.STRING
        kind = GGUFValueType.INT32 if kind == GGUFValueType.UINT32 else kind
        return struct.pack("<IIQ", GGUFValueType.ARRAY, kind, len(value)) + b"".join(_scalar(kind, item) for item in value)
    kind = _kind(name, value)
    return struct.pack("<I", kind) + _scalar(kind, value)


def _kind(name: str, value: Value) -> GGUFValueType:
    if isinstance(value, bool):
        return GGUFValueType.BOOL
    if isinstance(value, int):
        return GGUFValueType.UINT16 if name in U16_KEYS else GGUFValueType.INT32 if name in I32_KEYS else GGUFValueType.UINT32
    return GGUFValueType.FLOAT32 if isinstance(value, float) else GGUFValueType.STRING


_PACKING = {
    GGUFValueType.BOOL: "<?",
    GGUFValueType.UINT16: "<H",
    GGUFValueType.UINT32: "<I",
    GGUFValueType.INT32: "<i",
    GGUFValueType.FLOAT32: "<f",
}


def _scalar(kind: GGUFValueType, value: Value) -> bytes:
    return _string(value) if isinstance(value, str) else struct.pack(_PACKING[kind], value)
