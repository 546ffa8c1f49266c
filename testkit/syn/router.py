"""Who goes where: the embedding, the routers and the output head, in the three kinds of model SYN writes.

Random: noise. Rigged: a token's class lies one-hot in the first residual dimensions, which nothing else may write, so the
ids are a formula of (layer, token) whatever the weights do. Replay (replay.py): the class is the token itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .archs import ARCHS, check, moe_layers
from .spec import Spec, SynError
from .tensors import Known, Noise, Run, Values, constant, matrix

MAX_CLASSES = 64
CODE = 4.0  # size of a rigged token's one-hot code; its other dimensions have standard deviation 1


class Router(Protocol):
    """What layout.py asks for."""

    @property
    def quiet_rows(self) -> int:
        """Leading dimensions of the residual stream that no block may write."""

    @property
    def silent_attention(self) -> bool: ...

    @property
    def float_embedding(self) -> bool:
        """The embedding has known values: a quantised type would destroy them."""

    def embedding(self) -> Noise | Known: ...

    def matrix(self, layer: int) -> Noise | Known:
        """Router weights of a layer, shape [n_expert, n_embd]."""

    def bias(self, name: str) -> Known:
        """Bias of router logits or probabilities, shape [n_expert]."""

    def output(self) -> Noise | Known: ...


@dataclass(frozen=True)
class RandomRouter:
    """Logits of standard deviation 2."""

    spec: Spec
    quiet_rows: int = 0
    silent_attention: bool = False
    float_embedding: bool = False

    def embedding(self) -> Noise | Known:
        return Noise((Run(self.spec.n_vocab, embedding_sigma(self.spec), 1),))

    def matrix(self, layer: int) -> Noise | Known:
        return Noise((Run(self.spec.n_expert, 2 * self.spec.n_embd**-0.5, 1 + layer * self.spec.n_expert),))

    def bias(self, name: str) -> Known:
        return noise_vector(self.spec, name, 0.1)

    def output(self) -> Noise | Known:
        return output_noise(self.spec)


@dataclass(frozen=True)
class RiggedRouter:
    """Every token of a class takes the experts that `rigged_ids` names, in that order."""

    spec: Spec
    silent_attention: bool = False
    float_embedding: bool = True

    @property
    def quiet_rows(self) -> int:
        return rigged_classes(self.spec)

    def embedding(self) -> Noise | Known:
        return Known(self._embedding_rows)

    def _embedding_rows(self, first: int, last: int) -> Values:
        rng = np.random.default_rng([self.spec.seed, first])
        rows: Values = rng.standard_normal((last - first, self.spec.n_embd), np.float32)
        rows[:, : self.quiet_rows] = 0
        rows[np.arange(last - first), np.arange(first, last) % self.quiet_rows] = CODE
        rows *= np.float32(embedding_sigma(self.spec))
        return rows

    def matrix(self, layer: int) -> Noise | Known:
        ids = np.array([_ids_of_class(self.spec, layer, c) for c in range(self.quiet_rows)])
        return matrix(router_matrix(self.spec, ids, 1.0))

    def bias(self, name: str) -> Known:
        return constant(0.0, self.spec.n_expert)

    def output(self) -> Noise | Known:
        return output_noise(self.spec)


def router_of(spec: Spec) -> Router:
    if spec.router == "random":
        return RandomRouter(spec)
    if spec.router == "rigged":
        return RiggedRouter(spec)
    raise SynError(f'unknown router "{spec.router}" (valid: random, rigged; a recorded trace: syn.replay)')


def rigged_classes(spec: Spec) -> int:
    """Number of token classes of a rigged model: tokens t and t + rigged_classes route alike."""
    return min(spec.n_vocab, spec.n_embd // 4, MAX_CLASSES)


def rigged_ids(spec: Spec, layer: int, token: int) -> tuple[int, ...]:
    """The experts a rigged model takes in `layer` (its number in the model) for `token`, first choice first.

    Neighbouring classes take neighbouring blocks of k experts; every lap around the experts starts one further, so does
    every layer; odd classes list theirs backwards. grovemoe's second pass has the ids divided by experts_per_group.
    """
    check(spec)
    if spec.router != "rigged" or layer not in moe_layers(spec) or not 0 <= token < spec.n_vocab:
        raise SynError(
            f"expected a rigged model, a layer of {moe_layers(spec)} and a token below {spec.n_vocab}, got {spec.router}, {layer}, {token}"
        )
    return _ids_of_class(spec, layer, token % rigged_classes(spec))


def _ids_of_class(spec: Spec, layer: int, cls: int) -> tuple[int, ...]:
    k = spec.n_expert_used
    start = cls * k + cls * k // spec.n_expert + layer
    ids = tuple((start + j) % spec.n_expert for j in range(k))
    return ids[::-1] if cls % 2 else ids


def router_matrix(spec: Spec, ids: np.typing.NDArray[np.integer], size: float) -> Values:
    """Router weights [n_expert, n_embd] under which one-hot input c ranks ids[c] first: ids is [n_classes, k].

    Chosen experts get 1 down to 1/2 (times size), the others -1/4 down to -1, all distinct: no ties, no saturation.
    """
    n_classes, k = ids.shape
    column = np.linspace(-0.25, -1.0, spec.n_expert, dtype=np.float32)
    weights = np.zeros((spec.n_expert, spec.n_embd), np.float32)
    weights[:, :n_classes] = column[:, None]
    weights[ids, np.arange(n_classes)[:, None]] = 1 - np.arange(k, dtype=np.float32) / (2 * k)
    weights *= np.float32(size)
    return weights


def embedding_sigma(spec: Spec) -> float:
    """Standard deviation that makes the first layer's input about 1."""
    return spec.n_embd**-0.5 if ARCHS[spec.arch].scales_embedding else 1.0


def output_noise(spec: Spec) -> Noise:
    """Logits of standard deviation 3; BOS and EOS, the last two tokens of a text vocabulary, get 0 and never win."""
    specials = 2 if spec.n_vocab >= 256 else 0
    return Noise((Run(spec.n_vocab - specials, 3 * spec.n_embd**-0.5, 7), Run(specials)))


def noise_vector(spec: Spec, name: str, sigma: float) -> Known:
    """n_expert random numbers, the same for the same name."""
    rng = np.random.default_rng([spec.seed, *name.encode()])
    return matrix((rng.standard_normal((1, spec.n_expert)) * sigma).astype(np.float32))
