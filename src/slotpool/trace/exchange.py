"""Reads and writes what other tools keep: CSV `layer,expert` and `layer,expert,count`, JSON heat maps, npz with `ids`.

Which it is, is told by the content on reading and by the name on writing. These files say little about the model: facts that are not
in them stay empty. They are hostile until checked, as traces are.
"""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotpool.errors import SlotpoolError, printable, quoted
from slotpool.trace import npz
from slotpool.trace.facts import PASSES, Facts, Group, Trace, single_events
from slotpool.trace.heat import Heat, heat_of
from slotpool.trace.reader import is_trace, open_trace
from slotpool.trace.sections import MAX_EXPERTS, MAX_LAYER
from slotpool.trace.writer import already_there, write

MAX_TEXT = 1 << 32
"""Bytes of a CSV or JSON file that are read."""
MAX_COUNT = 1 << 53
SUFFIXES = (".trace", ".npz", ".csv", ".counts.csv", ".json")
"""What `save` can write, told by the end of the name; `.csv` has a row per token and expert, `.counts.csv` and `.json` are heat."""


def load(path: str | os.PathLike[str], *, n_expert: int | None = None, n_expert_used: int = 1, salvage: bool = False) -> Trace | Heat:
    """A trace, or heat where the file has no order of tokens.

    CSV and npz do not say everything: `n_expert` is one more than the largest id unless given, `n_expert_used` is how many lines of a
    `layer,expert` CSV belong to one token.

    Raises SlotpoolError for a file of no known format, or a damaged one.
    """
    if is_trace(path):
        return open_trace(path, salvage=salvage)
    try:
        with open(path, "rb") as file:
            head = file.read(64)
        if head[:4] == b"PK\x03\x04":
            return npz.load(path, n_expert)
        if not head.strip() or Path(path).stat().st_size > MAX_TEXT:
            raise SlotpoolError(f"expected a trace of 1 to {MAX_TEXT} bytes", where=printable(path))
        if head.lstrip()[:1] in (b"{", b"["):
            return _load_json(path)
        if head[:1].isdigit() or head[:1].isalpha():
            return _load_csv(path, n_expert, n_expert_used)
    except OSError as error:
        raise SlotpoolError(f"cannot read the trace: {error.strerror}", where=printable(path)) from error
    raise SlotpoolError("expected a slotpool trace, npz, CSV or JSON heat map, found a file that begins otherwise", where=printable(path))


def save(path: str | os.PathLike[str], trace: Trace, *, force: bool = False) -> None:
    """Writes `trace` in the format that the name asks for, one of SUFFIXES.

    Raises SlotpoolError for another name, an existing file without `force`, and routing that the format cannot hold.
    """
    name = os.fspath(path)
    if name.endswith(".trace"):
        write(path, trace, force=force)
        return
    render = next((RENDER[suffix] for suffix in RENDER if name.endswith(suffix)), None)
    if render is None:
        raise SlotpoolError(f'expected a name that ends in one of {", ".join(SUFFIXES)}, found "{quoted(Path(path).name)}"')
    data = render(trace)
    try:
        with open(path, "wb" if force else "xb") as file:
            file.write(data)
    except FileExistsError as error:
        raise already_there(path) from error
    except OSError as error:
        raise SlotpoolError(f"cannot write: {error.strerror}", where=printable(path)) from error


# ---- CSV ----


def _load_csv(path: str | os.PathLike[str], n_expert: int | None, n_expert_used: int) -> Trace | Heat:
    """Two columns: layer and expert, tokens in order within a layer. Three: layer, expert and count. A line of names may stand first."""
    with open(path, "rb") as file:
        names = file.readline(1 << 12)
    has_names = names[:1].isalpha()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that there are no lines: said below
            rows = np.loadtxt(path, np.int64, delimiter=",", skiprows=int(has_names), comments=None, ndmin=2)
    except (ValueError, OverflowError) as error:
        raise SlotpoolError("expected lines of whole numbers: layer,expert or layer,expert,count", where=printable(path)) from error
    if not rows.size or rows.shape[1] not in (2, 3):
        raise SlotpoolError(f"expected lines of 2 or 3 numbers, found {rows.shape[1] if rows.size else 0}", where=printable(path))
    _check(rows[:, 0], MAX_LAYER, "layers", path)
    _check(rows[:, 1], n_expert or MAX_EXPERTS, "experts", path)
    n_known = n_expert or int(rows[:, 1].max()) + 1
    if rows.shape[1] == 3:
        _check(rows[:, 2], MAX_COUNT, "counts", path)
        return _heat_of_rows(rows, n_known)
    return _trace_of_rows(rows, n_known, n_expert_used, path)


def _check(values: NDArray[np.int64], limit: int, what: str, path: str | os.PathLike[str]) -> None:
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < limit:
        found = f"{int(values.min())} to {int(values.max())}"
        raise SlotpoolError(f"expected {what} from 0 to {limit - 1}, found {found}", where=printable(path))


