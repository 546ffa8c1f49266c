"""What model a benchmark ran, in a few words, from the specification among its flags. Knows no benchmark."""

from __future__ import annotations

import re

from slotpool.report.fields import Field

_FACTS = (("n_layer", "layers"), ("n_expert", "experts"), ("n_expert_used", "used"))
_TYPES = re.compile(r"'types': \{([^}]*)\}|types=\{([^}]*)\}")


def workload(flags: Field) -> str:
    """Layers, experts and types of `model`, `spec` or `setup`; empty where none of them is there."""
    name = next((name for name in ("model", "spec", "setup") if name in flags), "")
    if not name:
        return ""
    text = str(flags[name].value)[:4000]
    found = [(re.search(rf"\b{fact}'?[=:] ?(\d+)", text), word) for fact, word in _FACTS]
    arch = re.search(r"\barch'?[=:] ?'([\w-]+)'", text)
    types = _TYPES.search(text)
    kinds = dict.fromkeys(re.findall(r": '(\w+)'", next(filter(None, types.groups()), ""))) if types else {}
    parts = [arch[1] if arch else "", *(f"{match[1]} {word}" for match, word in found if match), "/".join(kinds)]
    return ", ".join(part for part in parts if part)
