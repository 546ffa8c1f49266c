"""How many misses of an event are copied before use, by the costs of copies and of the CPU: the core's rule against its formula."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

PROGRAM = """
#include <cstdio>
#include "dispatch/miss_costs.h"
int main() {
    slotpool::MissCosts costs;
    int n = 0;
    while (std::scanf("%lf %lf %lf %lf %d", &costs.copy_ns, &costs.host_ns, &costs.device_ns, &costs.fetch_ns, &n) == 5) {
        std::printf("%d %d\\n", slotpool::n_to_copy(costs, n), slotpool::n_in_time(costs, n));
    }
}
"""
Case = tuple[float, float, float, float, int]
Decide = Callable[[Sequence[Case]], list[tuple[int, int]]]


@pytest.fixture(scope="module")
def decide(tmp_path_factory: pytest.TempPathFactory) -> Decide:
    """(copy, host, device, fetch, misses) -> (copied before use, copied for later), of each case."""
    folder = tmp_path_factory.mktemp("miss-costs")
    (folder / "costs.cpp").write_text(PROGRAM)
    core = Path(__file__).parents[2] / "core"
    compiler = shutil.which("c++") or "g++"
    subprocess.run([compiler, "-std=c++17", f"-I{core}", str(folder / "costs.cpp"), "-o", str(folder / "costs")], check=True)

    def ask(cases: Sequence[Case]) -> list[tuple[int, int]]:
        text = "\n".join(" ".join(map(str, case)) for case in cases)
        done = subprocess.run([folder / "costs"], input=text, capture_output=True, text=True, check=True)
        return [(int(a), int(b)) for a, b in (line.split() for line in done.stdout.splitlines())]

    return ask


def event_ns(copy: float, host: float, device: float, fetch: float, misses: int, copied: int) -> float:
    """What an event takes: the device's compute waits for its copies, or runs beside the CPU where there are none."""
    on_host = (misses - copied) * host
    if copied == misses:
        return device + copied * copy
    return fetch + (max(device, on_host) if copied == 0 else device + max(copied * copy, on_host))


def test_the_shortest_event_is_taken_and_of_equals_the_most_copies(decide: Decide) -> None:
    rng = random.Random(3)
    cases: list[Case] = [(*(float(rng.choice((1, 2, 3, 5, 8, 40))) for _ in range(4)), rng.randint(1, 8)) for _ in range(500)]  # type: ignore[misc]
    for case, (copied, _) in zip(cases, decide(cases), strict=True):
        times = [event_ns(*case, n) for n in range(case[4] + 1)]
        assert copied == max(n for n, time in enumerate(times) if time == min(times)), case


@pytest.mark.parametrize("unknown", [0, 1])
def test_nothing_is_copied_before_use_while_a_cost_is_unknown(decide: Decide, unknown: int) -> None:
    costs = [5.0, 5.0, 1.0, 1.0]
    costs[unknown] = 0.0
    assert decide([(costs[0], costs[1], costs[2], costs[3], 4)]) == [(0, 1)]


def test_a_quick_link_copies_all_and_a_slow_one_none(decide: Decide) -> None:
    assert [copied for copied, _ in decide([(1.0, 10.0, 2.0, 1.0, 4), (50.0, 1.0, 2.0, 1.0, 4)])] == [4, 0]


def test_at_equal_speeds_copies_and_the_cpu_share_an_event(decide: Decide) -> None:
    assert [copied for copied, _ in decide([(10.0, 10.0, 2.0, 1.0, 4)])] == [2]


def test_later_copies_are_those_that_end_while_the_cpu_computes(decide: Decide) -> None:
    assert [later for _, later in decide([(1.0, 3.0, 1.0, 1.0, 2), (9.0, 3.0, 1.0, 1.0, 2), (1e-9, 3.0, 1.0, 1.0, 2)])] == [6, 1, 1_000_000]
