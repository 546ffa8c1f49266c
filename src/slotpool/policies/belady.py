"""The offline optimum: hits of a pool that knows all events beforehand, under the rules of the pool. Moves no bytes and names no slots.

As in `slotpool.policies.reference`, an event is one step: with the set S held when it begins, all its experts E are looked up
together, and its hits are |S & E|. What is held when the next one begins is a set S' of at most n_slots experts out of S | E:
bytes come from a slot or from a miss, from nowhere else.

**May refuse.** S' may be any such set: a miss need not be admitted. The best S' are the experts of S | E that are asked for
again the soonest (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966;
with the right to refuse, a miss is one more candidate to drop).

*Why it is optimal.* Let two pools differ in one expert: ours has x, theirs y, and x is asked for no later than y. While neither
is, ours mirrors theirs: if they drop y, ours drops x, and both are equal. If one event asks for both, each has a hit and after
it both can hold the same. If an event asks for x alone, ours is one hit ahead, and can hold what they hold after it except y.
The hit that y may bring them later only draws level, and then ours can hold y as well. So replacing y by x in S' never costs a
hit, and such exchanges turn every S' into the greedy one, event by event.

*Of what it is the bound.* An event of the pool evicts none of its own experts, which asks for more: S & E must be part of S'.
Belady may let go of a hit when its event is over. So no pool with these rules, whatever it knows, has more hits, and the best of
them may have a few less.

**May not refuse.** Every miss is admitted while a slot is free or a victim exists, in order of first appearance, and none of E
is evicted, exactly as in the pool; only the victims are chosen, those that are asked for again the latest. While no event asks
for more experts than there are slots, every S' contains E and the same exchange proves it the optimum of all policies that
always admit. Where an event asks for more, the first variant remains the bound. An event that passes (too large for the slots)
evicts nobody: its misses with the most rows take free slots, as in the pool. To the first variant it is an event like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slotpool.errors import SlotpoolError


def belady(events: Sequence[Sequence[int]], n_slots: int, *, may_refuse: bool = True, passing: Collection[int] = ()) -> list[int]:
    """Hits of each event, in distinct experts, of the optimal pool with `n_slots` slots that starts empty.

    `events` are the expert ids of each event, in (token, k) order; `passing` are the numbers of those that pass.
    Raises SlotpoolError for less than one slot.
    """
    if n_slots < 1:
        raise SlotpoolError(f"expected at least 1 slot, found {n_slots}")
    held: set[int] = set()
    hits = []
    for number, (ids, order) in enumerate(zip(events, _orders_of_use(events), strict=True)):
        hits.append(len(held.intersection(ids)))
        if may_refuse:
            held = _keep_soonest(held, ids, order, n_slots)
        elif number in passing:
            held = _keep_all(held, ids, n_slots)
        else:
            held = _keep_admitted(held, ids, order, n_slots)
    return hits


def _orders_of_use(events: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each event, all experts of the sequence in the order of their next use after it, the soonest first.

    Read backwards, an event only moves its own experts to the front. Of those that one event asks for, the lower comes first.
    """
    order = sorted({expert for ids in events for expert in ids})
    orders = []
    for ids in reversed(events):
        orders.append(order)
        order = sorted(set(ids)) + [expert for expert in order if expert not in ids]
    orders.reverse()
    return orders


def _keep_soonest(held: set[int], ids: Sequence[int], order: list[int], n_slots: int) -> set[int]:
    candidates = held.union(ids)
    return set([expert for expert in order if expert in candidates][:n_slots])


def _keep_admitted(held: set[int], ids: Sequence[int], order: list[int], n_slots: int) -> set[int]:
    hits = held.intersection(ids)
    misses = [expert for expert in dict.fromkeys(ids) if expert not in hits]
    others = [expert for expert in order if expert in held - hits]
    kept = [*hits, *misses, *others]
    return set(kept[:n_slots])


def _keep_all(held: set[int], ids: Sequence[int], n_slots: int) -> set[int]:
    misses = [expert for expert in dict.fromkeys(ids) if expert not in held]
    by_rows = sorted(misses, key=lambda expert: -list(ids).count(expert))
    return held | set(by_rows[: n_slots - len(held)])