def _heat_of_rows(rows: NDArray[np.int64], n_expert: int) -> Heat:
    counts = {}
    for layer in np.unique(rows[:, 0]):
        of_layer = rows[rows[:, 0] == layer]
        found = np.zeros(n_expert, np.int64)
        np.add.at(found, of_layer[:, 1], of_layer[:, 2])
        counts[int(layer), PASSES[0]] = found
    return Heat(Facts(n_layer=len(counts), n_expert=n_expert, source="CSV"), counts)


def _trace_of_rows(rows: NDArray[np.int64], n_expert: int, n_used: int, path: str | os.PathLike[str]) -> Trace:
    groups = []
    for layer in np.unique(rows[:, 0]):
        ids = rows[rows[:, 0] == layer, 1].astype(np.int32)
        if len(ids) % n_used:
            message = f"expected {n_used} experts for every token, found {len(ids)} lines of layer {layer}"
            raise SlotpoolError(message, where=printable(path))
        by_token = np.ascontiguousarray(ids.reshape(-1, n_used))
        groups.append(Group(int(layer), PASSES[0], n_expert, n_used, by_token, single_events(by_token)))
    return Trace(Facts(n_layer=len(groups), n_expert=n_expert, n_expert_used=n_used, source="CSV"), tuple(groups))


def _rows_csv(trace: Trace) -> bytes:
    _expect_one_pass(trace)
    rows = [np.stack([np.full(group.ids.size, group.layer, np.int32), group.ids.ravel()], axis=1) for group in trace.groups]
    return _csv("layer,expert", np.concatenate(rows) if rows else np.empty((0, 2), np.int32))


def _counts_csv(trace: Trace) -> bytes:
    _expect_one_pass(trace)
    rows = [(layer, expert, count) for (layer, _), found in heat_of(trace).counts.items() for expert, count in enumerate(found)]
    return _csv("layer,expert,count", np.array(rows, np.int64).reshape(-1, 3))


def _csv(names: str, rows: NDArray[Any]) -> bytes:
    text = io.BytesIO()
    np.savetxt(text, rows, "%d", delimiter=",", header=names, comments="")
    return text.getvalue()


# ---- JSON heat maps ----


def _load_json(path: str | os.PathLike[str]) -> Heat:
    try:
        found = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise SlotpoolError("expected JSON, found something else", where=printable(path)) from error
    layers = found.get("layers") if isinstance(found, dict) else None
    if not isinstance(layers, list) or not layers:
        raise SlotpoolError('expected a heat map: an object with "layers", each with its "heat"', where=printable(path))
    counts = dict(_heat_of_layer(index, layer, path) for index, layer in enumerate(layers))
    facts = Facts(
        n_layer=len(counts),
        n_expert=max(map(len, counts.values())),
        n_expert_used=found["k"] if type(found.get("k")) is int and 0 < found["k"] < MAX_EXPERTS else 0,
        source=f"JSON heat map of {str(found.get('model', 'no model'))[:200]}",
    )
    return Heat(facts, dict(sorted(counts.items())))


def _heat_of_layer(index: int, layer: object, path: str | os.PathLike[str]) -> tuple[tuple[int, str], NDArray[np.int64]]:
    """`layer` or `abs_layer` is the number in the model; without either it is the place in the list."""
    values: dict[str, Any] = layer if isinstance(layer, dict) else {}
    heat, number = values.get("heat"), values.get("abs_layer", values.get("layer", index))
    is_right = isinstance(heat, list) and 0 < len(heat) <= MAX_EXPERTS and type(number) is int and 0 <= number < MAX_LAYER
    if not is_right or not all(type(count) is int and 0 <= count < MAX_COUNT for count in heat or ()):
        raise SlotpoolError(f'expected a number and a list of counts in "layers"[{index}], found something else', where=printable(path))
    return (number, PASSES[0]), np.array(heat, np.int64)


def _heat_json(trace: Trace) -> bytes:
    _expect_one_pass(trace)
    heat = heat_of(trace)
    document = {
        "model": trace.facts.architecture,
        "n_layers": len(heat.counts),
        "n_expert_per_layer": trace.facts.n_expert,
        "k": trace.facts.n_expert_used,
        "n_decode_tokens": max((group.n_rows for group in trace.groups), default=0),
        "layers": [{"layer": layer, "heat": counts.tolist()} for (layer, _), counts in heat.counts.items()],
    }
    return json.dumps(document).encode()


def _expect_one_pass(trace: Trace) -> None:
    if any(group.pass_ != PASSES[0] for group in trace.groups):
        raise SlotpoolError("expected one pass through each layer, found two: this format cannot tell them apart", do="Use .trace.")


RENDER: dict[str, Callable[[Trace], bytes]] = {
    ".npz": npz.render,
    ".counts.csv": _counts_csv,
    ".csv": _rows_csv,
    ".json": _heat_json,
}
"""The longer ending first."""
