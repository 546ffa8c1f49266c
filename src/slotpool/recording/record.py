"""Records the routing of texts into a trace file: as prompts, token by token, or as prompts with what the model writes after them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slotpool import engine, model
from slotpool.errors import SlotpoolError, printable
from slotpool.model import Model
from slotpool.recording import nodes
from slotpool.recording.decoding import Runner, running
from slotpool.recording.watch import Experts, RouterWatch
from slotpool.trace import GENERATION, PROMPT, TraceWriter
from slotpool.trace.fingerprint import facts_of
from slotpool.trace.writer import already_there

MODES = ("forced", "prompt", "generate")
"""How a text goes through the model: token by token as if it were generated, in ubatches, or in ubatches and then on from there."""
DEFAULT_CTX = 4096


@dataclass(frozen=True)
class Text:
    """What is recorded, one segment of the trace: text that is tokenised as it is, or tokens."""

    name: str
    text: bytes = b""
    tokens: Sequence[int] | None = None


@dataclass(frozen=True)
class Settings:
    """How to record. Counts are tokens; None for `n_ctx`: as trained, at most 4096; for `n_threads`: all cores.

    `n_generate` tokens are written after each text in the mode `generate`, greedily. `limit`: at most so many tokens of each text.
    """

    mode: str = "forced"
    n_generate: int = 0
    n_ctx: int | None = None
    n_ubatch: int = 512
    n_threads: int | None = None
    limit: int | None = None
    has_weights: bool = True
    has_ranking: bool = False


@dataclass(frozen=True)
class Recorded:
    """What a recording holds. `n_windows` counts how often the context began anew: texts, and where they were longer than it."""

    n_tokens: int
    n_generated: int
    n_events: int
    n_windows: int


def record(
    path: str | os.PathLike[str],
    texts: Sequence[Text],
    out: str | os.PathLike[str],
    settings: Settings = Settings(),
    *,
    force: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Recorded:
    """Runs the model at `path` over `texts` and writes their routing to `out`.

    A text longer than the context is cut into windows, each with an empty context. `on_progress` gets tokens done and all tokens.
    Raises SlotpoolError for a model without experts, or one that does not load, and for an existing `out` without `force`.
    """
    if not force and os.path.lexists(out):
        raise already_there(out)  # before a model is loaded for minutes
    facts = _read(path)
    nodes.check_layout()
    watch = RouterWatch(experts_of(facts), lambda event: None, settings.has_weights, settings.has_ranking)
    n_ctx = settings.n_ctx or _trained_ctx(facts)
    n_threads = settings.n_threads or engine.n_cores()
    with running(_first_file(path, facts), watch, n_ctx, min(settings.n_ubatch, n_ctx), n_threads) as runner:
        tokens = [_tokens(runner, text)[: settings.limit] for text in texts]
        with TraceWriter(out, facts_of(facts, engine.name(), "evaluation callback"), force=force) as writer:
            watch.add = writer.add
            recording = _Recording(runner, watch, writer, settings)
            recording.n_total = sum(map(len, tokens)) + settings.n_generate * len(texts)
            recording.on_progress = on_progress
            for text, ids in zip(texts, tokens, strict=True):
                recording.take(text.name, ids)
            return recording.result()


def experts_of(facts: Model) -> Experts:
    """Number of experts of each (layer, pass)."""
    return {(tensor.layer, "chexps" if tensor.is_chunk else "exps"): tensor.n_expert for tensor in facts.experts}


def _read(path: str | os.PathLike[str]) -> Model:
    facts = model.read(Path(os.fsdecode(path)))
    if facts.problems:
        raise SlotpoolError(facts.problems[0], where=printable(path), do="slotpool inspect lists all problems of the file.")
    if not facts.experts:
        raise SlotpoolError("expected a model with experts, found a dense one", where=printable(path))
    return facts


def _first_file(path: str | os.PathLike[str], facts: Model) -> Path:
    # the engine takes the first shard only, whichever was named
    return Path(os.fsdecode(path)) if facts.n_shards == 1 else facts.files[0].path


def _trained_ctx(facts: Model) -> int:
    length = facts.metadata.get(f"{facts.architecture}.context_length")
    return min(DEFAULT_CTX, length) if isinstance(length, int) and length > 0 else DEFAULT_CTX


def _tokens(runner: Runner, text: Text) -> list[int]:
    return runner.tokenize(text.text) if text.tokens is None else list(text.tokens)


class _Recording:
    """One recording in progress."""

    def __init__(self, runner: Runner, watch: RouterWatch, writer: TraceWriter, settings: Settings) -> None:
        self._runner, self._watch, self._writer, self._settings = runner, watch, writer, settings
        self._n_tokens = self._n_generated = self._n_windows = 0
        self.n_total = 0
        self.on_progress: Callable[[int, int], None] = lambda done, total: None

    def take(self, name: str, tokens: list[int]) -> None:
        """Records one text, from an empty context on."""
        self._writer.begin_segment(self._watch.n_ubatches, name)
        self._begin_window()
        if self._settings.mode == "generate":
            self._check_fits(name, tokens)
        step = 1 if self._settings.mode == "forced" else min(self._settings.n_ubatch, self._runner.n_ctx)
        at = 0
        while at < len(tokens):
            if self._runner.n_free == 0:
                self._begin_window()
            part = tokens[at : at + min(step, self._runner.n_free)]
            at += len(part)
            # a prompt has one output, its last token; what is generated has one each
            self._decode(part, step == 1 or at == len(tokens))
        if self._settings.mode == "generate" and tokens:
            self._generate()

    def _generate(self) -> None:
        for _ in range(self._settings.n_generate):
            token = self._runner.best_token()
            if token is None:
                return
            self._decode([token], True, GENERATION)
            self._n_generated += 1

    def _decode(self, tokens: list[int], has_output: bool, phase: int | None = None) -> None:
        self._watch.begin()
        self._runner.decode(tokens, n_outputs=int(has_output))
        forced = GENERATION if self._settings.mode == "forced" else PROMPT
        self._watch.end(len(tokens), forced if phase is None else phase)
        self._writer.end_ubatch()
        self._n_tokens += len(tokens)
        self.on_progress(self._n_tokens, self.n_total)

    def _begin_window(self) -> None:
        self._runner.forget()
        self._n_windows += 1

    def _check_fits(self, name: str, tokens: list[int]) -> None:
        n_wanted = len(tokens) + self._settings.n_generate
        if n_wanted > self._runner.n_ctx:
            raise SlotpoolError(
                f"expected text and tokens to fit a context of {self._runner.n_ctx}, found {len(tokens)} + {self._settings.n_generate}",
                where=printable(name),
                do=f"Try --ctx {n_wanted}, or --limit.",
            )

    def result(self) -> Recorded:
        if not self._writer.n_events and self._n_tokens:
            raise SlotpoolError(f"expected routers in {self._n_tokens} tokens, found none: this engine names them otherwise, or has none")
        return Recorded(self._n_tokens, self._n_generated, self._writer.n_events, self._n_windows)
