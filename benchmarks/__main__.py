"""Runs the benchmarks named on the command line, or all, and prints each figure with its record's file."""

from __future__ import annotations

import sys

from benchmarks import (
    bookkeeping,
    cgroup,
    decode_resident,
    device_grid,
    disk_resident,
    disk_tier,
    prompt_bypass,
    prompt_guard_device,
    record,
    rpc_wire,
    simulate,
)

ALL = {
    "bookkeeping": bookkeeping,
    "decode_resident": decode_resident,
    "prompt_bypass": prompt_bypass,
    "prompt_guard_device": prompt_guard_device,
    "disk_resident": disk_resident,
    "disk_tier": disk_tier,
    "simulate": simulate,
    "rpc_wire": rpc_wire,
    "device_grid": device_grid,
}

for name in sys.argv[1:] or ALL:
    if name not in ALL:
        sys.exit(f'unknown benchmark "{name}" (valid: {", ".join(ALL)})')
    try:
        print(ALL[name].line(ALL[name].run()), f"[{record.RECORDS.name}/{name}.jsonl]", flush=True)
    except cgroup.SkippedError as reason:
        print(f"{name}: skipped: {reason}", flush=True)
