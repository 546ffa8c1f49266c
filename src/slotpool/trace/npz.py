"""Traces as npz: `ids` [n_tokens, n_layer, k], and where known `probs` of the same shape and `offsets` [n_examples + 1].

The layout of AmanPriyanshu/GPT-OSS-MoE-ExpertFingerprinting. `layers` [n_layer], the numbers in the model, and `n_expert` [1] are ours and
may be missing. Such a file holds decode tokens only: one row per token in every layer.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotpool.errors import SlotpoolError, printable
from slotpool.trace.facts import PASSES, Facts, Group, Segment, Trace, single_events
from slotpool.trace.sections import MAX_EXPERTS, MAX_GROUPS, MAX_LAYER

MAX_ARRAY = 1 << 34
"""Bytes of one array, unpacked."""


class _FormatError(Exception):
    """Not a file of this layout; the text says why."""


def load(path: str | os.PathLike[str], n_expert: int | None = None) -> Trace:
    """The trace of an npz file. `n_expert` where neither the file nor its largest id says it.

    Raises SlotpoolError when it is no such file, or its arrays do not fit each other.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            arrays = {name: _array(archive, name) for name in ("ids", "probs", "offsets", "layers", "n_expert") if f"{name}.npy" in names}
        return _trace(arrays, n_expert)
    except (_FormatError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise SlotpoolError(f"expected an npz with ids [tokens, layers, k]: {error}", where=printable(path)) from error


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """One array. numpy would allocate what the header claims: it is compared with the bytes that are there first."""
    size = archive.getinfo(f"{name}.npy").file_size
    if size > MAX_ARRAY:
        raise _FormatError(f"{name} has {size} bytes, expected at most {MAX_ARRAY}")
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(file)
        if dtype.kind not in "uif" or is_fortran or prod(shape) * dtype.itemsize != size - file.tell():
            raise _FormatError(f"{name} does not have the numbers that it claims")
        found: NDArray[Any] = np.frombuffer(file.read(), dtype).reshape(shape)
    return found


def _trace(arrays: dict[str, NDArray[Any]], known: int | None) -> Trace:
    ids = arrays.get("ids")
    if ids is None or ids.ndim != 3 or ids.dtype.kind not in "ui" or not ids.size:
        raise _FormatError("it has no ids of three dimensions")
    if not 0 <= int(ids.min()) <= int(ids.max()) < MAX_EXPERTS or ids.shape[1] > MAX_GROUPS:
        raise _FormatError("its ids are no expert ids")
    n_expert = known or _number(arrays.get("n_expert")) or int(ids.max()) + 1
    if int(ids.max()) >= n_expert:
        raise _FormatError(f"expected ids below {n_expert}, found {int(ids.max())}")
    if n_expert < ids.shape[2]:
        raise _FormatError(f"it has {ids.shape[2]} ids a token of {n_expert} experts")
    probs, layers = arrays.get("probs"), _layers(arrays.get("layers"), ids.shape[1])
    if probs is not None and probs.shape != ids.shape:
        raise _FormatError("probs do not have the shape of ids")
    groups = tuple(_group(ids, probs, index, int(layer), n_expert) for index, layer in enumerate(layers))
    facts = Facts(n_layer=len(layers), n_expert=n_expert, n_expert_used=ids.shape[2], source="npz")
    return Trace(facts, groups, _segments(arrays.get("offsets"), len(ids)))


def _number(found: NDArray[Any] | None) -> int:
    """The one number of an array of ours, 0 where there is none."""
    is_number = found is not None and found.dtype.kind in "ui" and found.size == 1
    number = int(found.ravel()[0]) if found is not None and is_number else 0
    return number if 0 < number <= MAX_EXPERTS else 0


def _layers(found: NDArray[Any] | None, n_layer: int) -> NDArray[np.int64]:
    if found is None:
        return np.arange(n_layer)
    layers = found.astype(np.int64)
    is_right = layers.shape == (n_layer,) and found.dtype.kind in "ui" and layers[0] >= 0 and layers[-1] < MAX_LAYER
    if not is_right or (np.diff(layers) <= 0).any():
        raise _FormatError("layers are no numbers of layers")
    return layers


def _group(ids: NDArray[Any], probs: NDArray[Any] | None, index: int, layer: int, n_expert: int) -> Group:
    of_layer = np.ascontiguousarray(ids[:, index], np.int32)
    weights = None if probs is None else np.ascontiguousarray(probs[:, index], np.float32)
    return Group(layer, PASSES[0], n_expert, ids.shape[2], of_layer, single_events(of_layer), weights)


def _segments(offsets: NDArray[Any] | None, n_tokens: int) -> tuple[Segment, ...]:
    if offsets is None:
        return ()
    steps = offsets.astype(np.int64)
    if (
        offsets.ndim != 1
        or offsets.dtype.kind not in "ui"
        or len(steps) < 2
        or steps[0]
        or steps[-1] != n_tokens
        or (np.diff(steps) < 0).any()
    ):
        raise _FormatError("offsets do not cut the tokens into examples")
    return tuple(Segment(int(first), f"example {index}") for index, first in enumerate(steps[:-1]))


def render(trace: Trace) -> bytes:
    """The bytes of an npz. Raises SlotpoolError for routing that it cannot hold: prompts, or layers of different k or length."""
    groups = trace.groups
    shapes = {group.ids.shape for group in groups}
    is_decode = all(len(group.events) == group.n_rows and group.pass_ == PASSES[0] for group in groups)
    if len(shapes) != 1 or not is_decode:
        raise SlotpoolError(
            "expected one token in every event and as many in every layer, found prompts or layers of their own kind",
            do="An npz holds decode tokens only: record with --mode forced.",
        )
    n_expert = max(group.n_expert for group in groups)
    ids = np.stack([group.ids for group in groups], axis=1)
    arrays: dict[str, NDArray[Any]] = {"ids": ids.astype(np.uint8 if n_expert <= 256 else np.uint16)}
    weights = [group.weights for group in groups if group.weights is not None]
    if len(weights) == len(groups):
        arrays["probs"] = np.stack(weights, axis=1).astype(np.float16)
    arrays["offsets"] = _offsets(trace, len(groups[0].ids))
    arrays["n_expert"] = np.array([n_expert], np.int32)
    arrays["layers"] = np.array([group.layer for group in groups], np.int32)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def _offsets(trace: Trace, n_tokens: int) -> NDArray[np.int64]:
    first_rows = np.searchsorted(trace.groups[0].events.ubatch, [segment.first_ubatch for segment in trace.segments])
    return np.unique(np.concatenate([[0], first_rows, [n_tokens]])).astype(np.int64)
