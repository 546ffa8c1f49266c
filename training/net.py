"""The model in PyTorch, equal in arithmetic to llama.cpp's architecture "qwen3moe".

Knows shapes, the forward pass and the router's losses; it does not know about text, optimisers or files.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu


@dataclass(frozen=True)
class NetShape:
    """Widths and counts, spelled as llama.cpp spells them."""

    n_vocab: int = 4096
    n_ctx: int = 512
    n_layer: int = 4
    n_embd: int = 256
    n_head: int = 4
    n_head_kv: int = 2
    n_embd_head: int = 64
    n_expert: int = 24
    n_expert_used: int = 4
    n_ff_exp: int = 256
    rms_eps: float = 1e-6
    rope_freq_base: float = 10000.0


@dataclass
class Routing:
    """What the routers of one forward pass did: per layer, ids (tokens, k) and the losses that shape them."""

    ids: list[Tensor] = field(default_factory=list)
    balance: list[Tensor] = field(default_factory=list)
    z: list[Tensor] = field(default_factory=list)


class Net(nn.Module):
    """tokens (batch, time) -> logits (batch, time, n_vocab); the output head shares the embedding's weights."""

    def __init__(self, shape: NetShape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.n_vocab, shape.n_embd)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layer))
        self.norm = RmsNorm(shape.n_embd, shape.rms_eps)
        self.rope: Tensor
        self.register_buffer("rope", rope_table(shape), persistent=False)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Routing]:
        routing = Routing()
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.rope[:, : tokens.shape[1]], routing)
        return linear(self.norm(x), self.embedding.weight), routing


class Block(nn.Module):
    """Attention, then experts, each with its norm before and its residual around."""

    def __init__(self, shape: NetShape) -> None:
        super().__init__()
        self.attn_norm = RmsNorm(shape.n_embd, shape.rms_eps)
        self.attn = Attention(shape)
        self.ffn_norm = RmsNorm(shape.n_embd, shape.rms_eps)
        self.experts = Experts(shape)

    def forward(self, x: Tensor, rope: Tensor, routing: Routing) -> Tensor:
        x = x + self.attn(self.attn_norm(x), rope)
        y: Tensor = x + self.experts(self.ffn_norm(x), routing)
        return y


class RmsNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    """Causal attention with grouped keys and values, RMS-normed queries and keys, and rotated halves (NEOX rope)."""

    def __init__(self, shape: NetShape) -> None:
        super().__init__()
        self.shape = shape
        self.q = dense(shape.n_embd, shape.n_head * shape.n_embd_head)
        self.k = dense(shape.n_embd, shape.n_head_kv * shape.n_embd_head)
        self.v = dense(shape.n_embd, shape.n_head_kv * shape.n_embd_head)
        self.out = dense(shape.n_head * shape.n_embd_head, shape.n_embd, gain=residual_gain(shape))
        self.q_norm = RmsNorm(shape.n_embd_head, shape.rms_eps)
        self.k_norm = RmsNorm(shape.n_embd_head, shape.rms_eps)

    def forward(self, x: Tensor, rope: Tensor) -> Tensor:
        q = rotate(self.q_norm(self.heads(self.q(x))), rope)
        k = rotate(self.k_norm(self.heads(self.k(x))), rope)
        v = self.heads(self.v(x))
        n_group = self.shape.n_head // self.shape.n_head_kv
        k, v = k.repeat_interleave(n_group, dim=1), v.repeat_interleave(n_group, dim=1)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        return linear(y.transpose(1, 2).flatten(2), self.out.weight)

    def heads(self, x: Tensor) -> Tensor:
        """(batch, time, heads x width) -> (batch, heads, time, width)"""
        return x.view(*x.shape[:2], -1, self.shape.n_embd_head).transpose(1, 2)


class Experts(nn.Module):
    """n_expert gated MLPs; each token takes n_expert_used of them, weighted by the renormalised softmax of the router."""

    def __init__(self, shape: NetShape) -> None:
        super().__init__()
        self.shape = shape
        self.router = dense(shape.n_embd, shape.n_expert, gain=0.5)
        self.gate = expert_weights(shape.n_expert, shape.n_ff_exp, shape.n_embd)
        self.up = expert_weights(shape.n_expert, shape.n_ff_exp, shape.n_embd)
        self.down = expert_weights(shape.n_expert, shape.n_embd, shape.n_ff_exp, gain=residual_gain(shape))

    def forward(self, x: Tensor, routing: Routing) -> Tensor:
        flat = x.flatten(0, 1)
        logits = self.router(flat)
        probabilities = logits.softmax(dim=-1)
        weights, ids = probabilities.topk(self.shape.n_expert_used, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        routing.ids.append(ids.detach())
        routing.balance.append(balance_loss(probabilities, ids))
        routing.z.append(logits.logsumexp(dim=-1).square().mean())
        return self.dispatch(flat, weights, ids).view_as(x)

    def dispatch(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """Groups the rows by expert, so that every expert does three matmuls over all of its rows."""
        order = ids.flatten().argsort(stable=True)
        rows = order // self.shape.n_expert_used
        counts = ids.flatten().bincount(minlength=self.shape.n_expert).tolist()
        parts = zip(x.index_select(0, rows).split(counts), self.gate.unbind(), self.up.unbind(), self.down.unbind(), strict=True)
        y = torch.cat([linear(silu(linear(part, gate)) * linear(part, up), down) for part, gate, up, down in parts])
        y = y * weights.flatten()[order].unsqueeze(1)
        return torch.zeros_like(x).index_add(0, rows, y)


def balance_loss(probabilities: Tensor, ids: Tensor) -> Tensor:
    """n_expert x sum(share of rows x mean probability); 1 when uniform (Switch Transformer, eq. 4)."""
    n_expert = probabilities.shape[-1]
    share = ids.flatten().bincount(minlength=n_expert) / ids.numel()
    return n_expert * (share * probabilities.mean(dim=0)).sum()


def rope_table(shape: NetShape) -> Tensor:
    """(2, n_ctx, n_embd_head): cosines and sines, the two halves of a head alike."""
    exponents = torch.arange(0, shape.n_embd_head, 2, dtype=torch.float64) / shape.n_embd_head
    angles = torch.arange(shape.n_ctx, dtype=torch.float64)[:, None] * shape.rope_freq_base**-exponents
    angles = torch.cat([angles, angles], dim=-1)
    return torch.stack([angles.cos(), angles.sin()]).float()


def rotate(x: Tensor, rope: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * rope[0] + torch.cat([-second, first], dim=-1) * rope[1]


def dense(n_in: int, n_out: int, gain: float = 1.0) -> nn.Linear:
    layer = nn.Linear(n_in, n_out, bias=False)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(n_in))
    return layer


def expert_weights(n_expert: int, n_out: int, n_in: int, gain: float = 1.0) -> nn.Parameter:
    return nn.Parameter(torch.randn(n_expert, n_out, n_in) * (gain / math.sqrt(n_in)))


def residual_gain(shape: NetShape) -> float:
    """Keeps the residual stream's size independent of the number of layers."""
    return 1.0 / math.sqrt(2 * shape.n_layer)
