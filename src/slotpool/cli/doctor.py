"""`slotpool doctor`: what is installed, what fits what, and why the pool would be off. Changes nothing."""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

import click

from slotpool import machine
from slotpool.about import version
from slotpool.cli.output import json_option, print_json, print_line, print_pairs, print_table
from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.sizes import format_bytes


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Show versions, the ggml that is loaded, whether the core fits it, devices and memory.

    Exit code 0: a pool can be used here. 1: it cannot, and the verdict says why.
    """
    found = examine()
    if as_json:
        print_json(found)
    else:
        _print(found)
    return 0 if found["verdict"] == "ok" else REFUSED


def examine() -> dict[str, Any]:
    """Everything the verb shows, as the JSON document has it."""
    from slotpool import engine, native

    try:
        problem = engine.abi_problem()
    except SlotpoolError as missing:
        problem = str(missing)
    copies = engine.ggml_copies()
    if not problem and copies:
        problem = f"expected one ggml in the process, found {len(copies)} files: {', '.join(map(str, copies))}"
    return {
        "versions": {"slotpool": version(), "llama-cpp-python": engine.version(), "python": platform.python_version()},
        "core": {"path": str(native.CORE_PATH), "interface": native.INTERFACE},
        "ggml": {"path": str(engine.ggml_path() or "unknown"), "copies": [str(path) for path in copies]},
        "abi": problem or "fits",
        "devices": [asdict(device) for device in engine.devices()],
        "machine": asdict(machine.read()),
        "verdict": "ok" if not problem else "off",
    }


def _print(found: dict[str, Any]) -> None:
    here = found["machine"]
    print_pairs(
        [
            *found["versions"].items(),
            ("core", printable(found["core"]["path"])),
            ("ggml", printable(found["ggml"]["path"])),
            ("abi", found["abi"]),
            ("machine", f"{here['system']}, {here['processor']}, {here['n_cores']} cores"),
            ("memory", f"{format_bytes(here['ram_available'])} available of {format_bytes(here['ram_total'])}{_limit(here)}"),
        ]
    )
    print_line()
    rows = [(one["name"], one["type"], one["description"], _memory(one)) for one in found["devices"]]
    print_table(("device", "type", "description", "free memory"), rows, right=("free memory",))
    print_line()
    print_line("A pool can be used here." if found["verdict"] == "ok" else f"The pool stays out: {found['abi']}.")


def _limit(here: dict[str, Any]) -> str:
    return f" (a control group limits it; the system has {format_bytes(here['ram_system'])})" if here["ram_limited_by"] == "cgroup" else ""


def _memory(device: dict[str, Any]) -> str:
    return f"{format_bytes(device['free_bytes'])} of {format_bytes(device['total_bytes'])}" if device["total_bytes"] else "-"
