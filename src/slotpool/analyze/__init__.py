"""Analyses routing traces: how skewed the traffic is, how large the working set, what pools of given sizes would have found in it.

`analyze(trace)` gives facts only; `document` is their JSON. Nothing here records, prints or draws.
"""

from slotpool.analyze.analysis import ALL, CURVE, WINDOWS, Analysis, LayerAnalysis, analyze
from slotpool.analyze.document import document

__all__ = ["ALL", "CURVE", "WINDOWS", "Analysis", "LayerAnalysis", "analyze", "document"]
