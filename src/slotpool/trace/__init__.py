"""Routing traces: which experts every token asked for, layer by layer; the file they are kept in, and the formats of others.

`open(path)` reads a trace, `load(path)` that or what other tools keep; `TraceWriter` writes one as it comes, `write` and `save` one
that is in memory. Nothing here records or judges.
"""

from slotpool.trace.exchange import SUFFIXES, load, save
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
from slotpool.trace.heat import Heat, heat_of
from slotpool.trace.reader import is_trace
from slotpool.trace.reader import open_trace as open
from slotpool.trace.writer import Event, TraceWriter, write

__all__ = [
    "GENERATION",
    "PASSES",
    "PHASES",
    "PROMPT",
    "SUFFIXES",
    "Event",
    "Events",
    "Facts",
    "Group",
    "Heat",
    "Segment",
    "Trace",
    "TraceWriter",
    "events_of",
    "heat_of",
    "is_trace",
    "load",
    "open",
    "save",
    "single_events",
    "write",
]
