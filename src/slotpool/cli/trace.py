"""`slotpool trace`: records the routing of a model, shows a trace as text, turns it into the formats of others."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from slotpool import trace
from slotpool.cli.output import json_option, print_json, print_note
from slotpool.cli.parameters import OneOf
from slotpool.errors import SlotpoolError, printable
from slotpool.sizes import format_bytes
from slotpool.texts import read_text
from slotpool.trace import dump

MODES = ("forced", "prompt", "generate")
"""As in slotpool.recording, which would import the engine for --help."""
MAX_TOKENS = 1 << 22
MAX_THREADS = 512
"""Bounds of the engine: beyond them it aborts the process instead of saying no."""
_SLOW = 200
"""Tokens after which a recording shows how far it is."""


@click.command("trace")
@click.argument("model", type=click.Path(path_type=Path), required=False)
@click.option(
    "-f",
    "--file",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A text to run; - is stdin. More than one: a segment each.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The trace to write.")
@click.option(
    "--mode",
    type=OneOf("mode", MODES),
    help="forced: token by token, as if the text were generated; prompt: in ubatches; generate: in ubatches, then -n tokens.  "
    "[default: forced, with -n generate]",
)
@click.option("-n", "n_generate", type=click.IntRange(1, MAX_TOKENS), help="Tokens to generate after each text, greedily.")
@click.option("--limit", type=click.IntRange(1, MAX_TOKENS), help="Tokens of each text at most.")
@click.option(
    "--ctx",
    type=click.IntRange(1, MAX_TOKENS),
    help="Context in tokens; a longer text goes on in an empty one.  [default: 4096, at most as trained]",
)
@click.option(
    "--ubatch", type=click.IntRange(1, MAX_TOKENS), default=512, show_default=True, help="Tokens of a prompt that are computed together."
)
@click.option("--threads", type=click.IntRange(1, MAX_THREADS), help="[default: all cores]")
@click.option("--weights/--no-weights", "has_weights", default=True, help="Record the router's weights as well.  [default: weights]")
@click.option("--ranking", "has_ranking", is_flag=True, help="Record all experts of every row in the router's order: large.")
@click.option("--force", is_flag=True, help="Overwrite the output.")
@click.option(
    "--dump",
    "dumped",
    type=click.Path(path_type=Path),
    metavar="TRACE",
    help="Print a trace as text, a line for every row; nothing is run.",
)
@click.option(
    "--convert",
    "converted",
    type=click.Path(path_type=Path),
    metavar="TRACE",
    help=f"Write a trace in the format that the name of -o asks for ({', '.join(trace.SUFFIXES)}); nothing is run.",
)
@click.option("--salvage", is_flag=True, help="Of a damaged trace, take what stands before the damage.")
@json_option
def command(model: Path | None, dumped: Path | None, converted: Path | None, salvage: bool, as_json: bool, **options: Any) -> None:
    """Record which experts MODEL asks for while it runs over a text.

    The engine runs unmodified and without a pool. Modes: forced (one token a decode over a real text, the routing that a pool
    serves in generation; as slow as generation), prompt (ubatches: fast, and the last layer may have output rows only), generate.
    The file is written as it comes: a recording that is interrupted can be read.
    """
    if sum(value is not None for value in (model, dumped, converted)) != 1:
        raise SlotpoolError(
            "expected one of MODEL, --dump and --convert", where="slotpool trace", do="slotpool trace --help shows all three."
        )
    if dumped is not None:
        _dump(dumped, salvage)
    elif converted is not None:
        _convert(converted, _output(options), salvage, options["force"])
    elif model is not None:
        _record(model, _output(options), options, as_json)


def _output(options: dict[str, Any]) -> Path:
    if options["output"] is None:
        raise SlotpoolError("expected a file to write, found none", where="slotpool trace --output")
    return Path(options["output"])


def _dump(path: Path, salvage: bool) -> None:
    for line in dump.lines(trace.open(path, salvage=salvage)):
        print(line)  # tabs and all


def _convert(path: Path, output: Path, salvage: bool, force: bool) -> None:
    found = trace.load(path, salvage=salvage)
    if isinstance(found, trace.Heat):
        raise SlotpoolError("expected a trace, found counts without the order of tokens", where=printable(path))
    trace.save(output, found, force=force)


def _record(model: Path, output: Path, options: dict[str, Any], as_json: bool) -> None:
    from slotpool import recording  # the engine takes a second to import: not for --help

    if not options["files"]:
        raise SlotpoolError("expected a text to run, found none", where="slotpool trace --file")
    mode = options["mode"] or ("generate" if options["n_generate"] else "forced")
    if (mode == "generate") != bool(options["n_generate"]):
        raise SlotpoolError(f'expected -n with --mode generate and only there, found mode "{mode}"', where="slotpool trace -n")
    settings = recording.Settings(
        mode=mode,
        n_generate=options["n_generate"] or 0,
        n_ctx=options["ctx"],
        n_ubatch=options["ubatch"],
        n_threads=options["threads"],
        limit=options["limit"],
        has_weights=options["has_weights"],
        has_ranking=options["has_ranking"],
    )
    texts = [recording.Text(printable(file), read_text(file)) for file in options["files"]]
    made = recording.record(model, texts, output, settings, force=options["force"], on_progress=_progress())
    document = asdict(made) | {"mode": mode, "path": str(output), "file_bytes": output.stat().st_size}
    if as_json:
        print_json(document)
    else:
        size = format_bytes(document["file_bytes"])
        print_note(
            f"slotpool: {made.n_tokens} tokens, {made.n_generated} of them generated, {made.n_events} events, {size} in {printable(output)}"
        )


def _progress() -> Any:
    """A line on stderr that says how far a long recording is; nothing where stderr is no terminal."""

    def show(done: int, total: int) -> None:
        if total > _SLOW and (done % 16 == 0 or done == total):
            print(f"\r{done} of {total} tokens", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show if sys.stderr.isatty() else lambda done, total: None
