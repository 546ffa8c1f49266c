"""Where the recorded routing of gpt-oss-20b is: the folder that SLOTPOOL_TRACES names, or `shared/traces` beside the checkout.

Reads nothing of it.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.cgroup import SkippedError

FIRST_JUDGED = 247
"""Example from which on nothing was chosen: constants of the policies were tuned on the examples before it."""
_BESIDE = Path(__file__).parents[2] / "shared/traces"


def recorded() -> Path:
    """The trace of gpt-oss-20b, [tokens, layers, experts used] as npz. SkippedError where there is none."""
    folder = Path(os.environ.get("SLOTPOOL_TRACES") or _BESIDE)
    path = folder / "gpt-oss-20b/gptoss20b_decode_trace.npz"
    if not path.exists():
        raise SkippedError(f"expected the recorded routing of gpt-oss-20b, found none (at {path}). Set SLOTPOOL_TRACES to its folder.")
    return path
