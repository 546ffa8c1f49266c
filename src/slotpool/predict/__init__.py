"""What a pool would bring: hit rates from a trace or an assumption, seconds of a token, slots where they pay, a verdict.

Arithmetic alone: asks no engine and no device, and measures nothing.
"""

from slotpool.predict.cost import AUTO, COPY, CPU, FAULTING, FROM_DISK, Event, Rates, admits_all, event_seconds, mean_seconds
from slotpool.predict.hits import ASSUMED, Curve, assumed, flat, recorded
from slotpool.predict.outlook import GAIN, Layer, Outlook, Predicted, Tiers, judge
from slotpool.predict.share import KNEE, Want, share_out
from slotpool.predict.terms import Terms, budget_of

__all__ = [
    "ASSUMED",
    "AUTO",
    "COPY",
    "CPU",
    "FAULTING",
    "FROM_DISK",
    "GAIN",
    "KNEE",
    "Curve",
    "Event",
    "Layer",
    "Outlook",
    "Predicted",
    "Rates",
    "Terms",
    "Tiers",
    "Want",
    "admits_all",
    "assumed",
    "budget_of",
    "event_seconds",
    "flat",
    "judge",
    "mean_seconds",
    "recorded",
    "share_out",
]
