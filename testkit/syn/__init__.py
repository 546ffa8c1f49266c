"""SYN: writes tiny (and large) mixture-of-experts GGUF files for tests and benchmarks, in milliseconds.

It trains and quantises nothing: weights are random blocks, routing is random, rigged, or a recorded trace.
"""

from .archs import ARCHS, moe_layers
from .blocks import FORMATS
from .replay import replay
from .router import rigged_classes, rigged_ids
from .spec import Spec, SynError
from .tokenizer import token_of
from .write import write, write_shards

__all__ = [
    "ARCHS",
    "FORMATS",
    "Spec",
    "SynError",
    "moe_layers",
    "replay",
    "rigged_classes",
    "rigged_ids",
    "token_of",
    "write",
    "write_shards",
]
