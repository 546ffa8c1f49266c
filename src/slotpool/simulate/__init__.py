"""Replays a trace through pools of any size under any policy, event by event, on the core's own pool and policies.

`simulate` is all of it; nothing here runs a model, reads a clock to decide, or knows what a plan is.
"""

from slotpool.simulate.run import ONLINE, POLICIES, Result, Row, replayed, simulate
from slotpool.simulate.settings import ADMISSIONS, STORES, Settings, Slots

__all__ = ["ADMISSIONS", "ONLINE", "POLICIES", "STORES", "Result", "Row", "Settings", "Slots", "replayed", "simulate"]
