"""`slotpool soak`: a long session with the pool on, in which the same requests must give the same answers from beginning to end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from slotpool.cli.output import json_option, print_json, print_line, print_note, print_pairs, print_table
from slotpool.cli.pool_options import pool_options, taken
from slotpool.cli.progress import bar
from slotpool.cli.run import MAX_THREADS, MAX_TOKENS, check_writes_text, context_size
from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.model import read
from slotpool.sizes import format_bytes

MINUTES = 10.0
"""How long a soak is when nobody says."""
_MOST_ROUNDS = 1_000_000
_MOST_MINUTES = 60 * 24 * 365
_LEAST_CTX = 128
_INTERRUPTED = 130
_HEADER = ("phase", "times", "differ", "prompt", "generation", "anchors", "hit rate", "lookups", "copied", "evicted", "own memory")


@click.command("soak")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--minutes", type=click.FloatRange(0, _MOST_MINUTES, min_open=True), help=f"How long, after the first round.  [default: {MINUTES:g}]"
)
@click.option("--rounds", type=click.IntRange(1, _MOST_ROUNDS), help="How many rounds instead.")
@click.option("--ctx", type=click.IntRange(_LEAST_CTX, MAX_TOKENS), help="Context in tokens.  [default: 4096, at most as trained]")
@click.option("--threads", type=click.IntRange(1, MAX_THREADS), help="[default: all cores]")
@click.option("--parallel", "n_parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Sequences in one batch.")
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Chooses the churn and where requests are aborted."
)
@click.option("--reference/--no-reference", "has_reference", default=True, help="Ask plain llama.cpp the same first.  [default: reference]")
@pool_options("auto")
@click.option("--html", "page", type=click.Path(path_type=Path), help="Write a page with plots, one file that needs no other.")
@click.option("--force", is_flag=True, help="Overwrite the page.")
@click.option("--record", "record_path", type=click.Path(path_type=Path), help="Append the run's record to this file.")
@json_option
def command(model: Path, page: Path | None, force: bool, record_path: Path | None, as_json: bool, **options: Any) -> int:
    """Use MODEL with the pool on for a long time, and see that nothing changes.

    Rounds of churning generations, aborted requests, parallel sequences, chats that fill the context, a second context and a long prompt;
    after each phase an anchor is asked again. Exit code 1 when an answer differs (from its first time, or from plain llama.cpp on the same
    kernels, asked in another process), memory grows, a request fails, or the pool was never used. The rules: docs/design/soak.md.
    """
    if page is not None and page.exists() and not force:
        raise SlotpoolError("expected a new file for the page, found one that is there", where=printable(page), do="--force overwrites it.")
    with _recorded(record_path, model, dict(options)) as take:
        document = soaked(model, options)
        take(document)
    if page is not None:
        from slotpool.report.soak_page import render

        page.write_text(render(document, model.name), "utf-8")
        print_note(f"slotpool: wrote {printable(page)}")
    if as_json:
        print_json(document)
    else:
        _print(document)
    return _INTERRUPTED if document["interrupted"] else 0 if document["ok"] else REFUSED


@contextmanager
def _recorded(path: Path | None, model: Path, flags: dict[str, Any]) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What is handed over within it becomes a record in the file at `path`; one that cannot take it is refused before anything runs."""
    if path is None:
        yield lambda _: None
        return
    from slotpool import records
    from slotpool.records.facts import load_of_machine
    from slotpool.records.files import check_appendable

    check_appendable(path)
    load, found = load_of_machine(), list[dict[str, Any]]()
    yield found.append
    records.append(path, records.make("soak", model=model, flags=flags, results=found[0], load_average=load))


