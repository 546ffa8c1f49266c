"""Drift: how far a pool moves a model's logits from plain llama.cpp's, token by token, and what of it is the pool's own doing.

Plain and pooled runs are processes of their own that take turns. What counts as drift is decided in `verdict`; nothing is printed here.
"""

from slotpool.drift.document import document
from slotpool.drift.facts import DAMAGES, Report, Settings, Text
from slotpool.drift.run import measure
from slotpool.drift.verdict import EXPECTATIONS, Verdict, judge

__all__ = ["DAMAGES", "EXPECTATIONS", "Report", "Settings", "Text", "Verdict", "document", "judge", "measure"]
