"""Which tensors hold experts, told by their names alone.

Does not look at shapes: biases, scales, norms, shared experts, LoRA parts and vision towers end or begin otherwise.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ROLES = ("gate", "up", "gate_up", "down", "gate_ch", "up_ch", "down_ch")
"""What an expert tensor does in its layer, in the order of use. `_ch` are the chunk experts of grovemoe, with ids of their own."""

# llama.cpp prints the layer with %d: a name with leading zeros or a prefix is not one of its own
_LAYER = r"blk\.(0|[1-9][0-9]{0,5})\."
_EXPERTS = re.compile(_LAYER + r"ffn_(?:(gate|up|down|gate_up)_exps|(gate|up|down)_chexps)\.weight")
_ONE_EXPERT = re.compile(_LAYER + r"ffn_(?:gate|up|down)\.[0-9]+\.weight")
_BLOCK = re.compile(_LAYER + r".*", re.DOTALL)


class Place(NamedTuple):
    """Where an expert tensor belongs."""

    layer: int
    role: str


def expert_place(name: str) -> Place | None:
    """Layer and role of an expert tensor; None for every other tensor."""
    match = _EXPERTS.fullmatch(name)
    if match is None:
        return None
    return Place(int(match[1]), match[2] or f"{match[3]}_ch")


def is_single_expert(name: str) -> bool:
    """Whether this is the layout of 2023, one tensor per expert, that current llama.cpp no longer loads."""
    return _ONE_EXPERT.fullmatch(name) is not None


def block_number(name: str) -> int | None:
    """The layer of any tensor of the language model; None for tensors outside the layers."""
    match = _BLOCK.fullmatch(name)
    return int(match[1]) if match else None
