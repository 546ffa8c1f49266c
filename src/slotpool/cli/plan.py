"""`slotpool plan`: what a pool would bring for a model on this machine, before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slotpool.cli.output import json_option, print_json, print_note
from slotpool.cli.parameters import OneOf, byte_size
from slotpool.cli.plan_tables import show_decision, show_plan
from slotpool.cli.pool_options import pool_options, taken
from slotpool.errors import REFUSED, SlotpoolError, printable, unknown

if TYPE_CHECKING:
    from slotpool.model import Model
    from slotpool.planning import Decision
    from slotpool.probe import Subjects
    from slotpool.reserve import Wanted
    from slotpool.speeds import Speeds
    from slotpool.trace import Trace

_FILE = click.Path(path_type=Path, exists=False)


@click.command("plan")
@click.argument("model", type=_FILE, required=False)
@click.option("--explain", type=_FILE, metavar="PLAN", help="Say what a plan file says, and do nothing else.")
@pool_options("auto")
@click.option("--ctx", "n_ctx", type=click.IntRange(1), default=4096, show_default=True, help="Tokens of context, of all sequences.")
@click.option("--batch", "n_batch", type=click.IntRange(1), default=2048, show_default=True, help="Tokens of a batch.")
@click.option("--ubatch", "n_ubatch", type=click.IntRange(1), default=512, show_default=True, help="Tokens computed together.")
@click.option("--seqs", "n_seq", type=click.IntRange(1, 256), default=1, show_default=True, help="Sequences at the same time.")
@click.option("--kv-type", default="f16", show_default=True, help="Type of the KV cache.")
@click.option("--flash", type=OneOf("flash attention", ("auto", "on", "off")), default="auto", show_default=True, help="Flash attention.")
@click.option("--threads", type=click.IntRange(1), default=None, help="Threads that compute experts.  [default: all cores]")
@click.option(
    "--repack/--no-repack",
    default=True,
    help="Whether weights may be repacked for the CPU's faster kernels, as llama.cpp does unless told otherwise.  [default: repack]",
)
@click.option("--trace", "trace_file", type=_FILE, help="Recorded routing of this model: hit rates are simulated on it.")
@click.option("--reserve", metavar="BYTES", callback=byte_size, help="Bytes for whatever else will be loaded.")
@click.option("--draft", type=_FILE, multiple=True, help="A draft model that will be loaded: its weights are reserved.")
@click.option("--mmproj", type=_FILE, multiple=True, help="A projector that will be loaded.")
@click.option("--lora", type=_FILE, multiple=True, help="An adapter that will be loaded.")
@click.option("--mlock", is_flag=True, help="Weights will be locked in memory: say where that is more than this process may lock.")
@click.option("-o", "--output", type=_FILE, help="Write the plan file that SLOTPOOL_PLAN takes.")
@click.option("--force", is_flag=True, help="Overwrite the plan file; write it on a no-go too, where there are slots.")
@click.option("--fresh", is_flag=True, help="Measure speeds again.")
@json_option
def command(model: Path | None, explain: Path | None, as_json: bool, output: Path | None, force: bool, **options: Any) -> int:
    """Show the budget of every device with every term, slots per layer, the speed to expect with and without the pool, and the verdict.

    Nothing is loaded: sizes are llama.cpp's own reservation, speeds those of `slotpool probe` (measured now where they are not known).
    Without --trace the hit rate is an assumption, and says so. Exit code 0: go. 1: no-go, and the reason.
    --explain reads a plan file back: what it gives to which layers, and where.
    """
    from slotpool.planning import document

    if explain is not None:
        return _explain(explain, as_json)
    if model is None:
        raise SlotpoolError("expected a model, or --explain and a plan file, found neither", where="slotpool plan")
    decision, notes = _decided(model, options)
    written = _write(decision, output, force) if output else ""
    found = document(decision)
    found["warnings"] += notes
    if as_json:
        print_json(found)
    else:
        show_decision(found)
    for note in found["warnings"]:
        print_note(f"note: {note}")
    if written:
        print_note(written)
    return 0 if decision.outlook.is_go else REFUSED


def _explain(path: Path, as_json: bool) -> int:
    from slotpool import plan

    found = plan.explained(plan.read_plan(path))
    if as_json:
        print_json(found)
    else:
        show_plan(found)
    return 0


def _decided(path: Path, options: dict[str, Any]) -> tuple[Decision, list[str]]:
    from slotpool import engine
    from slotpool.planning import Asked, decide, gather, lock_notes
    from slotpool.predict import ASSUMED

    facts, pool = _read(path), taken(options)
    engine.add_rpc_servers(pool["rpc"])
    names = _names(pool.pop("device"), pool["ram_budget"])
    trace = _trace(options["trace_file"], facts)
    pool.pop("require_pool")
    hot, pin = pool.pop("profile"), pool.pop("pin")
    given, notes = gather(
        facts,
        Asked(**pool),
        names,
        _wanted(options),
        threads=options["threads"],
        trace=trace,
        reserved=(options["reserve"] or 0) + sum(map(_bytes_of, (*options["draft"], *options["mmproj"], *options["lora"]))),
        repack=options["repack"],
        measure=lambda subjects: _speeds(subjects, options["fresh"]),
    )
    decision = _with_profile(decide(given), facts, hot, pin)
    notes += lock_notes(facts, decision.made) if options["mlock"] else ()
    if decision.outlook.predicted and trace is None:
        notes.append(f"hit rate {ASSUMED}")
    return decision, notes


def _with_profile(decision: Decision, facts: Model, path: Path | None, pin: str | None) -> Decision:
    from slotpool import plan, profile

    found = profile.read(path) if path else None
    return replace(decision, made=plan.with_profile(decision.made, facts, found, pin, printable(path or "--profile")))


def _wanted(options: dict[str, Any]) -> Wanted:
    from slotpool.reserve import KV_TYPES, Wanted

    if options["kv_type"] not in KV_TYPES:
        raise unknown("type of the KV cache", options["kv_type"], KV_TYPES, where="slotpool plan --kv-type")
    return Wanted(**{name: options[name] for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq", "kv_type", "flash")})


def _speeds(subjects: Subjects, is_fresh: bool) -> tuple[Speeds, list[str]]:
    from slotpool.cli.probe import measure
    from slotpool.probe import Effort

    return measure(subjects, Effort(), is_fresh=is_fresh)


def _read(path: Path) -> Model:
    from slotpool.model import read

    facts = read(path)
    if facts.problems:
        raise SlotpoolError(facts.problems[0], where=printable(path), do="slotpool inspect lists all problems of the file.")
    return facts


def _names(asked: Sequence[str] | None, ram_budget: object) -> list[str]:
    from slotpool import engine

    known = engine.offload_devices()
    if asked == ["CPU"] or (ram_budget is not None and asked is None):  # two tiers are for those who name a device
        return []
    for name in asked or ():
        if name not in known:
            raise unknown("device", name, known, where="slotpool plan --device")
    return known if not asked or asked == ["auto"] else list(asked)


def _trace(path: Path | None, facts: Model) -> Trace | None:
    if path is None:
        return None
    from slotpool import trace
    from slotpool.trace.fingerprint import fingerprint

    found = trace.load(path)
    if isinstance(found, trace.Heat):
        raise SlotpoolError("expected a trace, found counts without the order of tokens", where=printable(path))
    if found.facts.fingerprint and found.facts.fingerprint != fingerprint(facts):
        raise SlotpoolError("expected a trace of this model, found one of another", where=printable(path), do="Record this model.")
    return found


def _bytes_of(path: Path) -> int:
    """Bytes of all tensors of a GGUF file."""
    from slotpool.model import read

    return sum(tensor.n_bytes for file in read(path).files for tensor in file.tensors)


def _write(decision: Decision, output: Path, force: bool) -> str:
    from slotpool import plan

    if not decision.outlook.is_go and not (force and decision.made.groups):
        return "no plan file was written: no-go (--force writes one where there are slots)"
    try:
        with output.open("wb" if force else "xb") as file:
            file.write(plan.to_text(decision.made).encode("utf-8", "surrogateescape"))
    except FileExistsError as error:
        raise SlotpoolError("expected no such file yet, found one", where=printable(output), do="Try --force.") from error
    except OSError as error:
        raise SlotpoolError(f"cannot write the plan file: {error.strerror}", where=printable(output)) from error
    return f"plan written to {printable(output)}: SLOTPOOL_PLAN={printable(output)}"
