"""Prints what the pool did: a row per layer and a total, from the stats document alone."""

from __future__ import annotations

from collections.abc import Sequence

from slotpool.cli.output import print_line, print_table
from slotpool.pool_stats import Layer, Stats
from slotpool.sizes import format_bytes

_HEADER = ("layer", "slots", "lookups", "hits", "misses", "hit rate", "copied", "saved")


def print_pool_table(stats: Stats) -> None:
    """The table of layers, the total, and a line per reason where something is off."""
    layers = stats["layers"]
    print_table(_HEADER, [*map(_row, layers), _total(stats)], right=_HEADER)
    for reason, count in _reasons(stats).items():
        print_line(f"{count} of {stats['expert_tensors']} expert tensors {reason}")


def summary(stats: Stats) -> str:
    """One line: whether the pool was used, and how well; or why it was off."""
    if not stats["pooled_tensors"]:
        reason = stats["tensors"][0]["reason"] if stats["tensors"] else "off: the model has no expert tensors (a dense model)"
        return f"pool {reason}"
    return (
        f"pool {stats['pooled_tensors']} of {stats['expert_tensors']} expert tensors, "
        f"{format_bytes(stats['slot_bytes'])} of slots{_disk(stats)}, "
        f"hit rate {stats['hit_rate']:.1%} of {stats['lookups']} lookups, {format_bytes(stats['bytes_copied'])} copied, "
        f"{format_bytes(stats['bytes_saved'])} saved"
        + _profile(stats)
        + _ram(stats)
        + (f", {stats['refused']} times a layer's batch was too large for its slots and took the stock path" if stats["refused"] else "")
    )


def _disk(stats: Stats) -> str:
    """How many experts of a layer the slots hold, where the others stay on disk."""
    if stats["store"] != "disk":
        return ""
    slots = [layer["slots"] for layer in stats["layers"]]
    least, most = min(slots), max(slots)
    repacked = ", repacked" if stats["repacked_bytes"] else ""
    buffered = f", not read directly ({stats['why_buffered']})" if stats["why_buffered"] else ""
    held = f"{least if least == most else f'{least} to {most}'} of {stats['layers'][0]['n_expert']} experts{repacked}"
    return f" ({held}, the others on disk{buffered})"


def _profile(stats: Stats) -> str:
    """What the slots began with."""
    return f", {stats['warmed']} experts from the profile" if stats["warmed"] else ""


def _ram(stats: Stats) -> str:
    """What the slots in RAM did for the devices, where there are some."""
    ram = stats["ram"]
    if not ram:
        return ""
    held = f"{format_bytes(ram['slot_bytes'])} of slots in RAM behind them"
    return f"; {held}, hit rate {ram['hit_rate']:.1%} of {ram['lookups']} lookups, {format_bytes(ram['bytes_read'])} read from disk"


def _row(layer: Layer) -> tuple[str, ...]:
    name = str(layer["layer"]) if layer["pass"] == "exps" else f"{layer['layer']} {layer['pass']}"
    return (
        name,
        f"{layer['slots']}/{layer['n_expert']}",
        *_counts(layer["lookups"], layer["hits"], layer["misses"]),
        *map(format_bytes, (layer["bytes_copied"], layer["bytes_saved"])),
    )


def _total(stats: Stats) -> tuple[str, ...]:
    return (
        "total",
        format_bytes(stats["slot_bytes"]),
        *_counts(stats["lookups"], stats["hits"], stats["misses"]),
        *map(format_bytes, (stats["bytes_copied"], stats["bytes_saved"])),
    )


def _counts(lookups: int, hits: int, misses: int) -> Sequence[str]:
    return (str(lookups), str(hits), str(misses), f"{hits / lookups:.1%}" if lookups else "-")


def _reasons(stats: Stats) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in stats["tensors"]:
        if tensor["state"] == "off":
            found[tensor["reason"]] = found.get(tensor["reason"], 0) + 1
    return found
