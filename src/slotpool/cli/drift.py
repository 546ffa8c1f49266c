"""`slotpool drift`: whether a pool changes what a model says, measured token by token against plain llama.cpp."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slotpool.cli.output import json_option, print_json, print_line, print_note, print_table
from slotpool.cli.parameters import OneOf
from slotpool.cli.pool_options import pool_options, taken
from slotpool.cli.progress import open_bar
from slotpool.errors import REFUSED, printable
from slotpool.texts import read_text

if TYPE_CHECKING:
    from slotpool.drift import Report, Settings, Text, Verdict
    from slotpool.drift.facts import Share
    from slotpool.drift.numbers import Ppl

MAX_TOKENS = 1 << 22
MAX_THREADS = 512
"""Bounds of the engine: beyond them it aborts the process instead of saying no."""
EXPECTATIONS, DAMAGES = ("exact", "equivalent"), ("bit", "swap")
"""As in slotpool.drift, which would import the engine for --help."""
BUNDLED = ("prose.txt", "code.txt")


@click.command("drift")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-f",
    "--file",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="A text; - is stdin. Several are told apart.  [default: the bundled prose and code]",
)
@click.option(
    "--limit", type=click.IntRange(0, MAX_TOKENS), default=512, show_default=True, help="Tokens of each text at most; 0 takes all."
)
@click.option(
    "--ctx",
    type=click.IntRange(8, MAX_TOKENS),
    default=512,
    show_default=True,
    help="Context in tokens; a longer text goes on in an empty one.",
)
@click.option(
    "--chunks",
    type=click.IntRange(0, 4096),
    default=2,
    show_default=True,
    help="Chunks of 512 tokens computed as one batch, before and after the texts.",
)
@click.option("--threads", type=click.IntRange(1, MAX_THREADS), help="[default: all cores]")
@click.option(
    "--expect",
    type=OneOf("expectation", EXPECTATIONS),
    help="Exit code 1 unless the verdict is this one or better.  [default: what the pool promises of its run]",
)
@click.option(
    "--against", type=click.Path(path_type=Path), metavar="MODEL", help="The file that plain llama.cpp loads instead: they are told apart."
)
@click.option(
    "--damage",
    type=OneOf("damage", DAMAGES),
    help="Damage the pool on purpose, to see that it is found: one bit of one slab, or the slot map.  [--slots all unless given]",
)
@click.option("--record", type=click.Path(path_type=Path), help="Append a record of the run to a file.")
@pool_options(None, "as many as a token uses, so that every step evicts")
@json_option
def command(model: Path, files: tuple[Path, ...], expect: str | None, record: Path | None, as_json: bool, **options: Any) -> int:
    """Measure how far the pool moves MODEL's logits from plain llama.cpp's.

    Texts go token by token through plain llama.cpp, in a process without slotpool, and through the pool; on a device also through
    plain llama.cpp there, which tells what the placement moves from what the pool does. On the same kind of device the pool's share
    has to be exactly zero. Exit code 1: it is not what was expected, or nothing was pooled.
    """
    flags = {name: printable(value) if isinstance(value, Path) else value for name, value in options.items()} | {"expect": expect}
    if record is not None:
        _check_appendable(record)
    settings = _settings(model, options)
    texts = _read(files) or _bundled()
    report, verdict = _measured(model, texts, settings, expect)
    found = _document(report, verdict)
    if record is not None:
        _append(record, model, flags | {"slots": settings.pool["slots"], "texts": list(map(_hashed, texts))}, found)
    if as_json:
        print_json(found)
    else:
        _print(report, verdict)
    return 0 if verdict.is_met else REFUSED


def _settings(path: Path, options: dict[str, Any]) -> Settings:
    from slotpool.drift import Settings
    from slotpool.model import read

    pool = taken(options)
    pool.pop("require_pool")
    if pool["slots"] is None:
        pool["slots"] = "all" if options["damage"] else max(1, read(path).n_expert_used)
    return Settings(
        pool=pool,
        n_ctx=options["ctx"],
        n_threads=options["threads"],
        limit=options["limit"],
        n_chunks=options["chunks"],
        damage=options["damage"] or "",
        against=options["against"],
        backends=_backends(),
    )


def _measured(path: Path, texts: list[Text], settings: Settings, expect: str | None) -> tuple[Report, Verdict]:
    from slotpool import drift

    with open_bar() as show:
        report = drift.measure(path, texts, settings, show)
    return report, drift.judge(report, expect)


def _backends() -> tuple[str, ...]:
    """The backend from outside that llama.cpp's programs load, other than our own core: its devices are there for every arm."""
    from slotpool import native

    path = os.environ.get("GGML_BACKEND_PATH", "")
    return (path,) if path and Path(path).name != native.CORE_PATH.name else ()


def _read(files: Iterable[Path]) -> list[Text]:
    from slotpool.drift import Text

    return [Text(file.name, read_text(file)) for file in files]


def _bundled() -> list[Text]:
    from slotpool.drift import Text

    folder = resources.files("slotpool") / "data"
    return [Text(name, (folder / name).read_bytes()) for name in BUNDLED]


