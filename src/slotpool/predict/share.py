"""Slots of each layer from one budget, by what a slot saves for its bytes; where nothing is known of the layers, evenly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_STEPS = 16
KNEE = 0.002
"""A step of slots that saves less than this share of its layer's time is not worth its bytes: slots end at the knee."""


@dataclass(frozen=True)
class Want:
    """A layer that wants slots, `least` (what a token uses) to `most`, of `slot_bytes` each; `seconds(slots)` of an event then."""

    least: int
    most: int
    slot_bytes: int
    seconds: Callable[[int], float]


def share_out(wants: Sequence[Want], n_bytes: int, *, evenly: bool) -> list[int]:
    """Slots of each layer out of `n_bytes`. A layer that cannot have its least has none."""
    return _evenly(wants, n_bytes) if evenly else _by_value(wants, n_bytes)


def _evenly(wants: Sequence[Want], n_bytes: int) -> list[int]:
    """The same share of what each wants at most; the largest share whose slots fit."""
    whole = sum(want.most * want.slot_bytes for want in wants)
    if whole <= n_bytes:
        return [want.most for want in wants]
    # slots are rounded down, so a larger share than the bytes' own may fit: the largest is found by halving
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _used(wants, middle) <= n_bytes else (low, middle)
    return [slots if slots >= want.least else 0 for want, slots in zip(wants, _scaled(wants, low), strict=True)]


def _scaled(wants: Sequence[Want], share: float) -> list[int]:
    return [int(want.most * share) for want in wants]


def _used(wants: Sequence[Want], share: float) -> int:
    return sum(slots * want.slot_bytes for slots, want in zip(_scaled(wants, share), wants, strict=True))


@dataclass(frozen=True)
class _Step:
    layer: int
    slots: int
    n_bytes: int
    value: float  # seconds saved for a byte
    share: float  # of the layer's time without slots


def _by_value(wants: Sequence[Want], n_bytes: int) -> list[int]:
    """Always the step that saves the most for its bytes, of those that fit and are worth it."""
    slots = [0] * len(wants)
    steps = [_next(layer, want, 0, n_bytes) for layer, want in enumerate(wants)]
    while True:
        for layer, step in enumerate(steps):  # the best step may have become too large: a smaller one takes its place
            if step and step.n_bytes > n_bytes:
                steps[layer] = _next(layer, wants[layer], slots[layer], n_bytes)
        fitting = [step for step in steps if step and step.share >= KNEE]
        if not fitting:
            return slots
        best = max(fitting, key=lambda step: step.value)
        slots[best.layer] = best.slots
        n_bytes -= best.n_bytes
        steps[best.layer] = _next(best.layer, wants[best.layer], best.slots, n_bytes)


def _next(layer: int, want: Want, slots: int, n_bytes: int) -> _Step | None:
    """The step from `slots` that saves the most for its bytes of those within `n_bytes`, however far it goes: a curve may be flat first and
    steep later."""
    width = max(1, want.most // _STEPS)
    most = min(want.most, slots + n_bytes // want.slot_bytes)
    ends = {*range(max(want.least, slots + 1), most + 1, width), most}
    now, nothing = want.seconds(slots), want.seconds(0)
    steps = [
        _Step(
            layer, end, (end - slots) * want.slot_bytes, saved / ((end - slots) * want.slot_bytes), saved / nothing * width / (end - slots)
        )
        for end in sorted(ends)
        if end > slots and end >= want.least and (saved := now - want.seconds(end)) > 0
    ]
    return max(steps, key=lambda step: step.value, default=None)
