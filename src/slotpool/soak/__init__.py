"""Soak: a long session in one pooled process, with requests whose answers must never change (docs/design/soak.md).

Says what it saw and judges it by stated rules; it shows nothing.
"""

from slotpool.soak.document import document, ok
from slotpool.soak.facts import PHASES, Observed, Request, Sample, Settings
from slotpool.soak.reference import plain_replies
from slotpool.soak.session import Limit, run

__all__ = ["PHASES", "Limit", "Observed", "Request", "Sample", "Settings", "document", "ok", "plain_replies", "run"]
