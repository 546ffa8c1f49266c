"""Plans and decisions as tables, from their documents.

Decides nothing and reads no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from slotpool.cli.output import print_line, print_pairs, print_table
from slotpool.sizes import format_bytes

_PREFILL = {
    "bypass": "llama.cpp's own path",
    "stream": "pass through the device",
    "auto": "the cheaper of llama.cpp's path and through the device",
}
_TERMS = ("free", "weights", "kv", "compute", "reserved", "rail", "budget")


def show_decision(found: dict[str, Any]) -> None:
    """The document of `slotpool plan`."""
    rows = [(one["name"], *(format_bytes(one[term]) for term in _TERMS)) for one in found["devices"]]
    print_table(("device", *_TERMS), rows, right=_TERMS)
    print_line()
    _show_states(found["tensors"])
    print_line()
    if found["predicted"]["generation_tps"] is not None:
        print_pairs([(name, _speed(found[key])) for name, key in (("with the pool", "predicted"), ("plain llama.cpp", "plain"))])
    if found["break_even_hit_rate"] is not None:
        print_pairs([("break-even hit rate if every miss is copied", f"{found['break_even_hit_rate']:.1%}")])
    print_line(f"{found['verdict']}: {found['reason']}")


def show_plan(found: dict[str, Any]) -> None:
    """The document of `slotpool plan --explain`."""
    print_pairs(_settings(found))
    if found["devices"]:
        print_line()
        rows = [(one["name"], str(one["slots"]), _size(one["budget"]), _size(one["rail"])) for one in found["devices"]]
        print_table(("device", "most slots", "budget", "rail"), rows, right=("most slots", "budget", "rail"))
    if found["files"]:
        print_line()
        print_table(("size", "experts are in"), [(format_bytes(one["size"]), one["path"]) for one in found["files"]], right=("size",))
    if found["groups"]:
        print_line()
        header = ("layers", "tensors", "device", "slots", "experts", "bytes of slots")
        print_table(header, _layers(found["groups"]), right=("slots", "experts", "bytes of slots"))
        print_line(f"all slots: {format_bytes(found['slot_bytes'])}")
    off = [one for one in found["tensors"] if one["state"] == "off"]
    if off:
        print_line()
        _show_states(off)


def _settings(found: dict[str, Any]) -> list[tuple[str, str]]:
    pairs = [
        ("policy", found["policy"] + (f", counts kept {found['decay']:g} an event" if found["policy"] != "lru" else "")),
        ("misses", f"{found['misses']}, {'complete before the next event' if found['settled'] else 'copies for later in the background'}"),
        ("prompts that do not fit", _PREFILL[found["prefill"]]),
        ("contexts", "every context has a pool" if found["contexts"] == "all" else "the first context that computes has the pool"),
    ]
    memory = found["memory"]
    if memory:
        text = f"budget {_size(memory['budget'])}, rail {_size(memory['rail'])}, {format_bytes(memory['reserve'])} kept for buffers"
        pairs.append(("memory", text))
    if found["bypass"]:
        pairs.append(("bypass", "generated tokens take the stock path beside the slots"))
    if found["poison"]:
        pairs.append(("poison", "free slots are filled with 0xFF"))
    return pairs + ([("report", found["report"])] if found["report"] else [])


def _layers(groups: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Neighbouring layers that get the same are one row."""

    def alike(group: dict[str, Any]) -> tuple[Any, ...]:
        return group["pass"], group["roles"], group["device"], group["slots"], group["n_expert"]

    rows: list[tuple[str, ...]] = []
    for (_, roles, device, slots, n_expert), same in groupby(groups, alike):
        found = list(same)
        layers = spans([group["layer"] for group in found])
        n_bytes = format_bytes(sum(group["slot_bytes"] for group in found))
        rows.append((layers, " ".join(roles), device, str(slots), str(n_expert), n_bytes))
    return rows


def spans(numbers: Sequence[int]) -> str:
    """Numbers in order as spans: 0-3,7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _show_states(tensors: Sequence[dict[str, Any]]) -> None:
    counts: dict[tuple[str, str], int] = {}
    for tensor in tensors:
        key = (tensor["device"], tensor["reason"])
        counts[key] = counts.get(key, 0) + 1
    print_table(("tensors", "device", "state"), [(str(n), device, why) for (device, why), n in counts.items()], right=("tensors",))


def _size(n_bytes: int | None) -> str:
    return "auto" if n_bytes is None else format_bytes(n_bytes)


def _speed(one: dict[str, Any]) -> str:
    return f"{one['generation_tps']:.3g} tokens/s, {one['hit_rate']:.1%} of the experts where they are fastest"
