"""The feed-forward tensors of a block: router, experts, what hangs on them, shared and dense parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .archs import shared_count
from .blocks import format_of
from .layout import Layout
from .tensors import Noise, matrix

LARGE_BIAS = {"gate": 4.0, "up": 4.0, "down": 1.0}  # each several times the values it is added to


def experts_ffn(layout: Layout) -> None:
    """Everything after attention in a block with experts."""
    spec, arch = layout.spec, layout.arch
    if arch.ffn_norm:
        layout.vector(f"{arch.ffn_norm}.weight", spec.n_embd)
    if arch.parallel_dense:
        _parallel_dense(layout)
    _router(layout)
    _experts(layout, "exps", "", spec.n_expert)
    if arch.chunk_experts:
        _experts(layout, "chexps", "_ch", spec.n_expert // spec.experts_per_group)
    _biases_and_scales(layout)
    if shared_count(spec, arch):
        SHARED[arch.shared_kind](layout, spec.n_ff_exp * shared_count(spec, arch))


def dense_ffn(layout: Layout) -> None:
    """A leading layer without experts."""
    if layout.arch.ffn_norm:
        layout.vector(f"{layout.arch.ffn_norm}.weight", layout.spec.n_embd)
    _gated(layout, "", layout.spec.dense_ff)


def _router(layout: Layout) -> None:
    spec, arch, router = layout.spec, layout.arch, layout.router
    fmt = format_of(spec.type_of("router", layout.layer))
    layout.add("ffn_gate_inp.weight", (spec.n_embd, spec.n_expert), fmt, router.matrix(layout.layer))
    if arch.has_bias:
        layout.add("ffn_gate_inp.bias", (spec.n_expert,), format_of("F32"), router.bias(f"gate {layout.layer}"))
    if arch.probs_bias:
        layout.add("exp_probs_b.bias", (spec.n_expert,), format_of("F32"), router.bias(f"probs {layout.layer}"))


def _experts(layout: Layout, suffix: str, role_suffix: str, n_expert: int) -> None:
    """gate, up and down of one family of experts, fused where the spec says so."""
    spec = layout.spec
    wide = (spec.n_embd, spec.n_ff_exp)
    has_gate = spec.gate and layout.arch.gate != "never"
    if has_gate and spec.is_fused(layout.layer):
        _expert_tensor(layout, f"ffn_gate_up_{suffix}", "gate_up", ("gate", "up"), *wide, n_expert)
    else:
        for role in ("gate", "up") if has_gate else ("up",):
            _expert_tensor(layout, f"ffn_{role}_{suffix}", role + role_suffix, (role + role_suffix,), *wide, n_expert)
    down = "down" + role_suffix
    _expert_tensor(layout, f"ffn_down_{suffix}", down, (down,), *wide[::-1], n_expert)


def _expert_tensor(layout: Layout, name: str, role: str, parts: tuple[str, ...], n_in: int, n_out: int, n_expert: int) -> None:
    """One stacked tensor [n_in, n_out * parts, n_expert]: per expert the rows of its parts, gate first."""
    fmt = format_of(layout.spec.type_of(role, layout.layer))
    slabs = [tuple(run for part in parts for run in layout.expert_runs(part, e, n_in, n_out)) for e in range(n_expert)]
    if layout.spec.legacy:
        for e, slab in enumerate(slabs):
            layout.add(f"ffn_{role}.{e}.weight", (n_in, n_out), fmt, Noise(slab))
        return
    layout.add(f"{name}.weight", (n_in, n_out * len(parts), n_expert), fmt, Noise(tuple(run for slab in slabs for run in slab)))


def _biases_and_scales(layout: Layout) -> None:
    spec, arch = layout.spec, layout.arch
    widths = {"gate": spec.n_ff_exp, "up": spec.n_ff_exp, "down": spec.n_embd}
    if arch.has_bias:
        for role, width in widths.items():
            layout.expert_bias(role, width, 0.0 if spec.bias is False else LARGE_BIAS[role])
    if arch.scale_default if spec.scale is None else spec.scale:
        for role in arch.scales:
            # a fused tensor takes no scale, a missing gate has none
            if role == "down" or (not spec.is_fused(layout.layer) and (role == "up" or spec.gate)):
                layout.expert_scale(role)


def _parallel_dense(layout: Layout) -> None:
    """gemma4: a dense FFN beside the experts, norms after each and after both, and a router with an input scale of its own."""
    n_embd = layout.spec.n_embd
    for norm in ("ffn_norm", "post_ffw_norm", "post_ffw_norm_1", "post_ffw_norm_2"):
        layout.vector(f"{norm}.weight", n_embd)
    _gated(layout, "", layout.spec.dense_ff)
    # the engine divides the router's input by sqrt(n_embd): undone here
    layout.add("ffn_gate_inp.scale", (n_embd,), format_of("F32"), matrix(np.full((1, n_embd), n_embd**0.5, np.float32)))


def _gated(layout: Layout, suffix: str, width: int) -> None:
    layout.dense(f"ffn_gate{suffix}", layout.spec.n_embd, width)
    layout.dense(f"ffn_up{suffix}", layout.spec.n_embd, width)
    layout.dense(f"ffn_down{suffix}", width, layout.spec.n_embd, writes_residual=True)


def _shared_gated(layout: Layout, width: int) -> None:
    _gated(layout, "_shexp", width)


def _shared_weighed(layout: Layout, width: int) -> None:
    """A sigmoid of the input weighs the shared expert."""
    layout.vector("ffn_gate_inp_shexp.weight", layout.spec.n_embd, 0.01)
    _gated(layout, "_shexp", width)


def _shared_fused(layout: Layout, width: int) -> None:
    layout.dense("ffn_up_shexp", layout.spec.n_embd, 2 * width)
    layout.dense("ffn_down_shexp", width, layout.spec.n_embd, writes_residual=True)


def _shared_ungated(layout: Layout, width: int) -> None:
    layout.dense("ffn_up_shexp", layout.spec.n_embd, width)
    layout.dense("ffn_down_shexp", width, layout.spec.n_embd, writes_residual=True)


SHARED: dict[str, Callable[[Layout, int], None]] = {
    "gated": _shared_gated,
    "weighed": _shared_weighed,
    "fused": _shared_fused,
    "ungated": _shared_ungated,
}
