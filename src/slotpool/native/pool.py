"""The core's slot table and policy alone, without bytes: for the simulator, benchmarks and property tests."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slotpool.errors import SlotpoolError
from slotpool.native.library import Functions, declared


class _Lookup(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int32) for name in ("expert", "slot", "evicted", "n_rows", "is_hit"))


# name, result, arguments
_FUNCTIONS: Functions = (
    ("slotpool_pool_new", ctypes.c_void_p, (ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_double)),
    ("slotpool_pool_free", None, (ctypes.c_void_p,)),
    (
        "slotpool_pool_event",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(_Lookup), ctypes.c_int),
    ),
    (
        "slotpool_pool_event_may_refuse",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(_Lookup), ctypes.c_int),
    ),
    (
        "slotpool_pool_pass",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(_Lookup), ctypes.c_int),
    ),
    (
        "slotpool_pool_look_up",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(_Lookup), ctypes.c_int),
    ),
    ("slotpool_pool_rank", ctypes.c_int, (ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_int)),
    (
        "slotpool_pool_admit",
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Lookup)),
    ),
    (
        "slotpool_pool_warm",
        ctypes.c_int,
        (
            *(ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_double), ctypes.c_size_t),
            *(ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Lookup), ctypes.c_int),
        ),
    ),
    ("slotpool_pool_find", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_publish", None, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_abandon", None, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_evict", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_pin", ctypes.c_int, (ctypes.c_void_p, ctypes.c_int)),
    ("slotpool_pool_unpin", None, (ctypes.c_void_p, ctypes.c_int)),
)
core = declared(_FUNCTIONS)


@dataclass(frozen=True)
class Lookup:
    """What an event found for one distinct expert: its slot (-1: none could be taken), whom it displaced (-1: nobody)."""

    expert: int
    slot: int
    evicted: int
    n_rows: int
    is_hit: bool


def _copied(one: _Lookup) -> Lookup:
    return Lookup(one.expert, one.slot, one.evicted, one.n_rows, bool(one.is_hit))


class Pool:
    """The core's slot table and policy alone, without bytes: for the simulator, benchmarks and property tests."""

    def __init__(self, n_expert: int, n_slots: int, policy: str, decay: float = 0.97) -> None:
        in_range = 1 <= n_slots <= n_expert < 2**31  # ctypes would cut a number to 32 bits
        self._pool = core().slotpool_pool_new(n_expert, n_slots, policy.encode(), decay) if in_range else None
        if not self._pool:
            raise SlotpoolError(
                f"expected policy lru, decay or follow, 1 to n_expert slots and a decay in (0, 1], "
                f'found "{policy}", {n_slots} slots of {n_expert}, {decay}'
            )
        self._n_expert = n_expert

    def warm(self, hottest: Sequence[tuple[int, float]], *, n_kept: int = 0, publish: bool = True) -> list[Lookup]:
        """Before the first event: fills slots with the hottest experts (expert, share of the events that will ask for it), hottest first.

        The first `n_kept` are never evicted. One Lookup per expert with a slot. ValueError for an expert out of range or there twice, a
        share outside [0, 1], and a pool that has seen an event.
        """
        n = len(hottest)
        out = (_Lookup * self._n_expert)()
        in_range = all(0 <= expert < self._n_expert for expert, _ in hottest) and n <= self._n_expert
        experts = (ctypes.c_int32 * n)(*(expert for expert, _ in hottest)) if in_range else None
        shares = (ctypes.c_double * n)(*(share for _, share in hottest))
        kept = max(0, min(n_kept, self._n_expert))
        n_found = core().slotpool_pool_warm(self._pool, experts, shares, n, kept, int(publish), out, len(out)) if in_range else -1
        if n_found < 0:
            raise ValueError("expected each expert once with a share from 0 to 1, and a pool that has seen no event")
        return [_copied(one) for one in out[:n_found]]

    def event(self, ids: Sequence[int], *, publish: bool = True, may_refuse: bool = False) -> list[Lookup]:
        """One event: `ids` in (token, k) order. With `publish` admitted slots are complete at once. ValueError on an id out of range.

        With `may_refuse` a policy that gains by it ranks the misses and may refuse each.
        """
        question = core().slotpool_pool_event_may_refuse if may_refuse else core().slotpool_pool_event
        return self._ask(question, ids, int(publish))

    def passing(self, ids: Sequence[int], *, publish: bool = True) -> list[Lookup]:
        """As `event`, for an event too large for the slots: it fills free ones and evicts nobody."""
        return self._ask(core().slotpool_pool_pass, ids, int(publish))

    def look_up(self, ids: Sequence[int]) -> list[Lookup]:
        """The first half of `event`: hits and misses; recency and policy are told, no slot is taken. ValueError as `event`."""
        return self._ask(core().slotpool_pool_look_up, ids)

    def rank(self) -> list[int]:
        """Experts of the last event that are misses without a slot, the most wanted first."""
        experts = (ctypes.c_int32 * self._n_expert)()
        return experts[: core().slotpool_pool_rank(self._pool, experts, self._n_expert)]

    def admit(self, expert: int, *, may_refuse: bool = False, publish: bool = True) -> Lookup | None:
        """A slot for a miss of the last event; None when the policy refused, no slot can be taken, or it is no such miss."""
        found = _Lookup()
        is_admitted = core().slotpool_pool_admit(self._pool, expert, int(may_refuse), int(publish), found)
        return _copied(found) if is_admitted else None

    def _ask(self, question: Callable[..., int], ids: Sequence[int], *publish: int) -> list[Lookup]:
        out = (_Lookup * self._n_expert)()
        try:
            rows = array("i", ids)  # ctypes would cut an id to 32 bits
            n_found = question(self._pool, rows.buffer_info()[0], len(ids), *publish, out, self._n_expert)
        except OverflowError:
            n_found = -1
        if n_found < 0:
            raise ValueError(f"expected expert ids from 0 to {self._n_expert - 1}, found one outside")
        return [_copied(one) for one in out[:n_found]]

    @property
    def n_expert(self) -> int:
        """Experts that the pool knows."""
        return self._n_expert

    @property
    def handle(self) -> int:
        """The core's own name of the pool, for the other modules of `native`; valid as long as this object lives."""
        return int(self._pool or 0)

    def find(self, expert: int) -> int:
        """Slot that holds the expert's bytes, -1 when none does."""
        return int(core().slotpool_pool_find(self._pool, expert))

    def publish(self, slot: int) -> None:
        """The slot's bytes are there."""
        core().slotpool_pool_publish(self._pool, slot)

    def abandon(self, slot: int) -> None:
        """The slot's bytes will not come: it is free again."""
        core().slotpool_pool_abandon(self._pool, slot)

    def evict(self, expert: int) -> bool:
        """Frees the expert's slot. False when it is not resident, pinned, kept or being filled."""
        return bool(core().slotpool_pool_evict(self._pool, expert))

    def pin(self, expert: int) -> bool:
        """Keeps a resident expert from being evicted. False when it is not resident."""
        return bool(core().slotpool_pool_pin(self._pool, expert))

    def unpin(self, expert: int) -> None:
        """Undoes pin()."""
        core().slotpool_pool_unpin(self._pool, expert)

    def __del__(self) -> None:
        if getattr(self, "_pool", None):
            core().slotpool_pool_free(self._pool)
