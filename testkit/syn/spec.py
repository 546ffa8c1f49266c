"""What a synthetic model is: one frozen Spec and the names in it.

It knows no architecture (archs.py does) and writes nothing (write.py does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Roles whose type can be chosen; a role that is not named takes the type of the role it points at.
EXPERT_ROLES = ("gate", "up", "down", "gate_ch", "up_ch", "down_ch")
FALLBACK = {"gate_up": "gate", "gate_ch": "gate", "up_ch": "up", "down_ch": "down"}
OTHER_ROLES = ("router", "token_embd", "output")
ROLES = (*EXPERT_ROLES, "gate_up", *OTHER_ROLES, "*")


class SynError(ValueError):
    """A model that cannot be written: one line with what was expected, found, and what to do."""


@dataclass(frozen=True)
class Spec:
    """One synthetic MoE model; equal specs give equal bytes.

    Sizes are counts of elements. `types` maps a role (ROLES, "*" = every expert role) to a ggml type name,
    `types_per_layer` overrides it for a layer, `dense_type` is the type of every other matrix.
    `fused` is True, False, or the set of layers whose gate and up lie in one tensor.
    None for `shared`, `bias` and `scale` means: as the architecture has it.
    """

    arch: str = "qwen3moe"
    n_layer: int = 2
    n_embd: int = 256
    n_ff_exp: int = 256
    n_expert: int = 16
    n_expert_used: int = 4
    n_vocab: int = 256
    n_head: int = 4
    n_head_kv: int = 0  # 0: n_head
    n_ctx: int = 512
    n_ff: int = 0  # width of dense FFNs, 0: 2 * n_ff_exp
    dense_lead: int = 0  # leading layers without experts
    drafts: bool = False  # the last layer is no part of the trunk: it only drafts (NextN/MTP)
    shared: int | None = None  # shared experts
    gate: bool = True  # False: up and down only
    fused: bool | frozenset[int] = False
    experts_per_group: int = 2  # grovemoe: experts that share one chunk expert
    types: Mapping[str, str] = field(default_factory=dict)
    types_per_layer: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    dense_type: str = "F32"
    bias: bool | None = None  # large distinct biases per expert
    scale: bool | None = None  # distinct scales from 0.1 to 10 per expert
    legacy: bool = False  # one tensor per expert, the layout of 2023 that no engine loads any more
    router: str = "random"  # or "rigged"
    seed: int = 1

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head

    @property
    def kv_heads(self) -> int:
        return self.n_head_kv or self.n_head

    @property
    def dense_ff(self) -> int:
        return self.n_ff or 2 * self.n_ff_exp

    def is_fused(self, layer: int) -> bool:
        return self.fused if isinstance(self.fused, bool) else layer in self.fused

    def type_of(self, role: str, layer: int = -1) -> str:
        """The ggml type name of `role` in `layer`: the layer's own word first, then the model's, then the default."""
        for table in (self.types_per_layer.get(layer, {}), self.types):
            found = _lookup(table, role)
            if found:
                return found
        return {"router": "F32", "token_embd": self.dense_type, "output": self.dense_type}.get(role, "Q8_0")


def _lookup(table: Mapping[str, str], role: str) -> str | None:
    found = table.get(role) or table.get(FALLBACK.get(role, role))
    return found if found or role in OTHER_ROLES else table.get("*")


def check_numbers(spec: Spec) -> None:
    """Refuse sizes that no architecture can have; SynError says which."""
    for name in ("n_layer", "n_embd", "n_ff_exp", "n_expert", "n_expert_used", "n_vocab", "n_head", "n_ctx", "experts_per_group"):
        if getattr(spec, name) < 1:
            raise SynError(f"expected {name} >= 1, got {getattr(spec, name)}")
    if spec.n_expert_used > spec.n_expert:
        raise SynError(f"expected n_expert_used <= n_expert ({spec.n_expert}), got {spec.n_expert_used}")
    if spec.n_embd % spec.n_head or spec.head_dim % 2 or spec.n_head % spec.kv_heads:
        raise SynError(f"n_embd {spec.n_embd}, n_head {spec.n_head}, n_head_kv {spec.kv_heads} give no even head size. Change n_head")
    if not 0 <= spec.dense_lead < spec.n_layer:
        raise SynError(f"expected dense_lead from 0 to n_layer - 1 ({spec.n_layer - 1}), got {spec.dense_lead}")


def check_roles(spec: Spec) -> None:
    """Refuse unknown roles in `types` and `types_per_layer`, and layers that do not exist."""
    for layer, table in {-1: spec.types, **spec.types_per_layer}.items():
        if layer >= spec.n_layer:
            raise SynError(f"types_per_layer names layer {layer}, the model has layers 0 to {spec.n_layer - 1}")
        for role in table:
            if role not in ROLES:
                raise SynError(f'unknown role "{role}" in types (valid: {", ".join(ROLES)})')
