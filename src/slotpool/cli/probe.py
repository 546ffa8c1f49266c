"""`slotpool probe`: what this machine's memory, devices, links and disk can do; measured once, kept, and shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slotpool.cli.output import json_option, print_json, print_line, print_note, print_table
from slotpool.cli.progress import bar
from slotpool.errors import SlotpoolError, printable, unknown
from slotpool.sizes import format_bytes
from slotpool.speeds import Speeds

if TYPE_CHECKING:
    from slotpool.cliff import Cliff
    from slotpool.probe import Effort, Subjects

_DEMO = Path(__file__).parents[1] / "data" / "demo.gguf"


@click.command("probe")
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option("--fresh", is_flag=True, help="Measure again, whatever was kept.")
@click.option("--device", metavar="NAME[,NAME]", callback=lambda _c, _p, value: value and value.split(","), help="Only these devices.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads that compute experts.  [default: all cores]")
@click.option("--rpc", metavar="HOST:PORT[,...]", callback=lambda _c, _p, value: value.split(",") if value else [], help="Add RPC servers.")
@click.option("--seconds", type=click.FloatRange(0.001, 60), default=0.1, show_default=True, help="Shortest sample.")
@click.option("--samples", type=click.IntRange(2, 1000), default=5, show_default=True, help="Samples of every speed.")
@click.option("--cliff", metavar="DEVICE", help="Also fill DEVICE step by step while a small model decodes on it: where does it get slow?")
@json_option
def command(
    model: Path | None,
    fresh: bool,
    device: Sequence[str] | None,
    threads: int | None,
    rpc: list[str],
    seconds: float,
    samples: int,
    cliff: str | None,
    as_json: bool,
) -> int:
    """Measure bandwidths of memory, devices, links and disk, alone and together.

    With MODEL its own kinds of experts and the disk that holds it are measured, without it common ones. What was measured before on this
    machine is shown again, unless --fresh. Median of several samples with the lowest and highest; run it while nothing else runs.
    --cliff takes nearly all memory of a device for a moment.
    """
    from slotpool import engine
    from slotpool.probe import Effort

    engine.add_rpc_servers(rpc)
    subjects = _subjects(model, threads, device)
    effort = Effort(samples, seconds)
    speeds, notes = measure(subjects, effort, is_fresh=fresh)
    found = _cliff(cliff) if cliff else None
    document = _document(speeds, subjects, found, notes)
    if as_json:
        print_json(document)
    else:
        _print(document)
    return 0


def measure(subjects: Subjects, effort: Effort, *, is_fresh: bool = False, is_shown: bool = True) -> tuple[Speeds, list[str]]:
    """The speeds of `subjects`, from the cache where they are there, measured and kept where not, and what the user must know."""
    from slotpool.probe import known_speeds

    @contextmanager
    def shown(n_tasks: int) -> Iterator[Any]:
        with bar(n_tasks, is_shown=is_shown) as step:
            yield lambda index, task: step(index, f"{task.subject}: {task.what}")

    return known_speeds(subjects, effort, is_fresh=is_fresh, progress=shown)


def _subjects(model: Path | None, threads: int | None, devices: Sequence[str] | None) -> Subjects:
    from slotpool import engine, probe
    from slotpool.model import read

    known = engine.offload_devices()
    for name in devices or ():
        if name not in known:
            raise unknown("device", name, known, where="slotpool probe --device")
    if model is None:
        return probe.of_machine(threads, devices=devices)
    facts = read(model)
    if facts.problems:
        raise SlotpoolError(facts.problems[0], where=printable(model), do="slotpool inspect lists all problems of the file.")
    return probe.of_model(facts, threads, devices)


def _cliff(device: str) -> Cliff:
    from slotpool import engine
    from slotpool.cliff import find_cliff
    from slotpool.native.probe import Probe

    def say(step: Any) -> None:
        print_note(f"{device}: {format_bytes(step.taken)} taken, {format_bytes(step.free)} free, {step.tokens_per_second:.1f} tokens/s")

    return find_cliff(device, _DEMO, Probe(engine.function_address("ggml_backend_load")), say)


def _document(speeds: Speeds, subjects: Subjects, cliff: Cliff | None, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "machine": speeds.identity,
        "threads": subjects.n_threads,
        "devices": [asdict(device) for device in subjects.devices],
        "speeds": [asdict(speed) for speed in speeds.all],
        "cliff": asdict(cliff) if cliff else None,
        "notes": list(notes),
    }


def _print(found: dict[str, Any]) -> None:
    print_line(found["machine"])
    print_line()
    rows = [
        (
            one["subject"],
            one["what"],
            *(_shown(one[name], one["unit"]) for name in ("median", "low", "high")),
            one["date"][:10],
            one["note"],
        )
        for one in found["speeds"]
    ]
    print_table(("of", "what", "median", "low", "high", "measured", "note"), rows, right=("median", "low", "high"))
    if found["devices"]:
        print_line()
        memory = [(one["name"], format_bytes(one["free_bytes"]), format_bytes(one["total_bytes"])) for one in found["devices"]]
        print_table(("device", "free", "total"), memory, right=("free", "total"))
    if found["cliff"]:
        print_line()
        print_line(_cliff_line(found["cliff"]))
    for note in found["notes"]:
        print_note(f"note: {note}")


def _cliff_line(cliff: dict[str, Any]) -> str:
    if cliff["reason"] == "full":
        return f"{cliff['device']}: no cliff, as fast with {format_bytes(cliff['free'])} free as empty"
    what = "gets slow" if cliff["reason"] == "slow" else "fails"
    return f"{cliff['device']}: {what} with less than {format_bytes(cliff['free'])} free: use --rail {format_bytes(cliff['free'])} or more"


def _shown(value: float, unit: str) -> str:
    return f"{value / 1e9:.3g} GB/s" if unit == "B/s" else f"{value * 1e6:.3g} us"
