"""Cases that several matrices are made of: types, layouts of experts, tokens that fill a pool exactly, and scripts of batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from testkit import syn
from testkit.oracle import LAST, Batch, Steps

TYPES = ("F16", "BF16", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4")


@dataclass(frozen=True)
class Tokens:
    """The tokens of one ubatch size. Step A asks for `slots` experts, all that a pool can hold; step B shares some of them."""

    n_expert: int
    n_expert_used: int
    slots: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    is_replay: bool = False  # token t takes expert (t + layer) modulo n_expert, else the rigged router's formula

    @property
    def repeated(self) -> tuple[int, ...]:
        """As many tokens as A, all the same: every row of the ubatch goes to the same experts."""
        return self.a[:1] * len(self.a)

    @property
    def too_many(self) -> tuple[int, ...]:
        """One token more than the slots can take, though all of them want the same experts: shape alone decides. From T = 8 on
        an expert gets more than eight rows, where the CPU changes kernels."""
        return self.a[:1] * (len(self.a) + 1)


TOKENS = {
    1: Tokens(16, 4, slots=4, a=(0,), b=(1,)),
    3: Tokens(16, 4, slots=12, a=(0, 1, 2), b=(1, 2, 3)),
    8: Tokens(24, 2, slots=16, a=tuple(range(8)), b=tuple(range(4, 12))),
    9: Tokens(24, 2, slots=18, a=tuple(range(9)), b=tuple(range(3, 12))),
    64: Tokens(72, 1, slots=64, a=tuple(range(64)), b=tuple(range(8, 72)), is_replay=True),
}


def replayed_ids(layer: int, token: int, n_expert: int) -> tuple[int, ...]:
    """The experts of a token in a replayed model."""
    return ((token + layer) % n_expert,)


def write_cell(spec: syn.Spec, tokens: Tokens, path: Path) -> Path:
    """The model of a cell; its router follows the formula of its tokens."""
    if not tokens.is_replay:
        return syn.write(spec, path)
    trace = np.array([[replayed_ids(layer, token, spec.n_expert) for layer in range(spec.n_layer)] for token in range(spec.n_vocab)])
    return syn.replay(trace, spec, path)


N_EXPERT, N_USED = 16, 4


def layout(arch: str, **changes: object) -> syn.Spec:
    n_layer = max(3, syn.ARCHS[arch].min_layers)
    spec = syn.Spec(arch=arch, n_layer=n_layer, n_expert=N_EXPERT, n_expert_used=N_USED, types={"*": "Q5_K"})
    return replace(spec, **changes)  # type: ignore[arg-type]


LAYOUTS: dict[str, syn.Spec] = {
    # two tensors a layer
    "llama-without-gate": layout("llama", gate=False),
    "nemotron_h_moe-without-gate": layout("nemotron_h_moe", n_layer=5),
    "granite_swa-fused": layout("granite_swa", fused=True),
    "deepseek2-fused": layout("deepseek2", fused=True),
    "mistral4-fused": layout("mistral4", fused=True),
    "cohere2moe-fused": layout("cohere2moe", fused=True),
    "qwen3next-fused": layout("qwen3next", fused=True),
    "gemma4-fused-with-down-scales": layout("gemma4", fused=True),
    # three
    "llama": layout("llama"),
    "olmoe": layout("olmoe"),
    "qwen3moe": layout("qwen3moe"),
    "qwen2moe-shared-expert": layout("qwen2moe"),
    "qwen3next": layout("qwen3next"),
    "granite_swa": layout("granite_swa"),
    "cohere2moe": layout("cohere2moe"),
    "maple-clamped-activation": layout("maple"),
    "llama4-weights-before-experts": layout("llama4"),
    # six
    "grovemoe-chunk-experts": layout("grovemoe"),
    # what hangs on the experts, and what stands beside them
    "gpt-oss-biases": layout("gpt-oss"),
    "gemma4-down-scales": layout("gemma4"),
    "qwen3moe-scales": layout("qwen3moe", scale=True),
    "llama-scales-without-gate": layout("llama", gate=False, scale=True),
    "nemotron_h_moe-scales": layout("nemotron_h_moe", n_layer=5, scale=True),
    "glm4moe-dense-lead-and-shared": layout("glm4moe", dense_lead=1),
    "deepseek2-dense-lead-and-two-shared": layout("deepseek2", dense_lead=2, shared=2, n_layer=4),
    "mistral4-dense-lead": layout("mistral4", dense_lead=1),
    # mixtures
    "granite_swa-fused-in-one-layer": layout("granite_swa", fused=frozenset({1})),
    "qwen3moe-types-mixed-within-a-layer": layout("qwen3moe", types={"gate": "Q4_K", "up": "Q5_K", "down": "Q6_K"}),
    "qwen3moe-types-mixed-over-layers": layout(
        "qwen3moe",
        n_layer=4,
        types={"*": "Q4_K"},
        types_per_layer={0: {"*": "Q8_0"}, 2: {"gate": "MXFP4", "up": "IQ4_NL", "down": "BF16"}, 3: {"*": "F16"}},
    ),
    "qwen2moe-odd-width-down-in-q5_0": layout("qwen2moe", n_ff_exp=352, types={"gate": "Q4_K", "up": "Q4_K", "down": "Q5_0"}),
    "qwen2moe-sixty-experts": layout("qwen2moe", n_expert=60),
    "qwen3moe-128-experts-8-used": layout("qwen3moe", n_expert=128, n_expert_used=8, n_ff_exp=64, types={"*": "Q8_0"}),
}


def random_tokens(n: int, seed: int = 3) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(0, 250, n).tolist())


def varied_steps() -> Steps:
    """Single tokens, small batches, and prompts of more than one ubatch in between; logits of all tokens or of the last."""
    tokens = random_tokens(120)
    singles = tuple(Batch((token,)) for token in tokens[:12])
    small = (Batch(tokens[12:14]), Batch(tokens[14:17]), Batch(tokens[17:25], outputs=LAST))
    prompts = (Batch(tokens[25:58], outputs=LAST), Batch(tokens[58:68]))
    return singles + small + prompts + tuple(Batch((token,)) for token in tokens[68:80])
