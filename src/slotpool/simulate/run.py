"""Runs policies x slots over a trace and puts hit rates beside the offline optimum's. Prints nothing.

The pool and the online policies are the core's own; so is the optimum, which has the same rules and may refuse every miss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from slotpool import native
from slotpool import policies as known
from slotpool.errors import SlotpoolError, unknown
from slotpool.native import EventArrays, Replayed
from slotpool.native.replay import replay, replay_over
from slotpool.profile import usable_slots
from slotpool.simulate.settings import ADMISSIONS, STORES, Settings, Slots
from slotpool.simulate.streams import Stream, streams_of
from slotpool.trace import PHASES, Trace

ONLINE = known.POLICIES
POLICIES = ("default", *ONLINE, "static", "belady", "belady-admit")
"""Online ones; `static`, the hottest experts of the training part; the optimum that may refuse, and the one that may not."""

Replay: TypeAlias = "Callable[[Stream, EventArrays, int], tuple[Replayed, Replayed]]"
"""(stream, what its pool sees, slots) -> what generation and what prompts found."""


@dataclass(frozen=True)
class Row:
    """One policy at one number of slots, over all layers. Counts are distinct experts of events.

    `slots` is the mean over layers, `share_of_belady` the hits as a share of the optimum's that may refuse. `lookups_per_second` is of
    the replay alone, in CPU time: it runs on one core.
    """

    policy: str
    slots: float
    asked: str
    total_slots: int
    lookups: int
    hits: int
    hit_rate: float
    share_of_belady: float
    lookups_per_second: float


@dataclass(frozen=True)
class Result:
    """All rows, slots by slots. `lookups_per_second` is that of the fastest row of an online policy; 0 when there is none."""

    rows: tuple[Row, ...]

    @property
    def lookups_per_second(self) -> float:
        return max((row.lookups_per_second for row in self.rows if row.policy in (*ONLINE, "default")), default=0.0)


def simulate(trace: Trace, policies: Sequence[str], slots: Sequence[Slots], settings: Settings | None = None) -> Result:
    """Every policy at every number of slots. Raises SlotpoolError for unknown names and where nothing is left to judge."""
    chosen = settings or Settings()
    _check(policies, slots, chosen)
    cut = int(chosen.train * trace.n_ubatches)
    streams = streams_of(trace, chosen.is_global)
    learned = [stream.select(stream.ubatch < cut) for stream in streams]
    judged = [stream.select(stream.ubatch >= cut) for stream in streams]
    return Result(tuple(row for asked in slots for row in _rows(judged, learned, policies, asked, chosen)))


def replayed(trace: Trace, policy: str, slots: Slots, settings: Settings) -> Replayed:
    """What one policy alone finds at one number of slots, all of the trace judged; nothing where no event fits. Raises SlotpoolError for
    unknown names."""
    _check([policy], [slots], settings)
    streams = streams_of(trace, settings.is_global)
    sizes, seen = _sized(streams, slots, settings)
    runs = [_replay(policy, one, settings) for one in streams]
    return _replayed(zip(runs, streams, seen, sizes, strict=True), settings.phase)[0]


def _check(policies: Sequence[str], slots: Sequence[Slots], settings: Settings) -> None:
    for name in policies:
        if name not in POLICIES:
            raise unknown("policy", name, POLICIES, where="--policy")
    for kind, value, valid in (("store", settings.store, STORES), ("admission", settings.admission, ADMISSIONS)):
        if value not in valid:
            raise unknown(kind, value, valid)
    if settings.phase and settings.phase not in PHASES:
        raise unknown("phase", settings.phase, PHASES, where="--phase")
    if not policies or not slots:
        raise SlotpoolError("expected at least one policy and one number of slots, found none")
    if not 0.0 <= settings.train < 1.0:
        raise SlotpoolError(f"expected a share from 0 to less than 1, found {settings.train:g}", where="--train")
    if settings.profile and settings.is_global:
        raise SlotpoolError("expected a pool for each layer with a profile, found one over all layers", where="--global")
    if "static" in policies and not settings.train:
        raise SlotpoolError("policy static needs a part to learn from, found none", where="--train", do="Try --train 0.5.")


def _rows(judged: list[Stream], learned: list[Stream], policies: Sequence[str], asked: Slots, settings: Settings) -> list[Row]:
    sizes, seen = _sized(judged, asked, settings)
    n_layers = sum(len(stream.experts) for stream in judged)
    found: dict[str, tuple[Replayed, float]] = {}
    for name in dict.fromkeys(("belady", *policies)):
        runs = [_replay(name, one, settings) for one in learned]
        found[name] = _replayed(zip(runs, judged, seen, sizes, strict=True), settings.phase)
    optimum = found["belady"][0]
    if not optimum.lookups:
        where = f" in the {settings.phase}" if settings.phase else ""
        do = "More slots, --store disk or the other --phase count others."
        raise SlotpoolError(f"expected events that pools of {asked} slots serve{where}, found none", do=do)
    return [_row(name, asked, sum(sizes), n_layers, optimum, *found[name]) for name in dict.fromkeys(policies)]


def _sized(streams: list[Stream], asked: Slots, settings: Settings) -> tuple[list[int], list[EventArrays]]:
    """Slots of each stream's pool, and what that pool sees."""
    sizes = [sum(asked.of(n_expert) for n_expert in stream.experts) for stream in streams]
    usable = [_usable(settings, stream, n_slots) for stream, n_slots in zip(streams, sizes, strict=True)]
    return sizes, [stream.arrays(n_slots, settings.store) for stream, n_slots in zip(streams, usable, strict=True)]


