"""What a GGUF model holds: its expert tensors, their slabs and places in the files, and what is damaged.

Reads headers only, never weights, and trusts no number of a file that it has not checked.
"""

from slotpool.model.assemble import read
from slotpool.model.experts import ROLES
from slotpool.model.facts import ExpertTensor, GgufFile, Model, Tensor, Value
from slotpool.model.tensor_types import TENSOR_TYPES, TensorType
from slotpool.model.walk import read_gguf

__all__ = ["ROLES", "TENSOR_TYPES", "ExpertTensor", "GgufFile", "Model", "Tensor", "TensorType", "Value", "read", "read_gguf"]