def soaked(model: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The document of a soak with the verb's options. Raises SlotpoolError where it cannot begin."""
    from slotpool import soak  # the engine takes a second to import: not for --help

    pool = taken(options) | {"require_pool": True}
    settings, limit = _settings(model, options), _limit(options)
    references = soak.plain_replies(model, settings, pool) if options["has_reference"] else {}
    with warnings.catch_warnings(record=True) as caught, _progress(limit, len(soak.PHASES)) as on_phase:
        warnings.simplefilter("always", UserWarning)
        observed = soak.run(model, settings, pool, limit, references, on_phase)
    for warning in caught:
        print_note(f"warning: {warning.message}")
    return soak.document(observed) | {"settings": asdict(settings)}


def _settings(model: Path, options: Mapping[str, Any]) -> Any:
    from slotpool import soak

    facts = read(model)
    check_writes_text(facts)
    n_ctx = context_size(facts, options["ctx"])
    least = max(_LEAST_CTX, 64 * options["n_parallel"])
    if n_ctx < least:
        raise SlotpoolError(
            f"expected a context of at least {least} tokens for {options['n_parallel']} sequences, found {n_ctx}",
            where="slotpool soak --ctx",
        )
    return soak.Settings(
        n_ctx=n_ctx, n_threads=options["threads"], n_ubatch=min(512, n_ctx // 4), n_parallel=options["n_parallel"], seed=options["seed"]
    )


def _limit(options: Mapping[str, Any]) -> Any:
    from slotpool import soak

    if options["minutes"] is not None and options["rounds"] is not None:
        raise SlotpoolError("expected one of --minutes and --rounds, found both", where="slotpool soak")
    minutes = MINUTES if options["minutes"] is None else options["minutes"]
    return soak.Limit(rounds=options["rounds"]) if options["rounds"] else soak.Limit(seconds=60 * minutes)


def _progress(limit: Any, n_phases: int) -> Any:
    """A bar of phases where rounds are counted, of seconds where time is."""

    @contextmanager
    def shown() -> Any:
        with bar(limit.rounds * n_phases if limit.rounds else round(limit.seconds)) as tell:
            n_done = iter(range(_MOST_ROUNDS * n_phases))
            yield lambda number, seconds, name: tell(next(n_done) if limit.rounds else int(seconds), f"round {number + 1}, {name}")

    return shown()


def _print(document: Mapping[str, Any]) -> None:
    from slotpool.report.soak_page import phase_row

    print_table(_HEADER, [phase_row(one) for one in document["phases"]], right=_HEADER[1:])
    print_line()
    print_pairs(_verdicts(document))
    for one in document["differences"][:10]:
        place = f"{one['anchor']} in round {one['round'] + 1}, {one['phase']}"
        print_line(f"DIFFERENT: {place}: output {one['output'] + 1} against {one['against']}: {one['detail']}")


def _verdicts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    verdicts = document["verdicts"]
    pairs = [("session", _session(document)), ("anchors", _anchors(document)), ("lookups", str(verdicts["lookups"]["lookups"]))]
    pairs += [(f"memory, {name}", _memory(one)) for name, one in verdicts["memory"].items()]
    pairs.append(("speed", _speed(verdicts["speed"])))
    return pairs


def _session(document: Mapping[str, Any]) -> str:
    how = "interrupted, " if document["interrupted"] else f"failed ({document['failure']}), " if document["failure"] else ""
    return (
        f"{how}{document['seconds']:.0f} s, {document['rounds']} rounds, {document['aborted']} requests aborted, "
        f"{document['second_contexts']} second contexts, {document['reused_tokens']} tokens of chats kept"
    )


def _anchors(document: Mapping[str, Any]) -> str:
    anchors = document["verdicts"]["anchors"]
    kind = "to the bit" if document["exact"] else "as an equivalent run may be (rows of other kernels)"
    plain = (
        f"{anchors['compared_with_plain']} requests compared with plain llama.cpp"
        if anchors["compared_with_plain"]
        else "plain llama.cpp was not asked"
    )
    return f"{anchors['verdict']} {kind}, {anchors['replays']} replays, {anchors['differences']} differences, {plain}"


def _memory(one: Mapping[str, Any]) -> str:
    if one["verdict"] == "too few rounds":
        return f"too few rounds ({one['rounds']})"
    low, growth, high = (_signed(one[name]) for name in ("low", "growth", "high"))
    return f"{one['verdict']}: {growth} ({low} to {high}) over {one['rounds']} rounds, bound {format_bytes(round(one['bound']))}"


def _speed(one: Mapping[str, Any]) -> str:
    if one["ratio"] is None:
        return f"too few rounds ({one['rounds']})"
    return f"{one['verdict']}: last third {one['ratio']:.2f}x of the first ({one['low']:.2f} to {one['high']:.2f}, 99 %)"


def _signed(n_bytes: float) -> str:
    return ("-" if n_bytes < 0 else "+") + format_bytes(abs(round(n_bytes)))
