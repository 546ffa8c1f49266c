"""The architectures SYN can write: one row of facts each, and the metadata keys that follow from them.

Facts are from llama.cpp's src/models (llama-cpp-python 0.3.36). Which tensors follow from a row: attention.py, ffn.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .blocks import format_of
from .spec import Spec, SynError, check_numbers, check_roles

Value = bool | int | float | str | list[int] | list[bool] | list[str]
Keys = dict[str, Value]

SIGMOID = 2  # llama.cpp's number of the gating function
MLA_RANK, MLA_NOPE, MLA_ROPE, MLA_VALUE = 64, 32, 32, 64  # sizes of compressed attention, elements
SSM_CONV, SSM_STATE, SSM_HEADS = 4, 128, 2  # sizes of recurrent blocks: as many groups as heads, a head as wide as its state
SSM_INNER = SSM_STATE * SSM_HEADS


def _no_keys(spec: Spec) -> Keys:
    return {}


@dataclass(frozen=True)
class Arch:
    """What sets an architecture apart. Names of tensors are without "blk.N."."""

    attention: str = "plain"  # a key of attention.ATTENTION
    ffn_norm: str = "ffn_norm"  # the norm in front of the FFN, "" when the block has only one
    expert_width_key: bool = True  # else feed_forward_length is the experts' width
    gate: str = "always"  # "optional", "never"
    can_fuse: bool = False
    can_lead_dense: bool = False
    can_draft: bool = False
    shared: tuple[int, ...] = (0,)  # numbers of shared experts it takes, its own choice first
    shared_kind: str = "gated"  # a key of ffn.SHARED
    scales: tuple[str, ...] = ()  # roles whose .scale reaches the graph
    scale_default: bool = False
    has_bias: bool = False
    probs_bias: bool = False  # exp_probs_b, added for the selection only
    chunk_experts: bool = False
    parallel_dense: bool = False  # a dense FFN beside the experts, post-norms around both
    interleaved: bool = False  # even blocks are attention, odd ones experts
    recurrent: str = ""  # what block 0 of a hybrid has instead of attention, a key of attention.ATTENTION
    scales_embedding: bool = False  # the engine multiplies embeddings by sqrt(n_embd)
    down_gain: float = 2.0  # of the experts' down weights; less where the activation is large and one-sided
    min_layers: int = 1  # fewer and the engine aborts: a kind of layer it counts on is missing
    keys: Callable[[Spec], Keys] = _no_keys


def _swa_keys(spec: Spec) -> Keys:
    """Every other layer with a window of half the context."""
    return {"attention.sliding_window": spec.n_ctx // 2, "attention.sliding_window_pattern": [i % 2 == 0 for i in range(spec.n_layer)]}


def _gating_keys(spec: Spec) -> Keys:
    return {"expert_gating_func": SIGMOID, "expert_weights_norm": True, "expert_weights_scale": 1.0}


def _mla_keys(spec: Spec) -> Keys:
    return {
        **_gating_keys(spec),
        "attention.q_lora_rank": MLA_RANK,
        "attention.kv_lora_rank": MLA_RANK,
        "attention.key_length": MLA_RANK + MLA_ROPE,
        "attention.value_length": MLA_RANK,
        "attention.key_length_mla": MLA_NOPE + MLA_ROPE,
        "attention.value_length_mla": MLA_VALUE,
        "rope.dimension_count": MLA_ROPE,
        "attention.head_count_kv": 1,
    }


def _gemma4_keys(spec: Spec) -> Keys:
    sizes: Keys = {"attention.key_length_swa": spec.head_dim, "attention.value_length_swa": spec.head_dim}
    return {**_swa_keys(spec), **sizes, "embedding_length_per_layer_input": 0, "attention.shared_kv_layers": 0}


_SSM_KEYS: Keys = {
    "ssm.conv_kernel": SSM_CONV,
    "ssm.inner_size": SSM_INNER,
    "ssm.state_size": SSM_STATE,
    "ssm.time_step_rank": SSM_HEADS,
    "ssm.group_count": SSM_HEADS,
}


def _qwen3next_keys(spec: Spec) -> Keys:
    return {**_SSM_KEYS, "attention.recurrent_layers": [i == 0 for i in range(spec.n_layer)]}


def _nemotron_keys(spec: Spec) -> Keys:
    """A block without KV heads and without an FFN width is recurrent: block 0. The head size comes from block 0's head count."""
    blocks = range(spec.n_layer)
    return {
        **_SSM_KEYS,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.head_count": [spec.n_head * (i % 2 == 0) for i in blocks],
        "attention.head_count_kv": [spec.kv_heads * (i % 2 == 0 and i > 0) for i in blocks],
        "feed_forward_length": [spec.n_ff_exp * (i % 2) for i in blocks],
        "expert_weights_norm": True,
        "expert_weights_scale": 1.0,
    }


