"""The session: rounds of phases in one pooled process, an anchor after each, and what was seen then.

Compares and measures; the verdicts are `rules`' and `document`'s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psutil

from slotpool import engine, loading
from slotpool.errors import SlotpoolError
from slotpool.loading import PooledLlama
from slotpool.soak.facts import PHASES, Counters, Difference, Observed, Reply, Request, Sample, Settings
from slotpool.soak.kept import KeptSamples
from slotpool.soak.loaded import first_driver, opened, texts_of
from slotpool.soak.phases import Tools, anchor_of, phase
from slotpool.soak.reference import Replies
from slotpool.soak.requests import ask, fixed_requests
from slotpool.soak.rules import first_difference

_MOST_DIFFERENCES = 100


@dataclass(frozen=True)
class Limit:
    """When a session ends: after so many rounds, or after the phase in which so many seconds were over; one round at least."""

    rounds: int | None = None
    seconds: float | None = None

    def is_over(self, n_rounds: int, seconds: float) -> bool:
        """After `n_rounds` whole rounds and `seconds`."""
        return (self.rounds is not None and n_rounds >= self.rounds) or (
            self.seconds is not None and n_rounds >= 1 and seconds >= self.seconds
        )


def run(
    path: Path,
    settings: Settings,
    pool: Mapping[str, Any],
    limit: Limit,
    references: Replies,
    on_phase: Callable[[int, float, str], None] = lambda _round, _seconds, _phase: None,
    disturb: Callable[[PooledLlama, int, str], None] = lambda _llm, _round, _phase: None,
) -> Observed:
    """The session. `references` has what plain llama.cpp answered, empty when nobody asked it. `pool` is `slotpool.load`'s keywords.

    `on_phase` is told of every phase before it begins; `disturb` is called then too, for tests that must be found out. A request that
    the engine cannot answer ends the session, and is its `failure`; an interrupt ends it too. Raises SlotpoolError where the model does
    not load.
    """
    with closing(KeptSamples()) as kept, opened(path, settings, pool) as llm:
        texts = texts_of(llm)
        tools = Tools(llm, first_driver(llm), texts, settings, fixed_requests(texts, settings), Random(settings.seed))
        watch = _Watch(tools, references, kept)
        failure, is_interrupted = "", False
        try:
            for number, name in _phases(limit, watch):
                on_phase(number, watch.seconds, name)
                disturb(llm, number, name)
                watch.take(number, name)
        except SlotpoolError as error:
            failure = _reason(llm, error)
        except KeyboardInterrupt:
            is_interrupted = True
        return watch.observed(failure, is_interrupted)


def _phases(limit: Limit, watch: _Watch) -> Any:
    number = 0
    while not limit.is_over(number, watch.seconds):
        for name in PHASES:
            if number and limit.seconds is not None and watch.seconds >= limit.seconds:
                return
            yield number, name
        number += 1


def _reason(llm: PooledLlama, error: SlotpoolError) -> str:
    why = llm.slotpool_session.take_failure() if llm.slotpool_session else ""
    return f"{error.message}: {why}" if why else error.message


@dataclass
class _Watch:
    """What has been seen so far."""

    tools: Tools
    references: Replies
    samples: KeptSamples
    started: float = field(default_factory=time.perf_counter)
    replays: dict[str, int] = field(default_factory=dict)
    first: dict[str, Reply] = field(default_factory=dict)
    exact: list[Difference] = field(default_factory=list)
    equivalent: list[Difference] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def take(self, number: int, name: str) -> None:
        """A phase, the anchor after it, and a look at everything."""
        before, n_known = self._counters(), len(self.exact)
        replies = []
        for request, reply in phase(name, self.tools, number):
            replies.append(reply)
            self._compare(number, name, request, reply)
        anchor = self.tools.requests[anchor_of(len(self.samples))]
        reply = ask(self.tools.driver, anchor)
        self._compare(number, name, anchor, reply)
        self.samples.add(self._sample(number, name, anchor, replies, reply, self._counters() - before, len(self.exact) == n_known))

    def observed(self, failure: str, is_interrupted: bool) -> Observed:
        """Everything, with differences as they count: to the bit where the run was exact."""
        stats = loading.read_stats(self.tools.llm)
        is_exact = stats["exact"]
        return Observed(
            samples=self.samples.all(),
            replays=dict(self.replays),
            differences=tuple(self.exact if is_exact else self.equivalent),
            references={name: self._is_plain(name, is_exact) for name in self.references if name in self.first},
            stats=stats,
            seconds=self.seconds,
            n_aborted=self.tools.n_aborted,
            n_contexts=self.tools.n_contexts,
            n_reused=self.tools.n_reused,
            failure=failure,
            is_interrupted=is_interrupted,
        )

    def _is_plain(self, name: str, is_exact: bool) -> bool:
        return first_difference(self.references[name], self.first[name].outputs, is_exact=is_exact) is None

    def _compare(self, number: int, phase_name: str, request: Request, reply: Reply) -> None:
        if request.name not in self.tools.requests:
            return
        self.replays[request.name] = self.replays.get(request.name, 0) + 1
        is_first = request.name not in self.first
        self.first.setdefault(request.name, reply)
        if is_first and request.name in self.references:
            self._note(number, phase_name, request.name, "plain llama.cpp", self.references[request.name], reply)
        elif not is_first:
            self._note(number, phase_name, request.name, "the first time", self.first[request.name].outputs, reply)

    def _note(self, number: int, phase_name: str, name: str, against: str, expected: Any, reply: Reply) -> None:
        for differences, is_exact in ((self.exact, True), (self.equivalent, False)):
            found = first_difference(expected, reply.outputs, is_exact=is_exact)
            if found and len(differences) < _MOST_DIFFERENCES:
                differences.append(Difference(number, phase_name, name, against, *found))

    def _counters(self) -> Counters:
        stats = loading.read_stats(self.tools.llm)
        return Counters(**{name: stats[name] for name in vars(Counters())})  # type: ignore[literal-required]

    def _sample(
        self, number: int, name: str, anchor: Request, replies: list[Reply], reply: Reply, counters: Counters, is_same: bool
    ) -> Sample:
        memory = psutil.Process().memory_info()
        n_prompt, n_generated = sum(one.n_prompt for one in replies), sum(len(one.outputs) - 1 for one in replies)
        return Sample(
            seconds=self.seconds,
            round=number,
            phase=name,
            anchor=anchor.name,
            is_same=is_same,
            counters=counters,
            uploads_in_flight=loading.read_stats(self.tools.llm)["uploads_in_flight"],
            prompt_tps=_rate(n_prompt, sum(one.prompt_seconds for one in replies)),
            generation_tps=_rate(n_generated, sum(one.generation_seconds for one in replies)),
            anchor_tps=_rate(len(reply.outputs) - 1, reply.generation_seconds),
            rss_bytes=memory.rss,
            # pages of a mapped file come and go with the page cache; macOS has no such number
            private_bytes=memory.rss - getattr(memory, "shared", 0),
            device_bytes=_device_bytes(self.tools.llm),
            load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        )


def _rate(n_tokens: int, seconds: float) -> float | None:
    return n_tokens / seconds if n_tokens and seconds > 0 else None


def _device_bytes(llm: PooledLlama) -> dict[str, int]:
    wanted = {device.name for device in llm.slotpool_plan.devices}
    return (
        {one.name: one.total_bytes - one.free_bytes for one in engine.devices() if one.name in wanted and one.total_bytes} if wanted else {}
    )
