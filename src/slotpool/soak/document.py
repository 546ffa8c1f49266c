"""The document of `slotpool soak --json`: verdicts first, then anchors, phases, samples and the pool's own counters.

Puts together; measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from slotpool.soak import pace, rules
from slotpool.soak.facts import PHASES, Counters, Observed, Sample

_MOST_SAMPLES = 1000
"""So many of a record are half a megabyte."""


def document(observed: Observed) -> dict[str, Any]:
    """All of it, as plain data. `ok` is what the exit code says."""
    exact = bool(observed.stats["exact"])
    verdicts = {
        "anchors": _anchor_verdict(observed),
        "lookups": {"verdict": "pooled" if observed.stats["lookups"] else "nothing was looked up", "lookups": observed.stats["lookups"]},
        "memory": _memory(observed.samples),
        "speed": _speed(observed.samples),
    }
    return {
        "ok": ok(verdicts, observed.failure),
        "exact": exact,
        "failure": observed.failure,
        "interrupted": observed.is_interrupted,
        "seconds": observed.seconds,
        "rounds": observed.n_rounds,
        "aborted": observed.n_aborted,
        "second_contexts": observed.n_contexts,
        "reused_tokens": observed.n_reused,
        "verdicts": verdicts,
        "anchors": [_anchor(observed, name) for name in observed.replays],
        "differences": [asdict(one) for one in observed.differences],
        "phases": [_phase(observed.samples, name) for name in PHASES],
        "samples": [_sample(one) for one in _kept(observed.samples)],
        "stats": dict(observed.stats),
    }


def _kept(samples: Sequence[Sample]) -> list[Sample]:
    """Of a very long session every so-many-th round, so that its record stays a line that can be read; verdicts know all of them."""
    step = 1 + len(samples) // _MOST_SAMPLES
    return [one for one in samples if one.round % step == 0]


def ok(verdicts: Mapping[str, Any], failure: str) -> bool:
    """Whether nothing is wrong. A change of speed is said and is not wrong: other work on the machine looks the same."""
    is_flat = all(one["verdict"] != "grows" for one in verdicts["memory"].values())
    return not failure and verdicts["anchors"]["verdict"] == "equal" and is_flat and verdicts["lookups"]["lookups"] > 0


def _anchor_verdict(observed: Observed) -> dict[str, Any]:
    replays = sum(observed.replays.values())
    verdict = "differ" if observed.differences else "equal" if replays else "none were asked"
    return {
        "verdict": verdict,
        "replays": replays,
        "differences": len(observed.differences),
        "compared_with_plain": len(observed.references),
    }


def _memory(samples: Sequence[Sample]) -> dict[str, Any]:
    """A verdict for the process's own memory, and one for every device."""
    kinds: dict[str, Callable[[Sample], float]] = {"process": lambda one: one.private_bytes}
    for name in sorted({name for one in samples for name in one.device_bytes}):
        kinds[name] = lambda one, name=name: one.device_bytes.get(name, 0)  # type: ignore[misc]
    return {name: asdict(rules.memory([min(map(of, group)) for group in _rounds(samples)])) for name, of in kinds.items()}


def _speed(samples: Sequence[Sample]) -> dict[str, Any]:
    by_round = list(map(_anchor_speed, _rounds(samples)))
    return asdict(pace.speed(by_round, rules.n_warm_up(len(by_round))))


def _rounds(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of every whole round."""
    groups: dict[int, list[Sample]] = {}
    for one in samples:
        groups.setdefault(one.round, []).append(one)
    return [group for group in groups.values() if len(group) == len(PHASES)]


def _anchor_speed(samples: Sequence[Sample]) -> float:
    """Tokens per second over a round's anchors: the same work in every round."""
    speeds = [one.anchor_tps for one in samples if one.anchor_tps]
    return len(speeds) / sum(1 / speed for speed in speeds) if speeds else 0.0


def _anchor(observed: Observed, name: str) -> dict[str, Any]:
    mine = [one for one in observed.differences if one.anchor == name]
    return {
        "name": name,
        "replays": observed.replays[name],
        "differences": len(mine),
        "equals_plain": observed.references.get(name),
        "first_difference": asdict(mine[0]) if mine else None,
    }


def _phase(samples: Sequence[Sample], name: str) -> dict[str, Any]:
    mine = [one for one in samples if one.phase == name]
    total = sum_of([one.counters for one in mine])
    return {
        "phase": name,
        "times": len(mine),
        "differences": sum(not one.is_same for one in mine),
        "prompt_tps": _middle([one.prompt_tps for one in mine]),
        "generation_tps": _middle([one.generation_tps for one in mine]),
        "anchor_tps": _middle([one.anchor_tps for one in mine]),
        "hit_rate": total.hit_rate,
        **vars(total),
        "rss_bytes": max((one.rss_bytes for one in mine), default=None),
        "private_bytes": max((one.private_bytes for one in mine), default=None),
    }


def sum_of(counters: Sequence[Counters]) -> Counters:
    """All of them together."""
    return Counters(**{name: sum(getattr(one, name) for one in counters) for name in vars(Counters())})


def _middle(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return median(known) if known else None


def _sample(one: Sample) -> dict[str, Any]:
    return asdict(one) | {"counters": vars(one.counters), "hit_rate": one.counters.hit_rate, "device_bytes": dict(one.device_bytes)}