def _grovemoe_keys(spec: Spec) -> Keys:
    return {"expert_chunk_feed_forward_length": spec.n_ff_exp, "expert_group_scale": 0.5, "experts_per_group": spec.experts_per_group}


ALL_SCALES = ("gate", "up", "down")

ARCHS: dict[str, Arch] = {
    "llama": Arch(expert_width_key=False, gate="optional", scales=ALL_SCALES),
    "llama4": Arch(shared=(1,), min_layers=4, keys=lambda spec: {"interleave_moe_layer_step": 1}),
    "olmoe": Arch("qk_norm_wide", expert_width_key=False),
    "qwen2moe": Arch(shared=(1,), shared_kind="weighed"),
    "qwen3moe": Arch("qk_norm", scales=ALL_SCALES),
    "qwen3next": Arch(
        "output_gated",
        "post_attention_norm",
        can_fuse=True,
        shared=(1,),
        shared_kind="weighed",
        scales=ALL_SCALES,
        recurrent="delta_net",
        min_layers=2,
        keys=_qwen3next_keys,
    ),
    "maple": Arch("qk_norm", keys=lambda spec: {**_swa_keys(spec), "swiglu_clamp_exp": 1.5}),
    "gpt-oss": Arch(
        "sinks_biased",
        "post_attention_norm",
        has_bias=True,
        down_gain=0.25,
        keys=lambda spec: {"attention.sliding_window": spec.n_ctx // 2},
    ),
    "grovemoe": Arch("qk_norm", chunk_experts=True, keys=_grovemoe_keys),
    "glm4moe": Arch(
        "qk_norm", "post_attention_norm", can_lead_dense=True, can_draft=True, shared=(1, 0), probs_bias=True, keys=_gating_keys
    ),
    "deepseek2": Arch("mla", can_fuse=True, can_lead_dense=True, shared=(1, 2), probs_bias=True, keys=_mla_keys),
    "mistral4": Arch("mla", can_fuse=True, can_lead_dense=True, shared=(1, 2), probs_bias=True, keys=_mla_keys),
    "cohere2moe": Arch(
        ffn_norm="",
        can_fuse=True,
        can_lead_dense=True,
        shared=(0, 1),
        scales=ALL_SCALES,
        keys=lambda spec: {**_swa_keys(spec), **_gating_keys(spec), "logit_scale": 1.0},
    ),
    "granite_swa": Arch(
        "sinks",
        expert_width_key=False,
        can_fuse=True,
        shared=(0, 1),
        shared_kind="fused",
        keys=lambda spec: {**_swa_keys(spec), "logit_scale": 1.0},
    ),
    "gemma4": Arch(
        "post_normed",
        ffn_norm="pre_ffw_norm_2",
        can_fuse=True,
        scales=("down",),
        scale_default=True,
        parallel_dense=True,
        scales_embedding=True,
        min_layers=2,
        keys=_gemma4_keys,
    ),
    "nemotron_h_moe": Arch(
        ffn_norm="",
        gate="never",
        shared=(1,),
        shared_kind="ungated",
        scales=("up", "down"),
        probs_bias=True,
        interleaved=True,
        recurrent="mamba2",
        down_gain=0.5,
        min_layers=3,
        keys=_nemotron_keys,
    ),
}


def check(spec: Spec) -> Arch:
    """The row of the spec's architecture; SynError when the two do not fit."""
    check_numbers(spec)
    check_roles(spec)
    if spec.arch not in ARCHS:
        raise SynError(f'unknown architecture "{spec.arch}" (valid: {", ".join(ARCHS)})')
    arch = ARCHS[spec.arch]
    for wrong, wanted in _misfits(spec, arch):
        if wrong:
            raise SynError(f"{spec.arch}: {wanted}")
    format_of(spec.dense_type)
    return arch


def _misfits(spec: Spec, arch: Arch) -> list[tuple[bool, str]]:
    def able(has: str) -> str:
        return ", ".join(name for name, row in ARCHS.items() if getattr(row, has))

    return [
        (spec.fused is not False and not arch.can_fuse, f"cannot fuse gate and up (these can: {able('can_fuse')})"),
        (not spec.gate and arch.gate == "always", "needs a gate; without one: llama, nemotron_h_moe"),
        (bool(spec.dense_lead) and not arch.can_lead_dense, f"has no leading dense layers (these have: {able('can_lead_dense')})"),
        (spec.drafts and not arch.can_draft, f"has no layers that draft (these have: {able('can_draft')})"),
        (bool(spec.bias) and not arch.has_bias, f"has no expert biases (these have: {able('has_bias')})"),
        (bool(spec.scale) and not arch.scales, f"reads no expert scales (these do: {able('scales')})"),
        (spec.shared not in (None, *arch.shared), f"expected shared to be one of {arch.shared}, got {spec.shared}"),
        (arch.chunk_experts and spec.n_expert % spec.experts_per_group != 0, "n_expert is no multiple of experts_per_group"),
        (spec.n_layer < arch.min_layers, f"expected n_layer >= {arch.min_layers}, got {spec.n_layer}"),
        (spec.legacy and spec.arch != "llama", "the layout of one tensor per expert exists for llama only"),
    ]


def shared_count(spec: Spec, arch: Arch) -> int:
    return arch.shared[0] if spec.shared is None else spec.shared


def moe_layers(spec: Spec) -> tuple[int, ...]:
    """The layers that have experts, in order."""
    arch = check(spec)
    return tuple(i for i in range(spec.dense_lead, spec.n_layer) if not arch.interleaved or i % 2)


def model_keys(spec: Spec) -> Keys:
    """Metadata of the model without its tokeniser: general keys, then those under the architecture's name."""
    arch = check(spec)
    keys: Keys = {
        "context_length": spec.n_ctx,
        "embedding_length": spec.n_embd,
        "block_count": spec.n_layer,
        "feed_forward_length": spec.dense_ff if arch.expert_width_key else spec.n_ff_exp,
        "attention.head_count": spec.n_head,
        "attention.head_count_kv": spec.kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "vocab_size": spec.n_vocab,
        "expert_count": spec.n_expert,
        "expert_used_count": spec.n_expert_used,
        **_optional_keys(spec, arch),
        **arch.keys(spec),
    }
    general: Keys = {"general.architecture": spec.arch, "general.name": f"syn {spec.arch}", "general.quantization_version": 2}
    return general | {f"{spec.arch}.{name}": value for name, value in keys.items()}


def _optional_keys(spec: Spec, arch: Arch) -> Keys:
    keys: Keys = {}
    if arch.expert_width_key:
        keys["expert_feed_forward_length"] = spec.n_ff_exp
    if arch.can_lead_dense:
        keys["leading_dense_block_count"] = spec.dense_lead
    if spec.drafts:
        keys["nextn_predict_layers"] = 1
    if max(arch.shared):
        keys["expert_shared_count"] = shared_count(spec, arch)
    if shared_count(spec, arch):
        keys["expert_shared_feed_forward_length"] = spec.n_ff_exp * shared_count(spec, arch)
    return keys
