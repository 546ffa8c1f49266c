"""Runs a bench: round by round every arm in a fresh process, in an order that turns about, each proved before its numbers count.

Does not judge and does not draw: what came is `Measured`, every answer of every process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from slotpool.bench import process
from slotpool.bench.arms import PLAIN, POOL, Arm, arms, placement
from slotpool.bench.proof import prove, prove_alike, prove_same_plan
from slotpool.bench.settings import Settings
from slotpool.bench.text import Text, is_repeated, window
from slotpool.model import Model

Progress = Callable[[int, int, str], None]
"""Told how many runs are done, of how many, and what comes next."""


@dataclass(frozen=True)
class Measured:
    """`answers` has the rounds of each of `arms`, in their order. Arms of one depth are compared with each other and with no others."""

    settings: Settings
    text: Text
    n_tokens: int
    repeats: bool
    arms: tuple[Arm, ...]
    answers: tuple[tuple[dict[str, Any], ...], ...]


def measure(settings: Settings, text: Text, model: Model, progress: Progress) -> Measured:
    """Runs everything. SlotpoolError, and no result, when an arm does not do what its name says."""
    tokens, begin, devices = _asked(settings, text)
    settings = settings.on(devices)
    fields = [arms(settings, depth) for depth in settings.depths]
    window(tokens, settings, max(settings.depths), 0)  # a text that is too short is said before anything runs
    runs = _Runs(settings, tokens, begin, progress, n_runs(settings))
    for field in fields:
        runs.add_placements(field, model)
    for number in range(settings.rounds):
        for field in fields:
            runs.take_turns(field, number)
    flat = tuple(arm for field in fields for arm in field)
    answers = tuple(tuple(runs.answers[id(arm)]) for arm in flat)
    return Measured(settings, text, len(tokens), is_repeated(tokens, settings), flat, answers)


def n_runs(settings: Settings) -> int:
    """Runs that will be counted, but for plain placements that depend on what the pools take."""
    return settings.rounds * sum(len(arms(settings, depth)) for depth in settings.depths)


def _asked(settings: Settings, text: Text) -> tuple[list[int], list[int], list[str]]:
    """Tokens of the text, BOS or nothing, devices. In a process of its own: this one must not take a device's memory."""
    job = {"model": str(settings.model), "text": text.content.decode("utf-8", "surrogateescape"), "rpc": settings.pool.get("rpc") or []}
    _, answer = process.ask("text", job)
    return answer["tokens"], answer["begin"], answer["devices"]


class _Runs:
    """The runs of a bench so far."""

    def __init__(self, settings: Settings, tokens: Sequence[int], begin: Sequence[int], progress: Progress, total: int) -> None:
        self._settings, self._tokens, self._begin = settings, tokens, begin
        self._progress, self._done, self._total = progress, 0, total
        self.answers: dict[int, list[dict[str, Any]]] = {}

    def add_placements(self, field: list[Arm], model: Model) -> None:
        """To a depth's arms: plain llama.cpp with the bytes of each pool spent on whole layers. An uncounted run says how many bytes."""
        if not any(arm.on_host for arm in field):
            return
        known = {arm.name for arm in field}
        for pool in [arm for arm in field if arm.kind == POOL]:
            slot_bytes = self._run(pool, 0)["stats"]["slot_bytes"]
            made = placement(self._settings, model, pool.depth, slot_bytes)
            if made and made.name not in known:
                known.add(made.name)
                field.insert(sum(arm.kind == PLAIN for arm in field), made)
                self._total += self._settings.rounds

    def take_turns(self, field: Sequence[Arm], number: int) -> None:
        """One round of the arms of a depth."""
        found = {}
        for arm in field if number % 2 == 0 else reversed(field):
            self._progress(self._done, self._total, f"round {number + 1}: {arm.name}{f', depth {arm.depth}' if arm.depth else ''}")
            found[id(arm)] = self._run(arm, number)
            self._done += 1
            before = self.answers.setdefault(id(arm), [])
            if before:
                prove_same_plan(arm, before[0], found[id(arm)])
            before.append(found[id(arm)])
        prove_alike(field, [found[id(arm)] for arm in field])
        self._progress(self._done, self._total, "")

    def _run(self, arm: Arm, number: int) -> dict[str, Any]:
        here = window(self._tokens, self._settings, arm.depth, number)
        job = {
            "model": str(self._settings.model),
            "kind": arm.kind,
            "options": arm.options,
            "on_host": arm.on_host,
            "begin": list(self._begin),
            "window": asdict(here),
        }
        started, answer = process.ask(arm.name, job)
        prove(arm, answer, started, here.digest)
        return answer
