"""Whether arms chose the same tokens: to the last bit where they ran the same kernels, token by token where they did not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slotpool.bench.arms import BYPASS, PLAIN, Arm

REPACKED = "CPU_REPACK"
Answers = Sequence[Mapping[str, Any]]


def repacked_bytes(answer: Mapping[str, Any]) -> int:
    """Bytes of weights that the engine repacked for the CPU's kernels."""
    return int(answer["buffers"].get(REPACKED, 0))


def kernels(arm: Arm, answer: Mapping[str, Any]) -> tuple[Any, ...]:
    """Arms with equal ones must give equal bits: what was repacked, and where the experts of generated tokens were computed.

    A pool whose misses another device's kernels computed (`stats.exact` false) is like no other arm.
    """
    devices = tuple(arm.options.get("device") or ()) if arm.kind not in (PLAIN, BYPASS) else ()
    if arm.kind not in (PLAIN, BYPASS) and not answer["stats"]["exact"]:
        return (arm.name,)
    layers = arm.options.get("n_gpu_layers", 0)
    placed = arm.on_host if arm.kind == PLAIN else ""
    if devices and devices != ("CPU",):
        return (repacked_bytes(answer), -1, "")
    return (repacked_bytes(answer), layers, placed)


def agreement(arm: Arm, answers: Answers, other: Arm, others: Answers) -> dict[str, Any]:
    """How `arm` agrees with another over all rounds: tokens compared, different ones, the first of these, whether logits are equal."""
    pairs = [(_tokens(mine), _tokens(theirs)) for mine, theirs in zip(answers, others, strict=True)]
    different = [
        {"round": number, "token": place}
        for number, (mine, theirs) in enumerate(pairs)
        for place, (one, two) in enumerate(zip(mine, theirs, strict=True))
        if one != two
    ]
    return {
        "with": other.name,
        "kernels": "same" if kernels(arm, answers[0]) == kernels(other, others[0]) else "other",
        "tokens": sum(len(mine) for mine, _ in pairs),
        "different": len(different),
        "first_difference": different[0] if different else None,
        "logits_equal": all(mine["logits"] == theirs["logits"] for mine, theirs in zip(answers, others, strict=True)),
    }


def _tokens(answer: Mapping[str, Any]) -> list[int]:
    return [answer["first_token"], *answer["best_tokens"]]
