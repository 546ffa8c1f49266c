"""A plan: which expert tensor gets how many slots on which device, where experts lie, and why the others get none.

Decides nothing about speed: it takes a number of slots, or bytes, and writes down what follows. `to_text` is the plan file
that the core reads (its format is stated in `core/plan/plan.h`), `read_plan` reads it back, `explained` says it to a person.
"""

from slotpool.plan.asked import PerLayer, PerRole
from slotpool.plan.bind import bind
from slotpool.plan.disk import repacked
from slotpool.plan.explain import explained, tensor_states
from slotpool.plan.facts import (
    DECAY,
    DYNAMIC,
    EXPLICIT,
    MISSES,
    PASSES,
    POLICIES,
    PREFILL,
    WHOLE,
    Group,
    Off,
    OnePerDevice,
    Plan,
    PlannedDevice,
    PlannedFile,
    PlannedMemory,
    RamBudget,
    Slots,
    staging_bytes,
)
from slotpool.plan.make import make
from slotpool.plan.reader import PlanFile, from_text, read_plan
from slotpool.plan.slots import all_off
from slotpool.plan.text import to_text
from slotpool.plan.warm import with_profile

__all__ = [
    "DECAY",
    "DYNAMIC",
    "EXPLICIT",
    "MISSES",
    "PASSES",
    "POLICIES",
    "PREFILL",
    "WHOLE",
    "Group",
    "Off",
    "OnePerDevice",
    "PerLayer",
    "PerRole",
    "Plan",
    "PlanFile",
    "PlannedDevice",
    "PlannedFile",
    "PlannedMemory",
    "RamBudget",
    "Slots",
    "all_off",
    "bind",
    "explained",
    "from_text",
    "make",
    "read_plan",
    "repacked",
    "staging_bytes",
    "tensor_states",
    "to_text",
    "with_profile",
]
