"""Arms of a benchmark: worker processes that take turns, A B B A, on the same input.

A pool arm without lookups, or a plain one with some, is an error: such a run proves nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Arm:
    """One contestant: a name and what `slotpool.load` gets. `answer` is the worker's last one.

    Arms with the same `kernels` must have equal logits; repacked experts go through others.
    """

    name: str
    model: Path
    options: Mapping[str, Any]
    kernels: str = ""
    seconds: list[float] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        """Starts the worker; it loads the model on its own."""
        command = [sys.executable, "-m", "benchmarks.worker", str(self.model), json.dumps(dict(self.options))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **command: Sequence[int]) -> float:
        """Sends a command and returns its seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"arm {self.name} died (exit code {self._process.wait()})")
        self.answer = json.loads(line)
        return float(self.answer["seconds"])

    def stop(self) -> None:
        """Ends the worker."""
        self._process.communicate()


def interleave(arms: Sequence[Arm], first: Sequence[int], rounds: Sequence[Mapping[str, Sequence[int]]]) -> None:
    """Every arm evaluates the prompt `first`, then each round's command, in an order that alternates. Fills `seconds`.

    Raises RuntimeError when the arms' logits differ after a round, or an arm did not do what its name says.
    """
    for arm in arms:
        arm.start()
    try:
        for arm in arms:
            arm.ask(prompt=first)
        for number, command in enumerate(rounds):
            order = arms if number % 2 == 0 else list(reversed(arms))
            for arm in order:
                arm.seconds.append(arm.ask(**command))
            _check(arms)
    finally:
        for arm in arms:
            arm.stop()


def _check(arms: Sequence[Arm]) -> None:
    hashes = {arm.name: (arm.kernels, arm.answer["hash"]) for arm in arms}
    if len(set(hashes.values())) != len({arm.kernels for arm in arms}):
        raise RuntimeError(f"expected equal logits in all arms on the same kernels, found {hashes}")
    for arm in arms:
        stats = arm.answer["stats"]
        if bool(stats["lookups"] or stats["refused"]) != bool(arm.options.get("slots")):
            raise RuntimeError(f"arm {arm.name}: {stats['lookups']} lookups, {stats['refused']} refused, which its options do not allow")
