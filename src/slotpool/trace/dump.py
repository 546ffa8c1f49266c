"""A trace as text: its facts, then one line for every row, in the order in which it was computed. For people, diff and grep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np

from slotpool.errors import printable
from slotpool.trace.facts import PHASES, Group, Trace

COLUMNS = ("ubatch", "stream", "phase", "tokens", "layer", "pass", "row", "experts", "weights", "ranking")


def lines(trace: Trace) -> Iterator[str]:
    """The lines of the dump, without line ends. Facts begin with `#`; columns are separated by tabs. Safe for any terminal."""
    for name, value in asdict(trace.facts).items():
        yield f"# {name}: {printable(str(value))}"
    for group in trace.groups:
        rows = f"{group.n_events} events, {group.n_rows} rows"
        yield f"# layer {group.layer} {group.pass_}: {group.n_expert_used} of {group.n_expert} experts, {rows}"
    yield f"# complete: {'yes' if trace.is_complete else 'no, it was cut off'}, events dropped: {trace.n_dropped}"
    yield "\t".join(COLUMNS)
    names = {segment.first_ubatch: segment.name for segment in trace.segments}
    last = -1
    for ubatch, group, index in _in_order(trace):
        if ubatch != last and ubatch in names:
            yield f"# segment: {printable(names[ubatch])}"
        last = ubatch
        yield from _event(group, index)


def _in_order(trace: Trace) -> Iterator[tuple[int, Group, int]]:
    """Every event: by ubatch, then by layer and pass."""
    numbers = [np.full(group.n_events, number) for number, group in enumerate(trace.groups)]
    if not numbers:
        return
    group_of, index_of = np.concatenate(numbers), np.concatenate([np.arange(group.n_events) for group in trace.groups])
    ubatch = np.concatenate([group.events.ubatch for group in trace.groups])
    for place in np.lexsort((group_of, ubatch)):
        yield int(ubatch[place]), trace.groups[group_of[place]], int(index_of[place])


def _event(group: Group, index: int) -> Iterator[str]:
    events = group.events
    phase = PHASES[events.phase[index]]
    head = f"{events.ubatch[index]}\t{events.stream[index]}\t{phase}\t{events.n_tokens[index]}\t{group.layer}\t{group.pass_}"
    first = int(events.first_row[index])
    for row in range(first, int(events.first_row[index + 1])):
        weights = "" if group.weights is None else " ".join(f"{weight:.4g}" for weight in group.weights[row])
        ranking = "" if group.ranking is None else " ".join(map(str, group.ranking[row]))
        yield f"{head}\t{row - first}\t{' '.join(map(str, group.ids[row]))}\t{weights}\t{ranking}".rstrip("\t")
