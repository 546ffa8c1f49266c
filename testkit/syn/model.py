"""From a spec to the ordered list of tensors of its file: input side, blocks, output side. Knows nothing of bytes or files."""

from __future__ import annotations

from .archs import moe_layers
from .attention import ATTENTION
from .blocks import format_of
from .ffn import dense_ffn, experts_ffn
from .layout import Layout
from .router import Router, router_of
from .spec import Spec
from .tensors import Known, Tensor


def tensors_of(spec: Spec, router: Router | None = None) -> list[Tensor]:
    """Every tensor of the file, in file order; SynError when the spec cannot be written."""
    layout = Layout(spec, router or router_of(spec))
    _input_side(layout)
    for layer in range(spec.n_layer):
        layout.layer = layer
        layout.vector("attn_norm.weight", spec.n_embd)
        has_experts = layer in moe_layers(spec)
        if not (layout.arch.interleaved and has_experts):
            ATTENTION[layout.arch.recurrent if layer == 0 and layout.arch.recurrent else layout.arch.attention](layout)
        if has_experts:
            experts_ffn(layout)
        elif not layout.arch.interleaved:
            dense_ffn(layout)
        if spec.drafts and layer == spec.n_layer - 1:
            _drafting_head(layout)
    layout.layer = -1
    _output_side(layout)
    return layout.tensors


def _input_side(layout: Layout) -> None:
    spec = layout.spec
    fmt = format_of("F32" if layout.router.float_embedding else spec.type_of("token_embd"))
    layout.add("token_embd.weight", (spec.n_embd, spec.n_vocab), fmt, layout.router.embedding())
    if layout.arch.attention == "post_normed":
        layout.vector("rope_freqs.weight", spec.head_dim // 2)


def _drafting_head(layout: Layout) -> None:
    """What a layer that drafts reads beside the next token: the trunk's last state."""
    n_embd = layout.spec.n_embd
    layout.dense("nextn.eh_proj", 2 * n_embd, n_embd, writes_residual=True)
    layout.vector("nextn.enorm.weight", n_embd)
    layout.vector("nextn.hnorm.weight", n_embd)


def _output_side(layout: Layout) -> None:
    spec = layout.spec
    recipe = layout.router.output()
    fmt = format_of("F32" if isinstance(recipe, Known) else spec.type_of("output"))
    layout.vector("output_norm.weight", spec.n_embd)
    layout.add("output.weight", (spec.n_embd, spec.n_vocab), fmt, recipe)
