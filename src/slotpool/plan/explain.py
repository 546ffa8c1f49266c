"""A plan as data for a reader: every statement of its file, and a state and a reason for every expert tensor.

Does not print, and opens neither the model nor its files.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from slotpool.plan.facts import EXPLICIT, Group, Plan
from slotpool.plan.reader import PlanFile


def explained(found: PlanFile) -> dict[str, Any]:
    """The plan file as a document; sizes are bytes, null is `auto`."""
    made = found.plan
    return {
        "plan_version": 1,
        "policy": made.policy,
        "decay": made.decay,
        "misses": made.misses,
        "settled": made.is_settled,
        "prefill": made.prefill,
        "contexts": made.contexts,
        "poison": made.poison,
        "bypass": made.is_bypassed,
        "repack": made.is_repacked,
        "report": found.report,
        "heat_report": made.has_heat_report,
        "pin": asdict(made.pin) if made.pin else None,
        "devices": [{"name": one.name, "slots": one.slots, "budget": one.budget, "rail": one.rail} for one in made.devices],
        "memory": asdict(made.memory) if made.memory else None,
        "files": [{"path": one.path, "size": one.size, "mtime_ns": one.mtime_ns} for one in made.files],
        "groups": [_group(group) for group in made.groups],
        "tensors": tensor_states(made),
        "slot_bytes": made.slot_bytes,
    }


def tensor_states(made: Plan) -> list[dict[str, Any]]:
    """`name`, `device`, `slots`, `state` (pooled, off) and `reason` of every expert tensor of the plan."""
    pooled = [_tensor(tensor.name, group) for group in made.groups for tensor in group.tensors]
    return pooled + [{"name": off.tensor, "device": "", "slots": 0, "state": "off", "reason": off.reason} for off in made.off]


def _tensor(name: str, group: Group) -> dict[str, Any]:
    if not group.slots:
        why = "off: 0 slots asked for" if group.claim == EXPLICIT else "off: budget"
        return {"name": name, "device": group.device, "slots": 0, "state": "off", "reason": why}
    reason = f"pooled {group.slots}/{group.n_expert}"
    return {"name": name, "device": group.device, "slots": group.slots, "state": "pooled", "reason": reason}


def _group(group: Group) -> dict[str, Any]:
    return {
        "layer": group.layer,
        "pass": group.pass_,
        "device": group.device,
        "slots": group.slots,
        "n_expert": group.n_expert,
        "claim": group.claim,
        "roles": [tensor.role for tensor in group.tensors],
        "slab_bytes": group.slab_bytes,
        "slot_bytes": group.slots * group.slab_bytes,
        "warm": [list(one) for one in group.warm],
    }
