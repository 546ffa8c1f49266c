"""Eviction policies and the pool in plain Python: the specification that the core must equal, and the offline optimum.

Nothing here is fast or used while a model runs; that is `core/pool` and `core/policy`.
"""

from __future__ import annotations

from slotpool.errors import SlotpoolError, unknown
from slotpool.policies.belady import belady
from slotpool.policies.decay import Decay
from slotpool.policies.follow import Follow
from slotpool.policies.lru import Lru
from slotpool.policies.policy import NONE, Policy, PoolView
from slotpool.policies.reference import Lookup, ReferencePool

POLICIES = ("decay", "follow", "lru")
"""Names of the online policies."""
DEFAULT = "follow"
"""The best of them so far (docs/log.md)."""

__all__ = [
    "DEFAULT",
    "NONE",
    "POLICIES",
    "Decay",
    "Follow",
    "Lookup",
    "Lru",
    "Policy",
    "PoolView",
    "ReferencePool",
    "belady",
    "make_policy",
]


def make_policy(name: str, decay: float, n_expert: int, n_slots: int) -> Policy:
    """The policy `name` for a pool of `n_slots` slots and `n_expert` experts; `decay` is the factor per event, in (0, 1].

    Raises SlotpoolError for an unknown name, and for a decay out of range whatever the policy, as the core does.
    """
    if not 0.0 < decay <= 1.0:
        raise SlotpoolError(f"expected a decay above 0 and at most 1, found {decay}")
    if name == "lru":
        return Lru(n_slots)
    if name == "follow":
        return Follow(decay, n_expert, n_slots)
    if name == "decay":
        return Decay(decay, n_expert, n_slots)
    raise unknown("policy", name, POLICIES)
