"""How the scheduler cut a graph, read from its own debug log. Only reads; `Setup.keeps_log` makes the engine write it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_SPLIT = re.compile(r"## SPLIT #(\d+): (\S+) # (\d+) inputs")
_NODE = re.compile(r"node #\s*\d+ \(\s*(\w+)\):\s+(.+?) \(")


@dataclass
class Split:
    """Nodes that one backend computes together: (op, name) in order, views left out."""

    backend: str
    n_inputs: int
    nodes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def ops(self) -> list[str]:
        return [op for op, _ in self.nodes]


def last_graph(log: Iterable[str]) -> list[Split]:
    """The splits of the graph that was built last."""
    splits: list[Split] = []
    for line in "".join(log).splitlines():
        if match := _SPLIT.search(line):
            if match[1] == "0":
                splits = []
            splits.append(Split(match[2], int(match[3])))
        elif splits and (match := _NODE.match(line)):
            splits[-1].nodes.append((match[1], match[2].strip()))
    return splits
