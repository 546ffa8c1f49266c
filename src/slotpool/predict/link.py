"""What the link to a device brings beside what events wait for, the hit rate that follows from it, and what others wait for it. The source
of the formulas is docs/design/planning.md.

A link that brings fewer experts than a policy wants is the policy that counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from slotpool.native import Link
from slotpool.predict.cost import AUTO, CPU, Event, Rates, chance, mean_seconds, n_copied, turn_seconds
from slotpool.predict.hits import Replayer

PIECE_SECONDS, LEAST_PIECE = 100e-6, 1 << 10
"""A copy for later is made in pieces of so many seconds, and at least so many bytes (`core/transfer/uploader.cpp`)."""
TRANSFERS, MORE_OF_CPU, OF_TOKEN = 2, 2, 7
"""Small transfers: ids and slot ids of an event, two more where the CPU has a part in it, and what llama.cpp brings and fetches a token."""


@dataclass(frozen=True)
class Token:
    """One token beside its experts: its `seconds`, of which `link_seconds` hold the link, and the `n_layers` that share that link."""

    seconds: float
    link_seconds: float = 0.0
    n_layers: int = 1


@dataclass(frozen=True)
class Filled:
    """What the slots of a layer find, and the seconds that an event waits behind copies for later."""

    hit_rate: float
    waits: float = 0.0


def over_link(found: Replayer, event: Event, rates: Rates, way: str, token: Token) -> Callable[[int], Filled]:
    """What so many slots of a layer are worth where the CPU can serve misses (CPU, AUTO); KeyError for other ways.

    How much time a link has follows from the hit rate and the other way round: begun with what the pool would find over a link that brings
    everything.
    """
    everything = link_of(event, rates, way)

    @cache
    def filled(slots: int) -> Filled:
        unbound = found(slots, everything)
        use = Use.of(event, rates, way, unbound.hit_rate, token)
        reached = found(slots, use.link) if use.link.experts_per_event < event.n_used else unbound
        return Filled(reached.hit_rate, use.waits(reached.later))

    return filled


def link_of(event: Event, rates: Rates, way: str, hit_rate: float = 1.0, token: Token | None = None) -> Link:
    """What the link brings for a layer of such a token; without one whatever is wanted, at once."""
    use = Use.of(event, rates, way, hit_rate, token or Token(0.0))
    return use.link if token else use.everything


def _copied(event: Event, rates: Rates, way: str) -> tuple[int, ...]:
    if way not in (CPU, AUTO):
        raise KeyError(way)
    return tuple(n_copied(event, m, rates) if way == AUTO else 0 for m in range(event.n_used + 1))


@dataclass(frozen=True)
class Use:
    """Who holds the link. An event takes `event_seconds`, with its part of the token beside it, and waits for `waited_for` experts;
    `cpu_share` of the events have a part for the CPU, `free_share` is that of the time in which nobody waits for the link."""

    event: Event
    rates: Rates
    copied: tuple[int, ...]
    event_seconds: float
    waited_for: float
    cpu_share: float
    free_share: float
    n_layers: int

    @classmethod
    def of(cls, event: Event, rates: Rates, way: str, hit_rate: float, token: Token) -> Use:
        """Of a token all of whose layers hit so often."""
        k, copied = event.n_used, _copied(event, rates, way)
        parts = [(chance(k, m, 1.0 - hit_rate), m - copied[m]) for m in range(k + 1)]
        own = token.seconds / token.n_layers + mean_seconds(event, hit_rate, rates, way)
        waited_for = sum(share * (m - left) for m, (share, left) in enumerate(parts))
        turns = sum(share * turn_seconds(event, left, rates) for share, left in parts if left)
        held = token.link_seconds / token.n_layers + waited_for * event.slab_bytes / rates.link + turns
        cpu_share = sum(share for share, left in parts if left)
        return cls(event, rates, copied, own, waited_for, cpu_share, max(0.0, 1.0 - held / own), token.n_layers)

    @property
    def copy_seconds(self) -> float:
        return self.event.slab_bytes / self.rates.link

    @property
    def link(self) -> Link:
        """One copy after the other, in the time that nobody waits for the link."""
        if not self.copy_seconds:
            return self.everything
        if not self.free_share:
            return Link(0.0, 0.0, 0, self.copied)
        copy = self.copy_seconds / self.free_share
        on_the_way = int(copy / (self.event_seconds * self.n_layers))
        return Link(self.event_seconds / copy, self.rates.link / self.rates.cpu, on_the_way, self.copied)

    @property
    def everything(self) -> Link:
        """Whatever is wanted, at once."""
        return Link(float(self.event.n_used), float(self.event.n_used), 0, self.copied)

    def waits(self, later: float) -> float:
        """Seconds of an event for which so many experts come for later: a transfer finds a piece of such a copy on the link as often as one
        is there, and half of it is left; of llama.cpp's, which follow each other, each lets one piece pass."""
        busy = min(self.free_share, later * self.copy_seconds / self.event_seconds)
        piece = min(self.copy_seconds, max(PIECE_SECONDS, LEAST_PIECE / self.rates.link))
        n_halves = TRANSFERS + MORE_OF_CPU * self.cpu_share
        return busy * piece * (n_halves / 2 + OF_TOKEN / self.n_layers)
