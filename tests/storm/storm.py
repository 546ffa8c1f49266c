"""A whole storm: variant after variant until so many experts were evicted, with what is wrong about each run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testkit import syn

from . import runs
from .built import Built
from .runs import Outcome, Variant


@dataclass(frozen=True)
class Ran:
    """A run and what is wrong about it; nothing is: no report of the sanitizer, and the same logits as plain llama.cpp at every step."""

    variant: Variant
    seed: int
    outcome: Outcome
    faults: tuple[str, ...]

    @property
    def evicted(self) -> int:
        return self.outcome.counts.get("evicted", 0)


class Storm:
    """Runs on one build, in `folder`. Plain llama.cpp runs once for all variants that decode the same tokens in the same contexts."""

    def __init__(self, built: Built, folder: Path, steps: int) -> None:
        self._built, self._steps = built, steps
        self._folder = folder
        self._plain: dict[tuple[object, ...], Outcome] = {}

    def run(self, variant: Variant, seed: int = 1) -> Ran:
        plain = self._plain_run(variant, seed)
        outcome = runs.pooled(self._built, self._model(variant), variant, seed, self._steps)
        return Ran(variant, seed, outcome, tuple(_faults(variant, plain, outcome, self._steps)))

    def until(self, evictions: int, variants: Sequence[Variant]) -> Iterator[Ran]:
        """Rounds of all variants, each round with other tokens, until so many experts were evicted or a run was wrong."""
        evicted = 0
        for seed in itertools.count(1):
            for variant in variants:
                ran = self.run(variant, seed)
                evicted += ran.evicted
                yield ran
            if evicted >= evictions or evicted == 0:
                return

    def _plain_run(self, variant: Variant, seed: int) -> Outcome:
        key = (variant.layers, variant.contexts, variant.renew, seed)
        if key not in self._plain:
            self._plain[key] = runs.plain(self._built, self._model(variant), replace(variant, threads=1), seed, self._steps)
        return self._plain[key]

    def _model(self, variant: Variant) -> Path:
        path = self._folder / f"{variant.layers}.gguf"
        return path if path.exists() else syn.write(replace(runs.SPEC, n_layer=variant.layers), path)


def _faults(variant: Variant, plain: Outcome, outcome: Outcome, steps: int) -> Iterator[str]:
    if plain.reports or plain.returncode or any(len(logits) != steps for logits in plain.logits.values()):
        yield f"plain llama.cpp alone: exit code {plain.returncode}, {plain.reports} reports"
    if outcome.reports:
        yield f"{outcome.reports} reports of the sanitizer"
    if outcome.returncode:
        yield f"exit code {outcome.returncode}"
    yield from outcome.trouble
    for context, expected in plain.logits.items():
        found = outcome.logits.get(context, [])
        if found != expected:
            step = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), min(len(found), len(expected)))
            yield f"context {context}: other logits than plain llama.cpp from step {step}"
    rows, expected_rows = sum(outcome.counts.get(f"rows_{how}", 0) for how in ("hit", "copy", "cpu")), _rows(variant, outcome, steps)
    if rows != expected_rows:  # every row is computed once, and counted where
        yield f"expected {expected_rows} rows counted, found {rows}"
    if len(plain.logits) != variant.contexts:
        yield f"expected logits of {variant.contexts} contexts, found {len(plain.logits)}"
    if outcome.counts.get("misses", 0) == 0 or outcome.counts.get("in_flight", 0) != 0:
        yield f"expected misses, and nothing on its way at the end, found {outcome.counts}"
    if variant.evicts is not None and variant.evicts != (outcome.counts.get("evicted", 0) > 0):
        yield f"expected {'' if variant.evicts else 'no '}evictions, found {outcome.counts.get('evicted')}"
    if variant.is_watched and outcome.looks == 0:
        yield "expected a stats page that was looked at, found none"


def _rows(variant: Variant, outcome: Outcome, steps: int) -> int:
    """Rows that the pool must have counted: all, less those of prompts that were refused. The last layer computes one token of a step."""
    n_tokens = [24 if step % 23 == 11 else 2 if step % 7 == 3 else 1 for step in range(steps)]  # as storm.cpp has it
    inner = sum(n for n in n_tokens if n <= 2 or variant.is_on_disk) * (variant.layers - 1)
    prompts = variant.contexts * n_tokens.count(24)
    refused = outcome.counts.get("refused", 0)
    last = variant.contexts * steps - (0 if variant.is_on_disk else max(0, refused - prompts * (variant.layers - 1)))
    return runs.SPEC.n_expert_used * (variant.contexts * inner + last)
