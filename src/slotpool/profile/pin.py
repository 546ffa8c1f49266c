"""How many of a profile's hottest experts are never evicted: the limits, and what they come to for a number of slots.

The twin of `Plan::pinned_slots` and `Plan::usable_slots` in `core/plan`. Evicts nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from slotpool.errors import SlotpoolError, quoted
from slotpool.profile.facts import MILLION

PinShare: TypeAlias = int | str | None
"""A number of slots, or a share of a tensor's slots (`25%`). None: nobody is pinned."""
_MOST_SLOTS = 1 << 16


@dataclass(frozen=True)
class Pin:
    """At most so many millionths of a group's slots are pinned, and at most `slots`; `spare` slots stay for others, whatever was asked for.

    `spare` is what one token uses: a token then always finds slots for all its experts.
    """

    millionths: int
    slots: int
    spare: int

    def of(self, n_slots: int, n_known: int) -> int:
        """Of `n_slots` slots, how many hold experts that are never evicted, when the profile knows `n_known`."""
        return max(0, min(n_slots * self.millionths // MILLION, self.slots, n_slots - self.spare, n_known))


def usable_slots(n_slots: int, n_expert: int, n_pinned: int) -> int:
    """What an event may ask for at most so that every expert of it can have a slot, whoever is pinned."""
    return n_slots if n_slots >= n_expert else n_slots - n_pinned


def pin_of(pin: PinShare, n_used: int) -> Pin | None:
    """The limits that `pin` stands for, where a token uses `n_used` experts. SlotpoolError for what is no pin."""
    if pin is None:
        return None
    text = str(pin)
    if text.endswith("%"):
        share = _share(text.removesuffix("%"))
        if share is not None:
            return Pin(round(share * MILLION / 100), _MOST_SLOTS, max(1, n_used))
    elif text.isascii() and text.isdigit() and len(text) < 19:
        return Pin(MILLION, min(int(text), _MOST_SLOTS), max(1, n_used))
    raise SlotpoolError(f'expected a share of the slots (25%) or a number of slots, found "{quoted(text)}"', where="--pin")


def _share(digits: str) -> float | None:
    try:
        share = float(digits)
    except ValueError:
        return None
    return share if 0.0 <= share <= 100.0 else None