def _hashed(text: Text) -> str:
    """A text that a record can be held to: its name and what it was."""
    return f"{text.name} sha256:{hashlib.sha256(text.text).hexdigest()[:16]}"


def _document(report: Report, verdict: Verdict) -> dict[str, Any]:
    from slotpool import drift

    return drift.document(report, verdict)


def _check_appendable(path: Path) -> None:
    from slotpool.records.files import check_appendable

    check_appendable(path)


def _append(path: Path, model: Path, flags: dict[str, Any], found: dict[str, Any]) -> None:
    from slotpool import records

    records.append(path, records.make("drift", model=model, flags=flags, results=found))
    print_note(f"slotpool: a record more in {printable(path)}")


def _print(report: Report, verdict: Verdict) -> None:
    from slotpool.drift.document import KERNELS

    _print_files(report)
    print_line(f"Kernels: {KERNELS}; {report.n_threads} threads.")
    print_line()
    header = ("text", "tokens", *(f"ppl {arm.name}" for arm in report.arms), "kld mean", "median", "p99", "max", "flips")
    rows = [
        (text.name, str(text.n_tokens), *(_ppl(text.ppl[arm.name]) for arm in report.arms), *_numbers(text.total)) for text in report.texts
    ]
    print_table(header, rows, right=header[1:])
    print_line()
    for line in (*_shares(report), *_prompts(report), *_proof(report)):
        print_line(line)
    print_line(f"Verdict: {verdict.verdict}: {verdict.reason}. Expected: {verdict.expected}.")


def _print_files(report: Report) -> None:
    files = report.files
    print_line(f"Model: {files['model']['name']}, fingerprint {files['model']['fingerprint'][:16]}")
    if files["against"]:
        differ = f"{files['differ']} bytes differ, the first is {files['first']}" if files["differ"] else "the files are equal"
        print_line(f"Plain: {files['against']['name']}, fingerprint {files['against']['fingerprint'][:16]}: {differ}")


def _ppl(found: Ppl) -> str:
    if found.ppl is None:
        return "-"
    return f"{found.ppl:.4g}" + ("" if found.error is None else f" +- {found.error:.2g}")


def _numbers(share: Share) -> tuple[str, ...]:
    kld = share.kld
    return (*(f"{value:.3g}" for value in (kld.mean, kld.median, kld.p99, kld.max)), str(share.top1_flips))


def _shares(report: Report) -> list[str]:
    """What moved, split into placement and pool."""
    kinds = "plain llama.cpp on the CPU"
    if report.placement is None and report.pool is None:
        return [f"Placement and pool cannot be told apart: plain llama.cpp did not run on the device ({report.why_no_device})."]
    lines = []
    if report.placement:
        kinds = "plain llama.cpp on the device"
        lines.append(f"Placement, the device against the CPU, both plain: {_share(report.placement)}")
    else:
        lines.append("Placement: none, the pool is where its reference is.")
    assert report.pool
    return [*lines, f"Pool, against {kinds}: {_share(report.pool)}"]


def _share(share: Share) -> str:
    if share.is_exact:
        return f"exactly zero, {share.n_tokens} tokens with the same bits."
    mean, _, p99, largest, flips = _numbers(share)
    first = share.first_difference
    where = first.place if first else "nowhere"
    return (
        f"{share.n_different} of {share.n_tokens} tokens differ, the first {where}; "
        f"kld mean {mean}, p99 {p99}, max {largest}, {flips} top-1 flips, logits by {share.largest:.3g} at most."
    )


def _prompts(report: Report) -> list[str]:
    prompts = report.prompts
    if prompts is None:
        return []
    after = "the same bits before and after" if prompts.is_same_after else f"NOT the same after (chunk {prompts.first_different_chunk})"
    plain = "the same bits as" if prompts.is_plain else "other bits than"
    ppl = ", ".join(f"{arm} {_ppl(found)}" for arm, found in prompts.before.items())
    return [f"Prompts, {prompts.n_chunks} batches of at most 512 tokens: {after} decoding, {plain} plain llama.cpp; ppl {ppl}."]


def _proof(report: Report) -> list[str]:
    counts, stats = report.counts, report.stats
    served = ", ".join(f"{rows} {how}" for how, rows in stats["served"].items())
    plain = ", ".join(
        f"{arm.name} 0 lookups, no core (process {arm.pid}{', ran alone' * arm.ran_alone})" for arm in report.arms if not arm.has_core
    )
    lines = [
        f"Pool: {counts.lookups} lookups, hit rate {stats['hit_rate']:.1%}, rows {served}; "
        f"{counts.evicted} evictions, in {counts.n_steps_evicting} of {counts.n_steps} tokens.",
        f"Reference: {plain}.",
    ]
    return [*lines, _damage(report)] if report.damaged else lines


def _damage(report: Report) -> str:
    share = report.pool or report.total
    lost = " Nothing of it reached the logits: it was evicted before it was used, or rounded away." if share.is_exact else ""
    return f"Damaged on purpose: {report.damaged}.{lost}"
