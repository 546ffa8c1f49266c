"""Collects the tensors of a file: the few ways in which attention.py and ffn.py add one. Knows no architecture's names."""

from __future__ import annotations

import zlib

import numpy as np

from .archs import Arch, check
from .blocks import Format, format_of, row_bytes
from .router import Router
from .spec import EXPERT_ROLES, Spec, SynError
from .tensors import Known, Noise, Run, Tensor, constant, matrix


class Layout:
    """Collects tensors in file order. `layer` is the block being laid out, -1 outside of blocks."""

    def __init__(self, spec: Spec, router: Router) -> None:
        self.spec = spec
        self.arch: Arch = check(spec)
        self.router = router
        self.layer = -1
        # what blocks add to the residual stream shrinks with depth: tokens stay apart, and so does their routing
        self.residual_gain = min(1.0, (4 / spec.n_layer) ** 0.5)
        self.tensors: list[Tensor] = []

    def add(self, name: str, ne: tuple[int, ...], fmt: Format, recipe: Noise | Known) -> None:
        name = f"blk.{self.layer}.{name}" if self.layer >= 0 else name
        if isinstance(recipe, Known) and fmt.fields:
            raise SynError(f"{name} has known values: expected type F32, F16 or BF16, got {fmt.name}")
        try:
            row_bytes(fmt, ne[0])
        except SynError as error:
            raise SynError(f"{name}: {error}") from None
        self.tensors.append(Tensor(name, ne, fmt, recipe))

    def vector(self, name: str, n: int, value: float = 1.0) -> None:
        """An F32 vector of one value: norms, sinks, zero biases."""
        self.add(name, (n,), format_of("F32"), constant(value, n))

    def dense(self, name: str, n_in: int, n_out: int, *, writes_residual: bool = False, silent: bool = False, heads: int = 1) -> None:
        """A matrix (one per head) of dense_type that keeps the size of what goes through it; F16 where rows are no whole blocks."""
        fmt = format_of(self.spec.dense_type)
        fmt = format_of("F16") if n_in % fmt.elements else fmt
        quiet = self.router.quiet_rows if writes_residual else 0
        rows = n_out * heads
        sigma = n_in**-0.5 * (self.residual_gain if writes_residual else 1.0)
        runs = (Run(rows),) if silent else _below(quiet, Run(rows - quiet, sigma, zlib.crc32(name.encode()) + self.layer))
        self.add(f"{name}.weight", (n_in, n_out) if heads == 1 else (n_in, n_out, heads), fmt, Noise(runs))

    def expert_runs(self, role: str, expert: int, n_in: int, n_out: int) -> tuple[Run, ...]:
        """The rows of one expert. Roles are the unfused ones, so that a fused file holds the same weights."""
        quiet = self.router.quiet_rows if role.startswith("down") else 0
        gain = self.arch.down_gain * self.residual_gain if role.startswith("down") else 1.0
        key = (self.layer * len(EXPERT_ROLES) + EXPERT_ROLES.index(role)) * self.spec.n_expert + expert
        return _below(quiet, Run(n_out - quiet, gain * n_in**-0.5, key))

    def expert_bias(self, role: str, width: int, size: float) -> None:
        """F32 [width, n_expert]: distinct values up to `size`, each expert's around another centre."""
        n_expert = self.spec.n_expert
        values = self._rng(f"{role} bias").uniform(-2 / 3, 2 / 3, (n_expert, width)) + np.linspace(-1 / 3, 1 / 3, n_expert)[:, None]
        if role == "down":
            values *= self.residual_gain
            values[:, : self.router.quiet_rows] = 0
        self.add(f"ffn_{role}_exps.bias", (width, n_expert), format_of("F32"), matrix((values * size).astype(np.float32)))

    def expert_scale(self, role: str) -> None:
        """F32 [n_expert]: from 0.1 to 10 in random order."""
        values = self._rng(f"{role} scale").permutation(np.geomspace(0.1, 10, self.spec.n_expert))
        self.add(f"ffn_{role}_exps.scale", (self.spec.n_expert,), format_of("F32"), matrix(values.astype(np.float32).reshape(1, -1)))

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.spec.seed, self.layer, *name.encode()])


def _below(quiet: int, run: Run) -> tuple[Run, ...]:
    """The run under `quiet` rows of zeros."""
    return (Run(quiet), run) if quiet else (run,)
