"""Whether a profile is one of this model: by its fingerprint, and where it has none by layers and numbers of experts."""

from __future__ import annotations

from slotpool.errors import SlotpoolError
from slotpool.model import Model
from slotpool.profile.facts import Profile
from slotpool.trace import PASSES
from slotpool.trace.fingerprint import fingerprint


def check(profile: Profile, model: Model, where: str = "--profile") -> None:
    """Raises SlotpoolError (exit code 2) for the profile of another model. Layers of the model that it lacks begin cold."""
    if profile.facts.fingerprint:
        _check_fingerprint(profile, model, where)
    experts = {(one.layer, PASSES[one.is_chunk]): one.n_expert for one in model.experts}
    for group in profile.groups:
        found = experts.get((group.layer, group.pass_))
        # what has no fingerprint may know no expert above the largest that was asked for
        if found is None or found < group.n_expert or (profile.facts.fingerprint and found != group.n_expert):
            has = f"{found} experts" if found else "no experts"
            text = f"expected a profile of this model, which has {has} in layer {group.layer} ({group.pass_}), found {group.n_expert} there"
            raise SlotpoolError(text, where=where, do="Record one with --save-profile.")


def _check_fingerprint(profile: Profile, model: Model, where: str) -> None:
    own = fingerprint(model)
    theirs = profile.facts
    if theirs.fingerprint != own:
        other = f"{theirs.architecture or 'another'}, {theirs.n_layer} layers, {theirs.n_expert} experts, {_short(theirs.fingerprint)}"
        mine = f"{model.architecture}, {model.n_layer} layers, {model.n_expert} experts, {_short(own)}"
        raise SlotpoolError(
            f"expected a profile of this model ({mine}), found one of another ({other})", where=where, do="Record one with --save-profile."
        )


def _short(text: str) -> str:
    return "".join(char if char in "0123456789abcdef" else "?" for char in text[:12])
