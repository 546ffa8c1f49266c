"""From the answers of all rounds to the JSON document that other tools rely on (docs/design/bench.md). Only sums up and compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slotpool.bench.agreement import agreement, kernels, repacked_bytes
from slotpool.bench.arms import PLAIN, Arm
from slotpool.bench.rounds import Measured
from slotpool.bench.verdict import LEVEL, compare
from slotpool.records.samples import spread

SPEEDS = ("prompt_tps", "generation_tps", "ttft_ms")
Answers = Sequence[Mapping[str, Any]]


def document(measured: Measured) -> dict[str, Any]:
    """Field names stay; speeds are tokens per second. Ratios are of speeds, of `ttft_ms` too: above 1 is faster."""
    settings = measured.settings
    fields = [[pair for pair in _pairs(measured) if pair[0].depth == depth] for depth in settings.depths]
    arms = [_arm(arm, answers, field) for field in fields for arm, answers in field]
    return {
        "text": {"name": measured.text.name, "sha256": measured.text.sha256, "tokens": measured.n_tokens, "repeats": measured.repeats},
        "state": "warm" if settings.is_warm else "cold",
        "rounds": settings.rounds,
        "tokens": {"prompt": settings.n_prompt, "generation": settings.n_generate, "warm": settings.n_warm},
        "error_rate": LEVEL,
        "arms": arms,
        "ratios": [ratio for field in fields for ratio in _ratios(field)],
        "differences": [line for arm in arms for line in _differences(arm)],
    }


def _pairs(measured: Measured) -> Iterator[tuple[Arm, Answers]]:
    yield from zip(measured.arms, measured.answers, strict=True)


def _arm(arm: Arm, answers: Answers, field: Sequence[tuple[Arm, Answers]]) -> dict[str, Any]:
    last = answers[-1]
    measured = [one["generation"] for one in answers]
    n_tokens = len(last["best_tokens"])
    cached = [one["cached_share"] for one in answers]
    return {
        "name": arm.name,
        "kind": arm.kind,
        "depth": arm.depth,
        "slots": arm.slots,
        **{what: spread([one[what] for one in answers]) for what in SPEEDS},
        "hit_rate": spread([one["hits"] / one["lookups"] for one in measured]) if all(one["lookups"] for one in measured) else None,
        "bytes_per_token": spread([one["bytes_copied"] / n_tokens for one in measured]),
        "free_bytes": {name: spread([one["free_bytes"][name] for one in answers]) for name in last["free_bytes"]},
        "resident_bytes": spread([one["resident_bytes"] for one in answers]),
        "load_ms": spread([one["load_ms"] for one in answers]),
        "cached_share": spread(cached) if None not in cached else None,
        "repacked_bytes": repacked_bytes(last),
        "buffers": dict(last["buffers"]),
        "engine": dict(last["engine"]),
        "plan": last["plan"],
        "processes": [one["process"] for one in answers],
        "agreement": _agreement(arm, answers, field),
        "stats": last["stats"],
    }


def _agreement(arm: Arm, answers: Answers, field: Sequence[tuple[Arm, Answers]]) -> dict[str, Any] | None:
    """With the first arm of the same kernels, else with the first plain one; None for the first of all."""
    before = [pair for pair in field if pair[0] is not arm][: [one for one, _ in field].index(arm)]
    alike = [pair for pair in before if kernels(*_first(pair)).same_as(kernels(arm, answers[0]))]
    chosen = next(iter(alike or before), None)
    return agreement(arm, answers, *chosen) if chosen else None


def _first(pair: tuple[Arm, Answers]) -> tuple[Arm, Mapping[str, Any]]:
    return pair[0], pair[1][0]


def _differences(arm: Mapping[str, Any]) -> Iterator[str]:
    """What must never be: other tokens, or other bits, from the same kernels."""
    found = arm["agreement"]
    if found is None or found["kernels"] != "same" or (found["logits_equal"] and not found["different"]):
        return
    first = found["first_difference"]
    where = f"first in round {first['round'] + 1} at token {first['token']}" if first else "in their last bits only"
    yield f"{arm['name']} ran the same kernels as {found['with']}, and {found['different']} of {found['tokens']} tokens differ, {where}"


def _ratios(field: Sequence[tuple[Arm, Answers]]) -> Iterator[dict[str, Any]]:
    """Every arm with a pool against every plain one of its depth; other plain arms against the first."""
    plain = [pair for pair in field if pair[0].kind == PLAIN]
    for arm, answers in field:
        others = plain if arm.has_pool else plain[:1]
        for other, theirs in others:
            if other is not arm:
                yield from (_ratio(arm, answers, other, theirs, what) for what in SPEEDS)


def _ratio(arm: Arm, answers: Answers, other: Arm, theirs: Answers, what: str) -> dict[str, Any]:
    mine, against = ([one[what] for one in all_] for all_ in (answers, theirs))
    found = compare(against, mine) if what == "ttft_ms" else compare(mine, against)
    return {"arm": arm.name, "against": other.name, "what": what, "depth": arm.depth, **asdict(found)}
