"""The oracle and what is compared with it: plain and pooled runs of one file, bit by bit, and the numbers a pool must show."""

from .check import assert_adds_up, bytes_to_weights, check_on_devices, check_pooled
from .compare import BitsDifferError, assert_same_bits
from .devices import ON_DEVICE, DeviceProcess, DeviceRun, plan_on, with_homes
from .engine import Bits, Context, EngineError, Model, loaded, running
from .expect import expected_counts, known_ubatches, rigged_ubatches, total, warmed
from .plain import Oracle
from .pooled import Pooled, plan_of, pooled
from .routing import Observer, Ubatch
from .script import ALL, LAST, NONE, Batch, Forget, Reserve, Setup, Steps, steps_of
from .splits import Split, last_graph

__all__ = [
    "ALL",
    "LAST",
    "NONE",
    "ON_DEVICE",
    "Batch",
    "Bits",
    "BitsDifferError",
    "Context",
    "DeviceProcess",
    "DeviceRun",
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
    "assert_adds_up",
    "assert_same_bits",
    "bytes_to_weights",
    "check_on_devices",
    "check_pooled",
    "expected_counts",
    "known_ubatches",
    "last_graph",
    "loaded",
    "plan_of",
    "plan_on",
    "pooled",
    "rigged_ubatches",
    "running",
    "steps_of",
    "total",
    "warmed",
    "with_homes",
]
