"""The verdict: what a pool is predicted to reach against the best that plain llama.cpp does with the same bytes, and go or no-go.

Predicts decode of one token at a time; prompts take llama.cpp's own path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slotpool.predict.cost import FAULTING, Event, Rates, mean_seconds, tiered_seconds, turn_seconds

GAIN = 1.03
"""A pool that is not predicted to be so much faster than plain is a no-go: predictions are not better than that."""


@dataclass(frozen=True)
class Tiers:
    """Of a layer with slots in RAM behind those of its device: the chance that a miss is read from the disk, and the share of all layers
    that plain llama.cpp has on the device in the same bytes."""

    from_disk: float
    placed: float


@dataclass(frozen=True)
class Layer:
    """A group of expert tensors with what its pool finds. `plain_hit_rate` is plain llama.cpp's share of what needs no transfer; with
    `tiers` that of the layers that it has not on the device. `waits` are seconds of an event behind copies for later."""

    event: Event
    rates: Rates
    slots: int
    hit_rate: float
    plain_hit_rate: float
    tiers: Tiers | None = None
    waits: float = 0.0


@dataclass(frozen=True)
class Predicted:
    """Means over all lookups, and tokens per second."""

    hit_rate: float
    generation_tps: float


@dataclass(frozen=True)
class Outlook:
    """`verdict` is go or no-go, `reason` why. `plain` is plain llama.cpp with the best placement in the same bytes.

    `break_even_hit_rate` is that of copying every miss; None where there is no link.
    """

    verdict: str
    reason: str
    predicted: Predicted | None = None
    plain: Predicted | None = None
    break_even_hit_rate: float | None = None

    @property
    def is_go(self) -> bool:
        return self.verdict == "go"


def judge(layers: Sequence[Layer], other_seconds: float, way: str, plain_way: str, plain_other_seconds: float | None = None) -> Outlook:
    """The outlook of a pool that serves misses in the `way`, beside plain llama.cpp in `plain_way`: CPU (whole layers' experts are on the
    device, the others on the CPU) or FAULTING. `other_seconds` is a token without its experts, `plain_other_seconds` plain llama.cpp's
    where that is another time."""
    pooled = [_pooled(one, way) if one.slots else _plain(one, 0.0, one.rates, plain_way) for one in layers]
    plain = [_plain(one, one.plain_hit_rate, one.rates.of_plain, plain_way) for one in layers]
    predicted = Predicted(_mean([one.hit_rate if one.slots else 0.0 for one in layers], layers), 1.0 / (other_seconds + sum(pooled)))
    against = Predicted(_mean([one.plain_hit_rate for one in layers], layers), 1.0 / ((plain_other_seconds or other_seconds) + sum(plain)))
    ratio = predicted.generation_tps / against.generation_tps
    speeds = f"{predicted.generation_tps:.3g} tokens/s with the pool, {against.generation_tps:.3g} without, in the same bytes"
    verdict, reason = ("go", f"{ratio:.2f}x: {speeds}") if ratio >= GAIN else ("no-go", f"slots would not pay, {ratio:.2f}x: {speeds}")
    even = None if plain_way == FAULTING else max((one.rates.break_even for one in layers), default=0.0)
    return Outlook(verdict, reason, predicted, against, even)


def _pooled(layer: Layer, way: str) -> float:
    if layer.tiers:
        return layer.waits + tiered_seconds(layer.event, layer.hit_rate, layer.tiers.from_disk, layer.rates, way)
    return layer.waits + mean_seconds(layer.event, layer.hit_rate, layer.rates, way)


def _plain(layer: Layer, hit_rate: float, rates: Rates, way: str) -> float:
    """Plain llama.cpp has a whole layer on the device or none of it: its times add up, they do not overlap."""
    k, slab = layer.event.n_used, layer.event.slab_bytes
    if way == FAULTING:
        faulting = mean_seconds(layer.event, hit_rate, rates, way)
        placed = layer.tiers.placed if layer.tiers else 0.0
        return placed * k * slab / rates.device + (1.0 - placed) * (faulting + rates.turn)
    return hit_rate * k * slab / rates.device + (1.0 - hit_rate) * (k * slab / rates.cpu + turn_seconds(layer.event, k, rates))


def _mean(rates: Sequence[float], layers: Sequence[Layer]) -> float:
    total = sum(layer.event.n_used for layer in layers)
    return sum(rate * layer.event.n_used for rate, layer in zip(rates, layers, strict=True)) / total if total else 0.0
