"""What a reader of a bench's table must know beside its numbers."""

from __future__ import annotations

from typing import Any

import pytest

from slotpool.cli.bench_table import notes

UNKNOWN = "how much of the model was in the page cache before a run, this system does not say"


def arm(name: str, share: dict[str, Any] | None) -> dict[str, Any]:
    return {"name": name, "kind": "pool", "depth": 0, "cached_share": share, "agreement": None}


def shares(low: float, high: float) -> dict[str, Any]:
    return {"median": high, "low": low, "high": high, "samples": [low, high, high]}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([shares(1.0, 1.0), shares(1.0, 1.0)], ["100% of the model was in the page cache before every run"]),
        (
            [shares(0.0, 1.0), shares(0.001, 0.999)],
            [
                "a: 0% to 100% of the model was in the page cache before its runs",
                "b: 1% to 99% of the model was in the page cache before its runs",
            ],
        ),
        ([shares(1.0, 1.0), None], [UNKNOWN]),
    ],
)
def test_what_was_in_the_page_cache_is_said_once_or_arm_by_arm(found: list[Any], expected: list[str]) -> None:
    lines = notes({"arms": [arm(*one) for one in zip("ab", found, strict=True)], "ratios": [], "error_rate": 0.03})
    assert lines[:-1] == expected
