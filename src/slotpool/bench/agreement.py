"""Whether arms chose the same tokens: to the last bit where they ran the same kernels, token by token where they did not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slotpool.bench.arms import BYPASS, PLAIN, Arm

REPACKED = "CPU_REPACK"
_ROUNDING = 2**15
"""Bytes by which sums of what the engine's log says of its buffers, MiB with two digits, may be off."""
Answers = Sequence[Mapping[str, Any]]


def repacked_bytes(answer: Mapping[str, Any]) -> int:
    """Bytes of weights that the engine repacked for the CPU's kernels."""
    return int(answer["buffers"].get(REPACKED, 0))


@dataclass(frozen=True)
class Kernels:
    """What computes an arm: `repacked` bytes of weights, where layers are and where the experts of generated tokens, `own` for what is like
    no other."""

    repacked: int = 0
    layers: int = 0
    placed: str = ""
    own: str = ""

    def same_as(self, other: Kernels) -> bool:
        """Whether the bits must be equal. What was repacked is known as far as the engine's log rounds it."""
        is_placed_alike = (self.layers, self.placed, self.own) == (other.layers, other.placed, other.own)
        return is_placed_alike and abs(self.repacked - other.repacked) <= _ROUNDING


def kernels(arm: Arm, answer: Mapping[str, Any]) -> Kernels:
    """Arms with the same ones must give equal bits: what was repacked, in slots too, and where experts of generated tokens were computed.

    A pool whose misses another device's kernels computed (`stats.exact` false) is like no other arm.
    """
    devices = tuple(arm.options.get("device") or ()) if arm.kind not in (PLAIN, BYPASS) else ()
    if arm.kind not in (PLAIN, BYPASS) and not answer["stats"]["exact"]:
        return Kernels(own=arm.name)
    repacked = repacked_bytes(answer) + answer["stats"]["repacked_bytes"]
    if devices and devices != ("CPU",):
        return Kernels(repacked, -1)
    return Kernels(repacked, arm.options.get("n_gpu_layers", 0), arm.on_host if arm.kind == PLAIN else "")


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
        "kernels": "same" if kernels(arm, answers[0]).same_as(kernels(other, others[0])) else "other",
        "tokens": sum(len(mine) for mine, _ in pairs),
        "different": len(different),
        "first_difference": different[0] if different else None,
        "logits_equal": all(mine["logits"] == theirs["logits"] for mine, theirs in zip(answers, others, strict=True)),
    }


def _tokens(answer: Mapping[str, Any]) -> list[int]:
    return [answer["first_token"], *answer["best_tokens"]]
