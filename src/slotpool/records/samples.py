"""Samples as records have them: the median, the lowest, the highest, and every one of them. Judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any


def spread(samples: Sequence[float]) -> dict[str, Any]:
    """`median`, `low`, `high` and `samples`, all in the samples' unit. ValueError without samples."""
    if not samples:
        raise ValueError("expected samples, found none")
    return {"median": median(samples), "low": min(samples), "high": max(samples), "samples": list(samples)}
