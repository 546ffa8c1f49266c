"""What the link to a device brings beside what events wait for, and the hit rate that follows from it. The source of the formulas is
docs/design/planning.md.

A link that brings fewer experts than a policy wants is the policy that counts.
"""

from __future__ import annotations

from slotpool.native import Link
from slotpool.predict.cost import AUTO, CPU, Event, Rates, chance, mean_seconds, n_copied
from slotpool.predict.hits import Curve, Replayer


def over_link(found: Replayer, event: Event, rates: Rates, way: str, other_seconds: float, n_layers: int) -> Curve:
    """The hit rate against slots of a layer that shares a link with all `n_layers` of them, where the CPU can serve misses (CPU, AUTO).

    How much time a link has follows from the hit rate and the other way round: begun with what the pool would find over a link that brings
    everything.
    """

    def rate(slots: int) -> float:
        unbound = found(slots, link_of(event, rates, way))
        token_seconds = other_seconds + n_layers * mean_seconds(event, unbound, rates, way)
        link = link_of(event, rates, way, unbound, token_seconds, n_layers)
        return unbound if link.experts_per_event >= event.n_used else found(slots, link)

    return rate


def link_of(event: Event, rates: Rates, way: str, hit_rate: float = 1.0, token_seconds: float = float("inf"), n_layers: int = 1) -> Link:
    """What the link brings for a layer in a token of `token_seconds`, in which `n_layers` have as many misses."""
    if way not in (CPU, AUTO):
        raise KeyError(way)
    k, copy_seconds = event.n_used, event.slab_bytes / rates.link
    copied = tuple(n_copied(event, m, rates) if way == AUTO else 0 for m in range(k + 1))
    waited_for = sum(chance(k, m, 1.0 - hit_rate) * copied[m] for m in range(k + 1))
    if not copy_seconds or token_seconds == float("inf"):
        return Link(float(k), float(k), 0, copied)
    free = max(0.0, token_seconds / n_layers / copy_seconds - waited_for)
    return Link(free, rates.link / rates.cpu, int(copy_seconds / token_seconds), copied)
