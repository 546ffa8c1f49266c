"""A matrix of shades as a PNG in a data URI: one colour, more or less opaque, so that it fits light and dark pages alike."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def shades(values: NDArray[np.float64], colour: tuple[int, int, int]) -> str:
    """`values` [rows, columns] from 0 (clear) to 1 (full) as one pixel each."""
    height, width = values.shape
    pixels = np.empty((height, width, 4), np.uint8)
    pixels[..., :3] = colour
    pixels[..., 3] = np.clip(np.nan_to_num(values) * 255, 0, 255).astype(np.uint8)
    # every row of a PNG begins with the number of its filter, here none
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * 4)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    data = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
