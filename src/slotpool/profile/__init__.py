"""A profile: which experts of each layer were asked for most, kept from one session for the next; and what else says the same.

Decides nothing about slots: `slotpool.plan` makes a warm set of it. `read` takes a profile, a trace, heat maps and an imatrix;
docs/design/profile.md has the file.
"""

from slotpool.profile.facts import Profile, ProfiledGroup, of_heat
from slotpool.profile.fit import check
from slotpool.profile.pin import Pin, PinShare, pin_of, usable_slots
from slotpool.profile.reader import from_bytes, is_profile, read_profile
from slotpool.profile.source import read
from slotpool.profile.writer import check_target, to_bytes, write

__all__ = [
    "Pin",
    "PinShare",
    "Profile",
    "ProfiledGroup",
    "check",
    "check_target",
    "from_bytes",
    "is_profile",
    "of_heat",
    "pin_of",
    "read",
    "read_profile",
    "to_bytes",
    "usable_slots",
    "write",
]
