"""Heat: how often each expert was asked for, layer by layer, without the order of tokens. What other tools keep instead of a trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotpool.trace.facts import Facts, Trace


@dataclass(frozen=True)
class Heat:
    """Counts of rows per expert, int64 [n_expert], of each (layer, pass), in the order of layer and pass."""

    facts: Facts
    counts: dict[tuple[int, str], NDArray[np.int64]]


def heat_of(trace: Trace) -> Heat:
    """The counts of all rows of a trace, prompt and generation together."""
    counts = {(group.layer, group.pass_): np.bincount(group.ids.ravel(), minlength=group.n_expert) for group in trace.groups}
    return Heat(trace.facts, {place: found.astype(np.int64) for place, found in counts.items()})
