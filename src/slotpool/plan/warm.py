"""Puts a profile into a plan: what slots begin with, and how many of these are never evicted.

Reads no file, and never changes which tensor gets how many slots.
"""

from __future__ import annotations

from dataclasses import replace

from slotpool.errors import SlotpoolError
from slotpool.model import Model
from slotpool.plan.facts import Group, Plan
from slotpool.profile import Pin, PinShare, Profile, ProfiledGroup, check, pin_of


def with_profile(made: Plan, model: Model, profile: Profile | None, pin: PinShare = None, where: str = "--profile") -> Plan:
    """`made` with slots that begin with what `profile` found hot, and the hottest of them pinned as far as `pin` says.

    `where` names the profile in errors. Raises SlotpoolError for the profile of another model, a pin that is none, and a pin without a
    profile. A group that the profile lacks begins cold, which is a warning.
    """
    limits = pin_of(pin, model.n_expert_used)
    if profile is None:
        if limits:
            raise SlotpoolError("expected a profile that says who is pinned, found none", where="--pin", do="Add --profile FILE.")
        return made
    check(profile, model, where)
    known = profile.by_place
    groups = tuple(_warm(group, known, model.n_expert_used) for group in made.groups)
    return replace(made, groups=groups, pin=limits, warnings=made.warnings + _cold(groups) + _none_pinned(groups, limits))


def _warm(group: Group, known: dict[tuple[int, str], ProfiledGroup], n_used: int) -> Group:
    found = known.get((group.layer, group.pass_))
    return replace(group, warm=found.expected(n_used)) if found else group


def _cold(groups: tuple[Group, ...]) -> tuple[str, ...]:
    n_cold = sum(not group.warm for group in groups)
    return (f"the profile has nothing of {n_cold} of {len(groups)} layers: they begin cold",) if n_cold else ()


def _none_pinned(groups: tuple[Group, ...], pin: Pin | None) -> tuple[str, ...]:
    if pin is None or not groups or any(pin.of(group.slots, len(group.warm)) for group in groups):
        return ()
    return (f"nobody is pinned: {pin.spare} slots, which one token uses, stay for others, and the share of the rest is less than a slot",)
