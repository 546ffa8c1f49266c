"""`slotpool run`: text from a model with the pool on; what it did and how fast, as lines or as one JSON document."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from slotpool.cli.output import json_option, print_json, print_note
from slotpool.cli.pool_options import plan_option, pool_options, save_profile_option, taken
from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.model import Model, read
from slotpool.pool_stats import Stats
from slotpool.texts import checked, read_text

MAX_TOKENS = 1 << 22
MAX_THREADS = 512
"""Bounds of the engine: beyond them it aborts the process instead of saying no."""
ENCODERS = ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert", "neo-bert", "eurobert", "t5encoder")
"""Architectures that embed and never write, for files that do not say so themselves."""


@dataclass(frozen=True)
class Request:
    """What to run: a model, the pool's options as `slotpool.load` takes them, a prompt and how to go on from it."""

    model: Path
    prompt: str
    n_tokens: int
    temperature: float
    seed: int
    ctx: int | None
    threads: int | None
    chat: bool
    repack: bool
    pool: dict[str, Any]
    trace: Path | None = None
    save_profile: Path | None = None


@click.command("run")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-p", "--prompt", help="The prompt, taken as it is (no chat template unless --chat).")
@click.option("-f", "--file", "prompt_file", type=click.Path(path_type=Path), help="Read the prompt from a file; - is stdin.")
@click.option("-n", "n_tokens", type=click.IntRange(0, MAX_TOKENS), default=128, show_default=True, help="Tokens to generate at most.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True, help="0 is greedy.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="For temperatures above 0.")
@click.option(
    "--ctx", type=click.IntRange(1, MAX_TOKENS), help="Context in tokens.  [default: 4096, at most what the model was trained for]"
)
@click.option("--threads", type=click.IntRange(1, MAX_THREADS), help="[default: all cores]")
@click.option("--chat", is_flag=True, help="Put the prompt into the model's chat template.")
@click.option(
    "--repack/--no-repack",
    default=True,
    help="Let the engine repack weights for its faster kernels, and slots over a disk hold experts so.  [default: repack]",
)
@click.option("--trace", type=click.Path(path_type=Path), help="A new file for the routing of every pooled event.")
@save_profile_option
@pool_options("auto")
@plan_option
@json_option
def command(prompt: str | None, prompt_file: Path | None, as_json: bool, **options: Any) -> None:
    """Generate text from MODEL with the pool on.

    The text goes to stdout as it comes, one line about the pool and the speeds to stderr. With --json stdout is one document:
    text, tokens (generated ids only), prompt_tps, generation_tps, steady_tps (after the 64th token), ttft_ms, stats.
    """
    if not math.isfinite(options["temperature"]):
        raise SlotpoolError(f"expected a finite temperature, found {options['temperature']}", where="--temperature")
    request = Request(prompt=_prompt(prompt, prompt_file), pool=taken(options) | {"plan_file": options.pop("plan_file")}, **options)
    document = run(request, stream=not as_json)
    if as_json:
        print_json(document)
    else:
        print_note(_summary(document))


def run(request: Request, *, stream: bool) -> dict[str, Any]:
    """Runs the request and returns the document of `slotpool run --json`; with `stream` the text goes to stdout as it comes.

    Raises SlotpoolError when the pool was planned and not one lookup reached it: such a run looks healthy and proves nothing.
    """
    from slotpool import generation, loading  # the engine takes a second to import: not for --help

    facts = read(request.model)
    check_writes_text(facts)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        llm = loading.load(
            request.model,
            repack=request.repack,
            **request.pool,
            trace_path=request.trace,
            save_profile=request.save_profile,
            n_ctx=context_size(facts, request.ctx),
            n_threads=request.threads,
            n_threads_batch=request.threads,
        )
    for warning in caught:
        print_note(f"warning: {warning.message}")
    load_ms = 1000 * (time.perf_counter() - started)
    try:
        ids = generation.apply_chat(llm, request.prompt) if request.chat else generation.tokenize(llm, request.prompt)
        sampling = generation.Sampling(request.temperature, request.seed)
        made = generation.generate(llm, ids, request.n_tokens, sampling, _print_piece if stream else lambda _: None)
        stats = loading.read_stats(llm)
    finally:
        llm.close()
    if stream:
        print(flush=True)
    _note_trace(request.trace, llm.slotpool_traced)
    if request.save_profile:
        print_note(f"slotpool: profile in {printable(request.save_profile)}")
    _check_used(stats, len(made.tokens))
    return vars(made) | {"tokens": list(made.tokens), "load_ms": load_ms, "stats": stats}


def _note_trace(path: Path | None, traced: tuple[int, int] | None) -> None:
    if traced is not None:
        dropped = f", {traced[1]} dropped because the disk could not keep up" if traced[1] else ""
        print_note(f"slotpool: {traced[0]} events in {printable(str(path))}{dropped}")


def _check_used(stats: Stats, n_generated: int) -> None:
    if stats["pooled_tensors"] and n_generated > 1 and not stats["lookups"]:
        raise SlotpoolError(
            "expected lookups in the pool, found none: it was planned and never used",
            do="Please report it with the output of slotpool doctor --json.",
            exit_code=REFUSED,
        )


def check_writes_text(facts: Model) -> None:
    """Refuses what the engine would answer with an abort: models without a vocabulary, and encoders."""
    if facts.problems:
        return  # load() says it better
    path = facts.files[0].path
    tokenizer = facts.metadata.get("tokenizer.ggml.model")
    if tokenizer in (None, "none", "no_vocab"):
        raise SlotpoolError("expected a model with a vocabulary, found one without", where=printable(path))
    if facts.metadata.get(f"{facts.architecture}.attention.causal") is False or facts.architecture in ENCODERS:
        raise SlotpoolError(f"expected a model that writes text, found an encoder ({facts.architecture})", where=printable(path))


def _prompt(prompt: str | None, prompt_file: Path | None) -> str:
    if (prompt is None) == (prompt_file is None):
        raise SlotpoolError(f"expected one of --prompt and --file, found {'none' if prompt is None else 'both'}", where="slotpool run")
    if prompt is not None:
        return checked(prompt.encode("utf-8", "surrogateescape"), "--prompt").decode()
    return read_text(Path(str(prompt_file))).decode()


def context_size(facts: Model, wanted: int | None) -> int:
    """The context to load with; says so when it is more than the model was trained for."""
    length = facts.metadata.get(f"{facts.architecture}.context_length")
    trained = length if isinstance(length, int) and length > 0 else 4096
    if wanted and wanted > trained:
        print_note(f"warning: a context of {wanted} tokens is more than the {trained} the model was trained for")
    return wanted or min(4096, trained)


def _print_piece(piece: str) -> None:
    print(piece, end="", flush=True)


def _summary(document: dict[str, Any]) -> str:
    from slotpool.cli.pool_table import summary

    speeds = ", ".join(
        f"{name} {document[key]:.1f} tokens/s"
        for name, key in (("prompt", "prompt_tps"), ("generation", "generation_tps"), ("steady", "steady_tps"))
        if document[key]
    )
    return f"slotpool: {summary(document['stats'])}; {len(document['tokens'])} tokens{', ' + speeds if speeds else ''}"