def _replayed(runs: Iterable[tuple[Replay, Stream, EventArrays, int]], phase: str) -> tuple[Replayed, float]:
    """Counts of the phase over all streams, and the seconds that it took."""
    counts, seconds = Replayed(), 0.0
    for run, stream, events, n_slots in runs:
        began = time.thread_time()
        found = run(stream, events, n_slots)
        seconds += time.thread_time() - began
        counts = _added(counts, found, phase)
    return counts, seconds


def _row(name: str, asked: Slots, total: int, n_layers: int, optimum: Replayed, counts: Replayed, seconds: float) -> Row:
    return Row(
        policy=name,
        slots=int(total / n_layers) if total % n_layers == 0 else total / n_layers,
        asked=str(asked),
        total_slots=total,
        lookups=counts.lookups,
        hits=counts.hits,
        hit_rate=counts.hits / counts.lookups,
        share_of_belady=counts.hits / optimum.hits if optimum.hits else 1.0,
        lookups_per_second=counts.lookups / seconds if seconds > 0.0 else 0.0,
    )


def _added(counts: Replayed, found: tuple[Replayed, Replayed], phase: str) -> Replayed:
    of_phase = {"prompt": found[1:], "generation": found[:1], "": found}[phase]
    return sum(of_phase, counts)


def _replay(name: str, learned: Stream, settings: Settings) -> Replay:
    if name in ("belady", "belady-admit"):
        return partial(_optimum, name == "belady")
    if name == "static":
        return partial(_static, learned, settings.phase)
    return partial(_online, known.DEFAULT if name == "default" else name, settings)


def _online(policy: str, settings: Settings, stream: Stream, events: EventArrays, n_slots: int) -> tuple[Replayed, Replayed]:
    # decay is per ubatch; a pool over all layers has an event for each of them
    decay = settings.decay ** (1.0 / len(stream.experts))
    pool = native.Pool(stream.n_expert, n_slots, policy, decay)
    hottest, n_kept = _warm(settings, stream, n_slots)
    if hottest:
        pool.warm(hottest, n_kept=n_kept)
    return replay_over(pool, events, settings.link) if settings.link else replay(pool, events, settings.admission)


def _warm(settings: Settings, stream: Stream, n_slots: int) -> tuple[list[tuple[int, float]], int]:
    """What the pool begins with, the hottest first, and how many of these are never evicted: as the core has it from a plan."""
    found = settings.profile.by_place.get(stream.place) if settings.profile and stream.place else None
    if found is None:
        return [], 0
    hottest = [(expert, millionths * 1e-6) for expert, millionths in found.expected(stream.n_used)]
    return hottest, settings.pin.of(n_slots, len(hottest)) if settings.pin else 0


def _usable(settings: Settings, stream: Stream, n_slots: int) -> int:
    return usable_slots(n_slots, stream.n_expert, _warm(settings, stream, n_slots)[1])


def _static(learned: Stream, phase: str, stream: Stream, events: EventArrays, n_slots: int) -> tuple[Replayed, Replayed]:
    pool = native.Pool(stream.n_expert, n_slots, "lru")
    pool.event(learned.hottest(n_slots, phase))
    return replay(pool, events, "none")


def _optimum(may_refuse: bool, stream: Stream, events: EventArrays, n_slots: int) -> tuple[Replayed, Replayed]:
    return native.belady(events, stream.n_expert, n_slots, may_refuse=may_refuse)
