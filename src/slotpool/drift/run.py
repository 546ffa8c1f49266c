"""Runs the arms in lockstep over the texts: a block of tokens each in turn, whose logits are compared and forgotten.

Memory holds one block of logits an arm. What the numbers mean is `verdict`'s to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from slotpool import engine, model
from slotpool.drift.arms import Arms
from slotpool.drift.compare import Comparison
from slotpool.drift.facts import CPU, DEVICE, POOL, Arm, Chunk, Difference, Report, Settings, Text
from slotpool.drift.files import compared_files
from slotpool.drift.numbers import Logits
from slotpool.drift.process import ArmProcess
from slotpool.drift.prompts import chunks_of, judged_prompts
from slotpool.drift.schedule import Schedule, blocks
from slotpool.drift.spool import SpooledArm
from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.model import Model

Progress = Callable[[int, int, str], None]
"""Tokens done by all arms, all of them, and what is going on."""


def measure(
    path: str | os.PathLike[str], texts: Sequence[Text], settings: Settings, on_progress: Progress = lambda done, total, what: None
) -> Report:
    """Runs MODEL plain and pooled over `texts` and returns what differs.

    Raises SlotpoolError for a model or a text that cannot be used, an arm that fails, nothing pooled, a pool without a single lookup
    and a reference with the core in it.
    """
    facts = _readable(path)
    _check(facts, path, texts, settings)
    reference = facts if settings.against is None else _readable(settings.against)
    with ExitStack() as stack:
        arms = Arms(stack, facts, reference, settings)
        return _Run(arms, texts, settings, on_progress).report(compared_files(facts, reference))


def _readable(path: str | os.PathLike[str]) -> Model:
    facts = model.read(Path(os.fsdecode(path)))
    if facts.problems:
        raise SlotpoolError(facts.problems[0], where=printable(path), do="slotpool inspect lists all problems of the file.")
    return facts


def _check(facts: Model, path: str | os.PathLike[str], texts: Sequence[Text], settings: Settings) -> None:
    if not facts.experts:
        raise SlotpoolError("expected a model with experts, found a dense one", where=printable(path))
    if not texts:
        raise SlotpoolError("expected a text, found none", where="--file")
    if settings.pool.get("slots") == 0:
        raise SlotpoolError("expected a pool to compare with plain llama.cpp, found it off", where="--slots")


class _Run:
    """One measurement in progress."""

    def __init__(self, arms: Arms, texts: Sequence[Text], settings: Settings, on_progress: Progress) -> None:
        self._arms, self._settings = arms, settings
        self._on_progress, self._n_done, self._n_arms = on_progress, 0, 3 if arms.is_on_devices else 2
        self._names = [text.name for text in texts]
        ids = [_tokenized(arms.cpu, text) for text in texts]
        self._lengths = [len(one) for one in ids]
        limited = tuple(one[: settings.limit or None] for one in ids)
        self._schedule = Schedule(limited, tuple(chunks_of(ids, settings.n_chunks, settings.n_ctx)), settings.n_ctx)
        self._damaged = ""
        arms.start(self._schedule, lambda n_tokens: self._advance(n_tokens, "plain on the device, alone"))
        self._n_arms = len(arms.all)
        self._comparison = Comparison(list(arms.all), self._names, self._token)

    def report(self, files: Mapping[str, Any]) -> Report:
        """Prompts, all texts token by token, the pool's prompts again; then everything that was found."""
        before = {name: self._prompts(arm, "prompts, before") for name, arm in self._arms.all.items()}
        for number in range(len(self._names)):
            self._decode(number)
        after = self._prompts(self._arms.pool, "prompts, after")
        counts, arms = self._arms.pool.counts(), tuple(self._proven())
        _check_used(counts.lookups, [arm for arm in arms if arm.name != POOL])
        found = self._comparison
        total = found.share("total")
        return Report(
            engine=self._arms.cpu.hello.engine,
            n_tokens=total.n_tokens,
            total=total,
            placement=found.share("placement") if found.has_placement else None,
            pool=found.share("pool") if found.has_placement or not self._arms.devices else None,
            why_no_device=self._arms.why_no_device,
            texts=found.texts(self._lengths),
            prompts=judged_prompts(before, after, [len(ids) for ids in self._schedule.chunks]),
            arms=arms,
            counts=counts,
            stats=self._arms.pool.ask("stats"),
            n_threads=self._settings.n_threads or engine.n_cores(),
            n_ctx=self._settings.n_ctx,
            damaged=self._damaged,
            files=files,
        )

    def _decode(self, number: int) -> None:
        for window in self._schedule.windows(number):
            for arm in self._arms.all.values():
                arm.forget()
            for block, following in blocks(window):
                rows = {name: self._turn(arm, block, number) for name, arm in self._arms.all.items()}
                self._comparison.add(number, rows, following)
                if self._settings.damage and not self._damaged:
                    self._damaged = self._arms.pool.ask("damage", self._settings.damage)

    def _turn(self, arm: ArmProcess | SpooledArm, block: Sequence[int], number: int) -> Logits:
        rows = arm.decode(block)
        self._advance(0 if isinstance(arm, SpooledArm) else len(block), self._names[number])
        return rows

    def _prompts(self, arm: ArmProcess | SpooledArm, what: str) -> list[Chunk]:
        """The chunks of an arm, from an empty context each."""
        found = []
        for ids in self._schedule.chunks:
            found.append(arm.chunk(ids))
            self._advance(0 if isinstance(arm, SpooledArm) else len(ids), what)
        return found

    def _advance(self, n_tokens: int, what: str) -> None:
        self._n_done += n_tokens
        plan = self._schedule
        self._on_progress(self._n_done, self._n_arms * (plan.n_prompt_tokens + plan.n_text_tokens) + plan.n_prompt_tokens, what)

    def _token(self, number: int, index: int) -> Difference:
        token = self._schedule.texts[number][index]
        return Difference(self._names[number], index, token, self._arms.cpu.ask("piece", token).decode("utf-8", "replace"))

    def _proven(self) -> Iterator[Arm]:
        where = {CPU: "CPU", DEVICE: ",".join(self._arms.devices), POOL: ",".join(self._arms.devices) or "CPU"}
        for name, arm in self._arms.all.items():
            yield Arm(name, arm.hello.pid, where[name], arm.has_core(), arm.counts().lookups, isinstance(arm, SpooledArm))


def _tokenized(arm: ArmProcess, text: Text) -> list[int]:
    ids = arm.tokenize(text.text)
    if not ids:
        raise SlotpoolError("expected a text of at least one token, found an empty one", where=printable(text.name))
    return ids


def _check_used(pool: int, plain: Sequence[Arm]) -> None:
    if not pool:
        raise SlotpoolError("expected lookups in the pool, found none: nothing was compared", exit_code=REFUSED)
    for arm in plain:
        if arm.lookups or arm.has_core:
            raise SlotpoolError(f"expected arm {arm.name} to be plain llama.cpp, found slotpool's core in it", exit_code=REFUSED)
