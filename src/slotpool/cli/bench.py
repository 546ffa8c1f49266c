"""`slotpool bench`: plain llama.cpp and pools in turns, every arm proved, with a verdict; a table, a page, a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from slotpool import bench, model
from slotpool.cli.bench_table import print_tables
from slotpool.cli.output import json_option, print_json, print_note
from slotpool.cli.pool_options import pool_options, taken
from slotpool.cli.progress import open_bar
from slotpool.errors import REFUSED, SlotpoolError, printable, quoted
from slotpool.speeds.cache import cache_path

MOST_TOKENS = 1 << 22
MOST_ROUNDS = 1000
SLOTS_HELP = (
    "Slots per expert tensor, an arm for each of several: 0,16,32,all. 0 is plain llama.cpp, which always is an arm. With several devices "
    "each gets as many."
)


@click.command("bench")
@click.argument("model_path", metavar="MODEL", type=click.Path(path_type=Path))
@click.option("-f", "--file", "text_file", type=click.Path(path_type=Path), help="The text to read.  [default: prose and code of our own]")
@click.option("-p", "n_prompt", type=click.IntRange(2, MOST_TOKENS), default=128, show_default=True, help="Tokens of a prompt.")
@click.option("-n", "n_generate", type=click.IntRange(1, MOST_TOKENS), default=64, show_default=True, help="Tokens to generate.")
@click.option(
    "--warm", "n_warm", type=click.IntRange(0, MOST_TOKENS), default=64, show_default=True, help="Tokens before what is measured; 0: cold."
)
@click.option("--rounds", type=click.IntRange(2, MOST_ROUNDS), default=bench.DEFAULT_ROUNDS, show_default=True, help="Of every arm.")
@click.option("--depth", "depths", default="0", show_default=True, metavar="N[,N]", help="Tokens before the prompt; 4k is 4096.")
@click.option("--arm", "extra", multiple=True, metavar="NAME", help=f"An arm more: {', '.join(bench.EXTRA_ARMS)}.")
@click.option("--ctx", type=click.IntRange(1, MOST_TOKENS), help="Context in tokens.  [default: what is read]")
@click.option("--threads", type=click.IntRange(1, 512), help="[default: all cores]")
@click.option(
    "--repack/--no-repack",
    default=True,
    help="Let the engine repack weights, and slots over a disk hold experts so, in every arm.  [default: repack]",
)
@click.option("--repeat", "repeats", is_flag=True, help="Let rounds read the same text again where it is too short for all.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the tables and plots as one page.")
@click.option("--record", "record_path", type=click.Path(path_type=Path), help="Add the record to this file.  [default: one in your cache]")
@pool_options("auto")
@json_option
def command(
    model_path: Path, text_file: Path | None, depths: str, html: Path | None, record_path: Path | None, as_json: bool, **options: Any
) -> int:
    """Compare plain llama.cpp with pools on MODEL, round by round in fresh processes, and say what is faster.

    Every arm proves what it is: without lookups in a pool, or with some in plain llama.cpp, there is no result. Each round reads another
    part of the text. A ratio above 1 is faster; the verdict is "no difference" where its interval says so.

    Exit code 1: an arm was not what its name says, or arms on the same kernels chose other tokens.
    """
    from slotpool import records
    from slotpool.records import files

    kept = record_path or cache_path("").with_name("records.jsonl")
    files.check_appendable(kept)
    _check_new(html)
    settings = _settings(model_path, depths, options)
    facts = _facts(model_path)
    load = records.facts.load_of_machine()
    with open_bar(is_moving=False) as progress:
        measured = bench.measure(settings, bench.read_text(text_file), facts, progress)
    document = bench.document(measured)
    record = records.make("bench", model=model_path, flags=_flags(settings), results=document, load_average=load)
    records.append(kept, record)
    if html:
        _write_page(html, record)
    if as_json:
        print_json(document)
    else:
        print_tables(document)
    print_note(f"record: {printable(kept)}")
    for line in document["differences"]:
        print_note(f"slotpool: {line}")
    return REFUSED if document["differences"] else 0


for _option in command.params:
    if _option.name == "slots" and isinstance(_option, click.Option):
        _option.help, _option.metavar = SLOTS_HELP, "auto|all|N[,N]"


def parse_depths(text: str) -> tuple[int, ...]:
    """`0,4k,16k` as tokens. SlotpoolError for anything else, and for one that is named twice."""
    found = []
    for part in text.split(","):
        digits, factor = (part[:-1], 1024) if part[-1:] in ("k", "K") else (part, 1)
        if not (digits.isascii() and digits.isdigit() and len(digits) < 8) or int(digits) * factor > MOST_TOKENS:
            raise SlotpoolError(f'expected depths such as 0,4k,16k, found "{quoted(text)}"', where="--depth")
        found.append(int(digits) * factor)
    if len(set(found)) < len(found):
        raise SlotpoolError(f'expected each depth once, found "{quoted(text)}"', where="--depth")
    return tuple(found)


def _settings(path: Path, depths: str, options: dict[str, Any]) -> bench.Settings:
    pool = taken(options)
    slots = pool.pop("slots")
    every = tuple(dict.fromkeys(slots if isinstance(slots, list) else [slots]))
    pool.pop("require_pool")  # bench asks for more
    pool = {name: str(value) if isinstance(value, Path) else value for name, value in pool.items()}
    return bench.Settings(model=path, slots=every, depths=parse_depths(depths), pool=pool, **options)


def _facts(path: Path) -> model.Model:
    facts = model.read(path)
    if facts.problems:
        raise SlotpoolError(facts.problems[0], where=printable(path), do="slotpool inspect lists all problems of the file.")
    if not facts.experts:
        raise SlotpoolError("expected a model with experts, found a dense one", where=printable(path), exit_code=REFUSED)
    return facts


def _flags(settings: bench.Settings) -> dict[str, Any]:
    """Every option that mattered. Of paths nothing is kept: the record has the model's name and hash, the text's are among the results."""
    known = {
        name: list(value) if isinstance(value, tuple) else value for name, value in vars(settings).items() if name not in ("model", "pool")
    }
    pool = dict(settings.pool)
    if pool.get("profile"):
        pool["profile"] = Path(pool["profile"]).name
    return {**known, "pool": pool}


def _check_new(html: Path | None) -> None:
    if html and html.exists():
        raise SlotpoolError("expected a new file for the page, found one that is there", where=printable(html), do="Name another one.")


def _write_page(html: Path, record: dict[str, Any]) -> None:
    from slotpool.report import bench_page

    try:
        with html.open("x", encoding="utf-8") as file:
            file.write(bench_page.render(record))
    except OSError as error:
        raise SlotpoolError(f"cannot write the page: {error.strerror}", where=printable(html)) from error
