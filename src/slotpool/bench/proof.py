"""Proves that every arm is what its name says, from what its process answered; without proof there is no result. Pure.

A stale server that answered, a pool that was never used, two arms that were the same: each has been published as a figure by somebody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from slotpool.bench.arms import BYPASS, PLAIN, STATIC, Arm
from slotpool.errors import REFUSED, SlotpoolError

Answer = Mapping[str, Any]


def prove(arm: Arm, answer: Answer, process: int, digest: str) -> None:
    """SlotpoolError (exit code 1) unless the process that was started gave this answer, read this text, and ran this kind of arm."""
    if answer["process"] != process:
        _refuse(arm, f"the answer of process {process}", f"one of process {answer['process']}")
    if answer["digest"] != digest:
        _refuse(arm, "the round's own text to be read", "another one")
    if answer["kind"] != arm.kind:
        _refuse(arm, f"a worker for a {arm.kind} arm", f"one for a {answer['kind']} arm")
    _CHECKS.get(arm.kind, _check_pool)(arm, answer)


def prove_alike(arms: Sequence[Arm], answers: Sequence[Answer]) -> None:
    """SlotpoolError unless all answers of a round come from one engine and from processes of their own."""
    first = answers[0]["engine"]
    for arm, answer in zip(arms, answers, strict=True):
        if answer["engine"] != first:
            _refuse(arm, f"the engine of the other arms ({_shown(first)})", _shown(answer["engine"]))
    if len({answer["process"] for answer in answers}) < len(answers):
        _refuse(arms[-1], "a process of its own", "one that had run another arm")


def prove_same_plan(arm: Arm, before: Answer, now: Answer) -> None:
    """SlotpoolError when an arm with a given number of slots ran under another plan than in an earlier round."""
    if arm.slots not in ("auto", "all") and before["plan"] != now["plan"]:
        _refuse(arm, f"the plan of its first round ({before['plan'][:12]})", f"another one ({now['plan'][:12]})")


def _check_plain(arm: Arm, answer: Answer) -> None:
    stats = answer["stats"]
    if answer["is_core_mapped"] or answer["is_core_registered"]:
        _refuse(arm, "no slotpool core in its process", "one")
    if stats["lookups"] or stats["refused"] or stats["pooled_tensors"]:
        _refuse(arm, "0 pooled lookups", f"{stats['lookups']} and {stats['pooled_tensors']} pooled tensors")


def _check_pool(arm: Arm, answer: Answer) -> None:
    stats, measured = answer["stats"], answer["generation"]
    if not stats["pooled_tensors"]:
        _refuse(arm, "pooled tensors", f"none: {_reason(stats)}", "Name a number of --slots.")
    if not answer["is_core_registered"]:
        _refuse(arm, "the slotpool core in ggml's registry", "none")
    if not measured["lookups"] or not stats["lookups"]:
        _refuse(arm, "pooled lookups while it generated", f"{measured['lookups']} of {stats['lookups']}, {stats['refused']} refused")


def _check_bypass(arm: Arm, answer: Answer) -> None:
    stats, measured = answer["stats"], answer["generation"]
    if not stats["slot_bytes"] or not stats["lookups"]:
        _refuse(arm, "slots that were allocated, by a step that used them", f"{stats['slot_bytes']} bytes, {stats['lookups']} lookups")
    if measured["lookups"] or not measured["refused"]:
        _refuse(arm, "every generated token on the stock path", f"{measured['lookups']} lookups, {measured['refused']} refused")


def _check_static(arm: Arm, answer: Answer) -> None:
    _check_pool(arm, answer)
    if answer["generation"]["admitted"]:
        found = f"{answer['generation']['admitted']} experts admitted"
        _refuse(arm, "slots that do not change while it generated", found, "Fill them first: a larger --warm.")


_CHECKS = {PLAIN: _check_plain, BYPASS: _check_bypass, STATIC: _check_static}


def _reason(stats: Mapping[str, Any]) -> str:
    return next((tensor["reason"] for tensor in stats["tensors"] if tensor["reason"]), "the model has no expert tensors")


def _shown(engine: Mapping[str, Any]) -> str:
    return ", ".join(str(value) for value in engine.values())[:200]


def _refuse(arm: Arm, expected: str, found: str, do: str = "") -> NoReturn:
    raise SlotpoolError(f'no result: expected {expected}, found {found} (arm "{arm.name}")', do=do, exit_code=REFUSED)
