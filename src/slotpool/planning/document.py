"""A decision as the JSON document that other tools rely on (docs/design/surface.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from slotpool.plan import tensor_states
from slotpool.planning.decision import Decision
from slotpool.predict import Predicted, Terms


def document(decision: Decision) -> dict[str, Any]:
    """Field names stay; sizes are bytes, speeds tokens per second. What could not be predicted is null."""
    outlook = decision.outlook
    return {
        "verdict": outlook.verdict,
        "reason": outlook.reason,
        "devices": [_device(terms) for terms in decision.terms],
        "tensors": tensor_states(decision.made),
        "predicted": _predicted(outlook.predicted),
        "plain": _predicted(outlook.plain),
        "break_even_hit_rate": outlook.break_even_hit_rate,
        "ram_slots": list(decision.ram_slots),
        "warnings": [*decision.made.warnings, *decision.notes],
    }


def _device(terms: Terms) -> dict[str, Any]:
    return {name: value for name, value in asdict(terms).items() if name != "wanted"} | {"budget": terms.budget}


def _predicted(found: Predicted | None) -> dict[str, Any]:
    return asdict(found) if found else {"hit_rate": None, "generation_tps": None}
