"""The bench: plain llama.cpp and pools in turns, in processes of their own, each of which proves what it is (docs/design/bench.md).

Knows no command line and draws nothing: `cli.bench` asks, `report` shows.
"""

from slotpool.bench.arms import EXTRA_ARMS, Arm
from slotpool.bench.document import document
from slotpool.bench.rounds import Measured, measure, n_runs
from slotpool.bench.settings import Settings
from slotpool.bench.text import Text, read_text
from slotpool.bench.verdict import DEFAULT_ROUNDS, Ratio, compare

__all__ = [
    "DEFAULT_ROUNDS",
    "EXTRA_ARMS",
    "Arm",
    "Measured",
    "Ratio",
    "Settings",
    "Text",
    "compare",
    "document",
    "measure",
    "n_runs",
    "read_text",
]
