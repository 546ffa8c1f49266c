"""Routing traces: which experts every token asked for, layer by layer; the file they are kept in, and the formats of others.

`open(path)` reads a trace, `TraceWriter` writes one as it comes, `write` one that is in memory. Nothing here records or judges.
"""

from slotpool.trace.facts import (
    GENERATION,
    PASSES,
    PHASES,
    PROMPT,
    Events,
    Facts,
    Group,
    Segment,
    Trace,
    events_of,
    single_events,
)
from slotpool.trace.reader import is_trace
from slotpool.trace.reader import open_trace as open
from slotpool.trace.writer import Event, TraceWriter, write

__all__ = [
    "GENERATION",
    "PASSES",
    "PHASES",
    "PROMPT",
    "Event",
    "Events",
    "Facts",
    "Group",
    "Segment",
    "Trace",
    "TraceWriter",
    "events_of",
    "is_trace",
    "open",
    "single_events",
    "write",
]
