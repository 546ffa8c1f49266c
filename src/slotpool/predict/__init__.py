"""What a pool would bring: hit rates from a trace or an assumption, seconds of a token, slots where they pay, a verdict.

Arithmetic alone: asks no engine and no device, and measures nothing.
"""

from slotpool.predict.cost import AUTO, COPY, CPU, FAULTING, FROM_DISK, Event, Rates, event_seconds, mean_seconds, n_copied
from slotpool.predict.hits import ASSUMED, Curve, Found, Replayer, assumed, flat, recorded
from slotpool.predict.link import Filled, Token, link_of, over_link
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
    "Filled",
    "Found",
    "Layer",
    "Outlook",
    "Predicted",
    "Rates",
    "Replayer",
    "Terms",
    "Tiers",
    "Token",
    "Want",
    "assumed",
    "budget_of",
    "event_seconds",
    "flat",
    "judge",
    "link_of",
    "mean_seconds",
    "n_copied",
    "over_link",
    "recorded",
    "share_out",
]
