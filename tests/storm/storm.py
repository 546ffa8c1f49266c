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
        self._model = syn.write(runs.SPEC, folder / f"storm-{built.sanitizer}.gguf")
        self._plain: dict[tuple[object, ...], Outcome] = {}

    def run(self, variant: Variant, seed: int = 1) -> Ran:
        plain = self._plain_run(variant, seed)
        outcome = runs.pooled(self._built, self._model, variant, seed, self._steps)
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
        key = (variant.contexts, variant.renew, seed)
        if key not in self._plain:
            self._plain[key] = runs.plain(self._built, self._model, replace(variant, threads=1), seed, self._steps)
        return self._plain[key]


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
    if len(plain.logits) != variant.contexts:
        yield f"expected logits of {variant.contexts} contexts, found {len(plain.logits)}"
    if outcome.counts.get("misses", 0) == 0 or outcome.counts.get("in_flight", 0) != 0:
        yield f"expected misses, and nothing on its way at the end, found {outcome.counts}"
    if variant.evicts is not None and variant.evicts != (outcome.counts.get("evicted", 0) > 0):
        yield f"expected {'' if variant.evicts else 'no '}evictions, found {outcome.counts.get('evicted')}"
    if variant.is_watched and outcome.looks == 0:
        yield "expected a stats page that was looked at, found none"
