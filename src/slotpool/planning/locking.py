"""Memory that is to be locked against the limit of this process: the engine locks what it can and goes on without a word.

Locks nothing. Slots are never locked, and copies to devices need no locked memory.
"""

from __future__ import annotations

from slotpool import machine
from slotpool.model import Model
from slotpool.plan import Plan
from slotpool.sizes import format_bytes


def lock_notes(model: Model, made: Plan) -> tuple[str, ...]:
    """A line where weights in host memory are more than this process may lock. Experts that stay on disk are not in memory."""
    limit = machine.lock_limit()
    n_bytes = model.other_bytes + (0 if made.files else model.expert_bytes)
    if limit is None or n_bytes <= limit:
        return ()
    what = f"{format_bytes(n_bytes)} of weights may be locked, the limit of this process is {format_bytes(limit)}"
    return (f"{what} (ulimit -l): the engine locks less than was asked for",)
