"""The attention tensors of a block, or its recurrent ones, one function per kind that archs.py names.

Each keeps what it reads at size 1, and leaves the router's quiet dimensions of the residual stream alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .archs import MLA_NOPE, MLA_RANK, MLA_ROPE, MLA_VALUE, SSM_CONV, SSM_HEADS, SSM_INNER, SSM_STATE
from .blocks import format_of
from .layout import Layout
from .tensors import Noise, Run, matrix


def _qkv(layout: Layout, q_factor: int = 1) -> None:
    spec = layout.spec
    layout.dense("attn_q", spec.n_embd, spec.n_head * spec.head_dim * q_factor)
    layout.dense("attn_k", spec.n_embd, spec.kv_heads * spec.head_dim)
    layout.dense("attn_v", spec.n_embd, spec.kv_heads * spec.head_dim)


def _out(layout: Layout, width: int, name: str = "attn_output") -> None:
    layout.dense(name, width, layout.spec.n_embd, writes_residual=True, silent=layout.router.silent_attention)


def plain(layout: Layout) -> None:
    _qkv(layout)
    _out(layout, layout.spec.n_embd)


def qk_norm(layout: Layout) -> None:
    """Norms of queries and keys over a head."""
    plain(layout)
    layout.vector("attn_q_norm.weight", layout.spec.head_dim)
    layout.vector("attn_k_norm.weight", layout.spec.head_dim)


def qk_norm_wide(layout: Layout) -> None:
    """Norms of queries and keys over all heads together."""
    plain(layout)
    layout.vector("attn_q_norm.weight", layout.spec.n_embd)
    layout.vector("attn_k_norm.weight", layout.spec.n_embd)


def output_gated(layout: Layout) -> None:
    """The query projection is twice as wide: the second half gates the output."""
    _qkv(layout, q_factor=2)
    _out(layout, layout.spec.n_embd)
    layout.vector("attn_q_norm.weight", layout.spec.head_dim)
    layout.vector("attn_k_norm.weight", layout.spec.head_dim)


def sinks(layout: Layout) -> None:
    plain(layout)
    layout.vector("attn_sinks.weight", layout.spec.n_head, 0.5)


def sinks_biased(layout: Layout) -> None:
    """gpt-oss: sinks, and an output bias that it insists on."""
    sinks(layout)
    layout.vector("attn_output.bias", layout.spec.n_embd, 0.0)


def post_normed(layout: Layout) -> None:
    """gemma4: what attention says is normed before it is added."""
    qk_norm(layout)
    layout.vector("post_attention_norm.weight", layout.spec.n_embd)


def mla(layout: Layout) -> None:
    """Queries, keys and values through low ranks; the cache holds the compressed row."""
    spec = layout.spec
    layout.dense("attn_q_a", spec.n_embd, MLA_RANK)
    layout.vector("attn_q_a_norm.weight", MLA_RANK)
    layout.dense("attn_q_b", MLA_RANK, spec.n_head * (MLA_NOPE + MLA_ROPE))
    layout.dense("attn_kv_a_mqa", spec.n_embd, MLA_RANK + MLA_ROPE)
    layout.vector("attn_kv_a_norm.weight", MLA_RANK)
    layout.dense("attn_k_b", MLA_NOPE, MLA_RANK, heads=spec.n_head)
    layout.dense("attn_v_b", MLA_RANK, MLA_VALUE, heads=spec.n_head)
    _out(layout, spec.n_head * MLA_VALUE)


def delta_net(layout: Layout) -> None:
    """qwen3next's linear attention."""
    layout.dense("attn_qkv", layout.spec.n_embd, 3 * SSM_INNER)
    layout.dense("attn_gate", layout.spec.n_embd, SSM_INNER)
    layout.dense("ssm_ba", layout.spec.n_embd, 2 * SSM_HEADS)
    _convolution(layout)
    layout.vector("ssm_a", SSM_HEADS, -1.0)
    layout.vector("ssm_norm.weight", SSM_STATE)
    _out(layout, SSM_INNER, "ssm_out")


def mamba2(layout: Layout) -> None:
    """nemotron's state space block."""
    ones, minus_ones = (matrix(np.full((SSM_HEADS, 1), v, np.float32)) for v in (1.0, -1.0))
    layout.dense("ssm_in", layout.spec.n_embd, 4 * SSM_INNER + SSM_HEADS)
    _convolution(layout)
    layout.vector("ssm_conv1d.bias", 3 * SSM_INNER, 0.0)
    layout.add("ssm_a", (1, SSM_HEADS), format_of("F32"), minus_ones)
    layout.add("ssm_d", (1, SSM_HEADS), format_of("F32"), ones)
    layout.add("ssm_norm.weight", (SSM_STATE, SSM_HEADS), format_of("F32"), matrix(np.ones((SSM_HEADS, SSM_STATE), np.float32)))
    _out(layout, SSM_INNER, "ssm_out")


def _convolution(layout: Layout) -> None:
    layout.add("ssm_conv1d.weight", (SSM_CONV, 3 * SSM_INNER), format_of("F32"), Noise((Run(3 * SSM_INNER, 0.5, 1),)))
    layout.vector("ssm_dt.bias", SSM_HEADS, 0.0)


ATTENTION: dict[str, Callable[[Layout], None]] = {
    "plain": plain,
    "qk_norm": qk_norm,
    "qk_norm_wide": qk_norm_wide,
    "output_gated": output_gated,
    "sinks": sinks,
    "sinks_biased": sinks_biased,
    "post_normed": post_normed,
    "mla": mla,
    "delta_net": delta_net,
    "mamba2": mamba2,
}
