"""The oracle and what is compared with it: plain and pooled runs of one file, bit by bit, and the numbers a pool must show."""

from .check import check_pooled
from .compare import BitsDifferError, assert_same_bits
from .engine import Bits, Context, EngineError, Model, loaded, running
from .expect import expected_counts, known_ubatches, rigged_ubatches, total
from .plain import Oracle
from .pooled import Pooled, plan_of, pooled
from .routing import Observer, Ubatch
from .script import ALL, LAST, NONE, Batch, Forget, Reserve, Setup, Steps, steps_of
from .splits import Split, last_graph

__all__ = [
    "ALL",
    "LAST",
    "NONE",
    "Batch",
    "Bits",
    "BitsDifferError",
    "Context",
    "EngineError",
    "Forget",
    "Model",
    "Observer",
    "Oracle",
    "Pooled",
    "Reserve",
    "Setup",
    "Split",
    "Steps",
    "Ubatch",
    "assert_same_bits",
    "check_pooled",
    "expected_counts",
    "known_ubatches",
    "last_graph",
    "loaded",
    "plan_of",
    "pooled",
    "rigged_ubatches",
    "running",
    "steps_of",
    "total",
]
