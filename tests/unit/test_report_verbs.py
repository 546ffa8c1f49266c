"""Records of drift, soak, runs on a GPU and streamed prompts in a report: what their documents say, with parts that may be missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slotpool import records
from slotpool.report import sheets
from slotpool.report.facts import Sheet
from tests.unit.report_records import record, spread

KLD = {"mean": 0.001, "median": 0.0005, "p99": 0.01, "max": 0.02}
ZERO = dict.fromkeys(KLD, 0.0)


def sheet(made: dict[str, Any]) -> Sheet:
    return sheets.sheet_of(records.check(json.loads(json.dumps(made))), "x.jsonl", 1)


def share(kld: dict[str, float], first: dict[str, Any] | None) -> dict[str, Any]:
    return {"kld": kld, "top1_flips": 1 if first else 0, "tokens_that_differ": 3 if first else 0, "first_difference": first}


def drift(**changed: Any) -> dict[str, Any]:
    text = {"name": "prose.txt", "tokens": 64, "ppl": {"cpu": {"ppl": 12.5, "error": 0.5}, "pool": {"ppl": None, "error": None}}}
    made = {
        "tokens": 64,
        "kld": KLD,
        "top1_flips": 2,
        "pool_share": {"kld_max": 0.0, **share(ZERO, None)},
        "placement": share(KLD, {"text": "prose.txt", "index": 7, "token": 5, "piece": "x"}),
        "verdict": "exact",
        "reason": "all is equal",
        "expected": "exact",
        "texts": [text | {"kld": KLD, "top1_flips": 2}],
        "prompts": {"chunks": 2, "chunk_tokens": 512, "same_after": True, "same_as_plain": False},
        "evictions": 9,
        "steps": 64,
        "steps_with_evictions": 60,
    }
    return record("drift", made | changed)


def test_drift_is_split_into_placement_and_pool() -> None:
    found = {table.title: table for table in sheet(drift()).content.tables}
    assert [row[0] for row in found["What moved it"].rows] == ["placement", "pool"]
    assert found["What moved it"].rows[0][-1] == "prose.txt, token 7"
    assert found["Prompts"].rows == (("2 of 512 tokens", "yes", "no"),)
    assert found["Texts, pool against plain llama.cpp on the CPU"].rows[0][2:4] == ("12.5 +- 0.5", "")


def test_drift_without_a_device_and_without_prompts_has_a_sheet() -> None:
    why = {"kld_max": None, "first_difference": None, "reason": "does not fit"}
    found = sheet(drift(placement=None, prompts=None, pool_share=why))
    assert [table.title for table in found.content.tables] == ["Texts, pool against plain llama.cpp on the CPU"]


def test_the_verdict_of_drift_is_the_record_s_own() -> None:
    found = sheet(drift(verdict="different", reason="a bit was flipped"))
    assert found.content.notes[0] == "Verdict: different: a bit was flipped. Expected: exact."
    assert found.content.headlines[0].value == "0.020"


def soak(speed: dict[str, Any]) -> dict[str, Any]:
    sample = {"hit_rate": 0.5, "anchor_tps": 20.0, "private_bytes": 1 << 20}
    samples = [sample | {"seconds": 60.0 * n, "hit_rate": None if n == 3 else 0.5} for n in range(10)]
    phase = {
        "phase": "parallel",
        "times": 3,
        "prompt_tps": 9.0,
        "generation_tps": None,
        "anchor_tps": 8.0,
        "hit_rate": 0.4,
        "private_bytes": 1024,
    }
    verdicts = {
        "anchors": {"verdict": "equal", "replays": 30, "differences": 0, "compared_with_plain": 3},
        "lookups": {"verdict": "pooled", "lookups": 7},
        "memory": {"process": {"verdict": "flat", "rounds": 8, "growth": 4096.0}},
        "speed": speed,
    }
    made = {"seconds": 3600.0, "rounds": 10, "aborted": 4, "failure": "", "verdicts": verdicts, "phases": [phase], "samples": samples}
    return record("soak", made)


def test_a_soak_shows_verdicts_phases_and_time() -> None:
    found = sheet(soak({"verdict": "slower", "rounds": 24, "ratio": 0.9, "low": 0.85, "high": 0.94})).content
    assert [row[:2] for row in found.tables[0].rows] == [
        ("anchors", "equal"),
        ("lookups", "pooled"),
        ("memory, process", "flat"),
        ("speed", "slower"),
    ]
    assert [chart.title for chart in found.charts] == ["Hit rate over time", "Speed of the anchors", "The process's own memory"]
    assert [len(chart.lines[0].points) for chart in found.charts] == [9, 10, 10]
    assert (found.ratios[0].spread.median, found.ratios[0].verdict) == (0.9, "slower (99 % interval)")
    assert found.headlines[0].what == "soak of 1.0 hours: anchors that differ, of 30 replays"


def test_a_soak_too_short_for_a_verdict_has_no_ratio() -> None:
    assert sheet(soak({"verdict": "too few rounds", "rounds": 2, "ratio": None, "low": None, "high": None})).content.ratios == ()


def test_a_long_soak_is_drawn_by_few_points() -> None:
    made = soak({"verdict": "too few rounds", "rounds": 2})
    made["results"]["samples"] *= 1000
    assert all(len(chart.lines[0].points) <= 400 for chart in sheet(made).content.charts)


def arm(step: str, name: str, *parts: float, **more: Any) -> dict[str, Any]:
    return {"step": f"{step}-{name}", "arm": name, "decode_parts": list(parts), "prompt": 100.0, **more}


def test_a_run_on_a_gpu_is_compared_with_the_better_of_plain_and_with_all_on_the_device() -> None:
    steps = [
        {"step": "build", "outcome": "ok"},
        {"step": "matrix-Q4_K", "same": True},
        {"step": "matrix-Q4_K", "same": False},
        {"step": "link", "memory": "pinned", "gb_per_second": {"1000": 2.5}},
        arm("speed", "plain-cpu", 10.0, 10.0),
        arm("speed", "plain-cpu-unpacked", 8.0, 8.0),
        arm("speed", "plain-device", 40.0, 40.0),
        arm("speed", "auto-16", 20.0, 30.0, hit_rate=0.5),
        {"step": "speed-auto-32", "outcome": "out of time"},
    ]
    found = sheet(record("gpu", {"steps": steps}, flags={"device": "CUDA0"})).content
    ratios = {(one.against, one.what): one.spread.samples for one in found.ratios}
    assert ratios[("plain-cpu", "generation")] == (2.0, 3.0)
    assert ratios[("plain-device", "generation")] == (0.5, 0.75)
    assert found.tables[0].rows == (("Q4_K", "2", "1"),)
    assert found.tables[1].rows == (("pinned", "1000 2.5"),)
    assert found.headlines[0].value == "1 of 2"


def test_streamed_prompts_are_compared_with_llama_cpp_s_own_path() -> None:
    def arm(*tps: float) -> dict[str, Any]:
        return {"speeds": {"long": spread(*tps), "chat": spread(*tps)}, "counts": {"long": {"hit_rate": 0.25}, "chat": {"hit_rate": 0.5}}}

    arms = {"stock": arm(10.0), "stream": arm(14.0), "auto": arm(9.0)}
    cell = {"ratio": 0.1, "share": 0.25, "slots": 8, "arms": arms, "hit_rate_bypass": 0.5, "hit_rate_stream": 0.6}
    found = sheet(record("prompt_stream", {"cells": [cell]})).content
    assert found.tables[0].rows == (("0.1", "25%", "1.400x", "0.900x", "1.400x", "0.900x", "25%", "50%", "50.0%", "60.0%"),)
    assert [(one.arm, one.spread.median, one.verdict) for one in found.ratios[:2]] == [
        ("stream", 1.4, "one round"),
        ("auto", 0.9, "one round"),
    ]


def bench(**changed: Any) -> dict[str, Any]:
    stats = {"lookups": 0, "slot_bytes": 0, "exact": True, "layers": []}
    common = {"depth": 0, "bytes_per_token": spread(0, 0), "free_bytes": {"RAM": spread(1 << 30, 1 << 30)}, "ttft_ms": spread(100, 110)}
    plain = common | {"name": "plain", "kind": "plain", "prompt_tps": spread(50, 51), "generation_tps": spread(10, 11), "stats": stats}
    pools = [
        plain | {"name": f"pool {n}", "kind": "pool", "hit_rate": spread(0.5), "stats": stats | {"lookups": 9, "layers": [{"slots": n}]}}
        for n in (8, 16)
    ]
    interval = {"low": 0.8, "median": 0.9, "high": 0.89, "samples": [0.9, 0.88]}  # an interval of the centre need not hold the median
    ratio = {"arm": "pool 8", "against": "plain", "what": "generation_tps", "depth": 0, "verdict": "slower", **interval}
    other = {"arm": "plain, unpacked", "against": "plain", "what": "generation_tps", "depth": 0, "verdict": "slower", **interval}
    made = {
        "text": {"name": "prose", "sha256": "ab" * 32},
        "state": "warm",
        "rounds": 2,
        "tokens": {"prompt": 64, "generation": 32},
        "arms": [plain | {"hit_rate": None}, plain | {"name": "plain, unpacked"}, *pools],
        "ratios": [ratio, other],
        "differences": [],
    }
    return record("bench", made | changed)


def test_a_bench_has_its_arms_and_the_verdicts_of_its_record() -> None:
    found = sheet(bench()).content
    speeds = [(one.arm, one.spread.median) for one in found.figures if one.what == "generation"]
    assert speeds == [("plain", 10.5), ("plain, unpacked", 10.5), ("pool 8", 10.5), ("pool 16", 10.5)]
    assert [(one.spread.median, one.spread.high, one.verdict, one.is_loss) for one in found.ratios] == [
        (0.9, 0.9, "slower", True),
        (0.9, 0.9, "slower", False),
    ]
    assert found.headlines[0].value == "0.900x"
    assert "Generation against slots" in [chart.title for chart in found.charts]


@pytest.mark.parametrize(
    ("flags", "place"),
    [
        ({}, "slots beside the experts in host memory"),
        ({"pool": {"device": None, "ram_budget": None}}, "slots beside the experts in host memory"),
        ({"pool": {"device": None, "ram_budget": "auto"}}, "slots in host memory, experts on disk"),
        ({"pool": {"device": ["CUDA0", "CUDA1"], "ram_budget": None}}, "slots on CUDA0, CUDA1, experts in host memory"),
        ({"pool": {"device": ["CUDA0"], "ram_budget": 1 << 30}}, "slots on CUDA0, experts on disk"),
    ],
)
def test_a_benchs_headline_says_where_slots_and_experts_were(flags: dict[str, Any], place: str) -> None:
    assert sheet(bench() | {"flags": flags}).content.headlines[0].what == f"slotpool bench, {place}, generation: pool 8, against plain"


def test_tokens_that_differ_in_a_bench_are_said_first_of_all() -> None:
    assert sheet(bench(differences=["pool 8 differs"])).content.notes[-1] == "DIFFERENT: pool 8 differs"
