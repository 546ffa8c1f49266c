"""The arithmetic of the disk_tier benchmark on runs whose figures are known beforehand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import disk_figures

FILE = 8_000_000_000


def run(arm: str, cap: int, tps: float, prompt_tps: float, miss_mb: float = 0.0, disk: float = 1e9, hash_: str = "a") -> dict[str, Any]:
    """A run of 4 warm tokens at half the speed and 10 steady ones."""
    steady = {"hits": 9, "lookups": 12, "bytes_copied": int(10 * miss_mb * 1e6), "wait_ms": 50.0, "read_bytes": 0, "major_faults": 20}
    one = {"n_warm": 4, "n_prompt": 100, "times": [2 / tps] * 4 + [1 / tps] * 10, "steady": steady, "hashes": [hash_] * 3}
    one["prompt"] = {"seconds": 100 / prompt_tps}
    load = {"seconds": 3.0, "read_bytes": 1}
    made = {
        "arm": arm,
        "cap": cap,
        "round": 0,
        "failed": "",
        "repacked_bytes": int(arm == "plain, repacked"),
        "disk": [disk - 1e8, disk + 1e8],
    }
    return made | {"passes": [one], "load": load, "peak_bytes": 1}


RUNS = [
    run("pool", 0, 10.0, 20.0),
    run("plain", 0, 9.0, 25.0),
    run("plain, repacked", 0, 12.5, 40.0),
    run("pool", 2, 8.0, 10.0, miss_mb=50.0),
    run("plain", 2, 0.5, 2.0),
    {**run("plain, load mode none", 2, 1.0, 1.0), "failed": "killed: signal 9"},
]


def test_speeds_of_a_run() -> None:
    found = disk_figures.speeds(RUNS[3])
    assert found["steady_tps"] == pytest.approx(8.0)
    assert found["cold_tps"] == pytest.approx(14 / (4 * 0.25 + 10 * 0.125))
    assert (found["hit_rate"], found["miss_bytes"], found["wait_ms"], found["major_faults"]) == (0.75, 50e6, 5.0, 2.0)
    assert found["ttft_seconds"] == pytest.approx(13.0)


def test_the_bound_is_compute_or_the_disk_whichever_is_lower() -> None:
    bounds = disk_figures.figures(RUNS, [2], FILE)["2"]["bounds"]
    assert [one["by"] for one in bounds] == ["compute"]  # 1 GB/s over 50 MB a token allow 20
    assert bounds[0]["share"] == pytest.approx(8.0 / 12.5)
    assert bounds[0]["share_in_layout"] == pytest.approx(8.0 / 9.0)
    assert bounds[0]["prompt_tps"] == pytest.approx(100 * 1e9 / FILE)  # the file once
    slow = [*RUNS[:3], run("pool", 2, 8.0, 10.0, miss_mb=100.0)]
    assert disk_figures.figures(slow, [2], FILE)["2"]["bounds"][0]["share"] == pytest.approx(8.0 / 10.0)


def test_the_pool_is_compared_with_the_plain_arm_that_is_best() -> None:
    found = disk_figures.figures(RUNS, [2], FILE)["2"]
    assert found["over_plain"]["steady_tps"] == pytest.approx(16.0)
    assert found["arms"]["plain, load mode none"] == {"failed": ["killed: signal 9"]}
    assert "killed: signal 9" in disk_figures.line({"file_bytes": FILE, "samples": RUNS, "figures": {"2": found}, "unequal_logits": []})


def test_a_cap_that_no_plain_arm_survives_has_nothing_to_compare_with() -> None:
    found = disk_figures.figures([*RUNS[:4], RUNS[5]], [2], FILE)
    assert (found["2"]["plain_tps"], found["2"]["over_plain"]) == (None, {})
    json.dumps(found, allow_nan=False)  # what a record is made of
    assert (
        "x of plain" not in disk_figures.line({"file_bytes": FILE, "samples": RUNS, "figures": found, "unequal_logits": []}).split("1/2")[1]
    )


def test_other_logits_void_a_comparison() -> None:
    assert disk_figures.unequal_logits(RUNS) == []
    other = [*RUNS, run("plain", 2, 0.5, 2.0, hash_="b")]
    assert len(disk_figures.unequal_logits(other)) == 3
    repacked = [run(arm, 2, 0.5, 2.0, hash_="b") | {"repacked_bytes": 1} for arm in ("plain, repacked", "pool")]
    assert disk_figures.unequal_logits([*RUNS[:2], *repacked]) == []
    assert len(disk_figures.unequal_logits([*RUNS, *repacked])) == 3
