"""How large the steps are, and when to stop: warm up, hold, then fall linearly to zero.

Decides from step numbers and elapsed seconds that it is given; it reads no clock.
"""

from __future__ import annotations

from dataclasses import dataclass

N_WARMUP = 40
HOLD_SHARE = 0.40  # of the budget at full rate; the fall takes the rest


@dataclass(frozen=True)
class Schedule:
    """A budget in seconds of wall clock or, where `n_steps` is given, in steps: the same run whatever the machine's speed."""

    seconds: float
    n_steps: int | None = None

    def progress(self, step: int, seconds: float) -> float:
        """Share of the budget that is used, 0 to 1; the run is over at 1."""
        return min(1.0, seconds / self.seconds if self.n_steps is None else step / self.n_steps)

    def rate(self, step: int, seconds: float) -> float:
        """Share of the peak rate for this step, 0 to 1."""
        left = 1.0 - self.progress(step, seconds)
        return min(1.0, (step + 1) / N_WARMUP, left / (1.0 - HOLD_SHARE))
