"""The bench with the engine, on the bundled model: arms are what their names say, to the lookup, and arms that lie give no result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotpool import bench, records
from slotpool.bench import process
from slotpool.errors import SlotpoolError
from slotpool.model import read
from tests.device.test_device_rpc import servers

__all__ = ["servers"]
DEMO = Path(__file__).parents[2] / "src/slotpool/data/demo.gguf"
N_LAYER, N_USED, N_GENERATE = 4, 4, 12
SETTINGS = bench.Settings(
    DEMO, n_prompt=16, n_generate=N_GENERATE, n_warm=24, rounds=2, slots=(0, 12), extra=("bypass", "static"), threads=1, repack=False
)
Ask = Callable[..., tuple[int, dict[str, Any]]]


def measure(settings: bench.Settings) -> bench.Measured:
    return bench.measure(settings, bench.read_text(None), read(DEMO), lambda _done, _total, _what: None)


@pytest.fixture(scope="module")
def measured() -> bench.Measured:
    return measure(SETTINGS)


@pytest.fixture(scope="module")
def document(measured: bench.Measured) -> dict[str, Any]:
    return bench.document(measured)


def rounds_of(measured: bench.Measured, name: str) -> tuple[dict[str, Any], ...]:
    return next(answers for arm, answers in zip(measured.arms, measured.answers, strict=True) if arm.name == name)


# ---- what ran ----


def test_every_run_is_a_process_of_its_own(measured: bench.Measured) -> None:
    processes = [answer["process"] for answers in measured.answers for answer in answers]
    assert len(set(processes)) == len(processes) == 2 * 4
    assert os.getpid() not in processes


def test_plain_has_not_even_the_core_in_its_process(measured: bench.Measured) -> None:
    for answer in rounds_of(measured, "plain"):
        assert not answer["is_core_mapped"]
        assert not answer["is_core_registered"]
        assert answer["stats"]["lookups"] == 0
    assert all(answer["is_core_mapped"] for answer in rounds_of(measured, "pool 12"))


def test_lookups_of_the_measured_tokens_are_exactly_theirs(measured: bench.Measured) -> None:
    for name in ("pool 12", "static 12"):
        for answer in rounds_of(measured, name):
            found = answer["generation"]
            assert found["lookups"] == found["hits"] + found["misses"] == N_GENERATE * N_LAYER * N_USED
            assert found["refused"] == 0


def test_static_arm_keeps_what_it_has_while_it_is_measured(measured: bench.Measured) -> None:
    for answer in rounds_of(measured, "static 12"):
        assert (answer["generation"]["admitted"], answer["generation"]["evicted"], answer["generation"]["bytes_copied"]) == (0, 0, 0)
        assert answer["generation"]["misses"] > 0
    assert sum(answer["generation"]["admitted"] for answer in rounds_of(measured, "pool 12")) > 0


def test_bypass_arm_has_the_slots_of_the_pool_and_uses_none(measured: bench.Measured) -> None:
    pool, bypass = rounds_of(measured, "pool 12")[0], rounds_of(measured, "bypass 12")[0]
    assert bypass["stats"]["slot_bytes"] == pool["stats"]["slot_bytes"] > 0
    assert bypass["generation"]["refused"] == N_GENERATE * N_LAYER
    assert bypass["generation"]["lookups"] == 0


def test_all_arms_of_a_round_read_the_same_and_no_two_rounds_do(measured: bench.Measured) -> None:
    digests = [{answers[number]["digest"] for answers in measured.answers} for number in range(2)]
    assert [len(found) for found in digests] == [1, 1]
    assert digests[0] != digests[1]


def test_pools_give_the_bits_of_plain(document: dict[str, Any]) -> None:
    assert document["differences"] == []
    for arm in document["arms"][1:]:
        found = arm["agreement"]
        assert (found["with"], found["kernels"], found["different"], found["logits_equal"]) == ("plain", "same", 0, True), arm["name"]
        assert found["tokens"] == 2 * (1 + N_GENERATE)


def test_nothing_is_repacked_where_that_was_asked_for(document: dict[str, Any]) -> None:
    assert [arm["repacked_bytes"] for arm in document["arms"]] == [0, 0, 0, 0]


def test_the_page_cache_had_the_model_that_was_just_written(document: dict[str, Any]) -> None:
    shares = [arm["cached_share"] for arm in document["arms"]]
    if None in shares:
        pytest.skip("this system does not say what is in its page cache")
    assert all(share["low"] > 0.9 for share in shares)  # of a file with gaps, pages that nobody read yet are not there


# ---- lies ----


def lying(monkeypatch: pytest.MonkeyPatch, about: str, lie: Callable[[Ask, dict[str, Any]], tuple[int, dict[str, Any]]]) -> None:
    """Lets another answer come for the arms whose name begins with `about`."""
    ask = process.ask
    monkeypatch.setattr(process, "ask", lambda name, job: lie(ask, dict(job)) if name.startswith(about) else ask(name, job))


def as_pool(ask: Ask, job: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """A pool runs, and says that it is plain."""
    started, answer = ask("plain", job | {"kind": "pool", "options": job["options"] | {"slots": 12}})
    assert answer["stats"]["lookups"] > 0
    return started, answer | {"kind": "plain", "is_core_mapped": False, "is_core_registered": False}


def as_plain(ask: Ask, job: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Plain llama.cpp runs, and says that it is the pool."""
    started, answer = ask("pool", job | {"kind": "plain", "options": job["options"] | {"slots": 0}})
    return started, answer | {"kind": "pool", "is_core_registered": True}


@pytest.mark.parametrize(
    ("about", "lie", "words"),
    [("plain", as_pool, "expected 0 pooled lookups, found "), ("pool", as_plain, "expected pooled tensors, found none")],
)
def test_arm_that_lies_about_itself_gives_no_result(
    monkeypatch: pytest.MonkeyPatch, about: str, lie: Callable[..., Any], words: str
) -> None:
    lying(monkeypatch, about, lie)
    with pytest.raises(SlotpoolError, match=words) as refused:
        measure(replace(SETTINGS, extra=()))
    assert refused.value.exit_code == 1
    assert len(str(refused.value).splitlines()) == 1


def test_stale_answer_gives_no_result(monkeypatch: pytest.MonkeyPatch, measured: bench.Measured) -> None:
    lying(monkeypatch, "plain", lambda _ask, _job: (1, rounds_of(measured, "plain")[0]))
    with pytest.raises(SlotpoolError, match="expected the answer of process 1, found one of process"):
        measure(replace(SETTINGS, extra=()))


def test_pool_that_nobody_asks_for_gives_no_result() -> None:
    with pytest.raises(SlotpoolError, match="expected pooled tensors, found none: off: no device to pool on") as refused:
        measure(replace(SETTINGS, slots=("auto",), extra=()))
    assert refused.value.exit_code == 1


def test_process_that_dies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WORKER", (sys.executable, "-c", "import sys; sys.exit('no memory left')"))
    with pytest.raises(SlotpoolError, match=r'arm "pool 8" died \(exit code 1\): no memory left') as refused:
        process.ask("pool 8", {})
    assert refused.value.exit_code == 1


def test_what_a_worker_refuses_is_said_in_its_words() -> None:
    with pytest.raises(SlotpoolError, match=r'cannot open .*none.gguf.*\(arm "text"\)|none.gguf'):
        process.ask("text", {"model": "none.gguf", "text": "x", "rpc": []})


# ---- the command ----


def slotpool(cache: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slotpool.cli", "bench", *map(str, arguments), "--threads", "1", "--rounds", "2"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(Path(bench.__file__).parents[2])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_cold_sweep_over_slots_and_depth_is_a_document_a_record_and_a_page(tmp_path: Path) -> None:
    kept, html = tmp_path / "kept.jsonl", tmp_path / "page.html"
    lengths = ("-p", 8, "-n", 4, "--warm", 0, "--slots", "0,8,all", "--depth", "0,32")
    done = slotpool(tmp_path, DEMO, *lengths, "--json", "--record", kept, "--html", html)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(arm["name"], arm["depth"]) for arm in found["arms"]] == [
        (name, depth) for depth in (0, 32) for name in ("plain", "pool 8", "pool all")
    ]
    assert (found["state"], len(found["ratios"])) == ("cold", 2 * 2 * 3)
    (record,) = records.read(kept)
    assert record.results == found
    assert (record.kind, record.model and record.model["name"], record.flags["depths"]) == ("bench", "demo.gguf", [0, 32])
    assert str(tmp_path) not in kept.read_text()
    page = html.read_text()
    assert page.count("<svg") == 6
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "record: " in done.stderr


def test_device_has_plain_arms_with_experts_on_both_sides(tmp_path: Path, servers: list[str]) -> None:
    rpc = ("--rpc", servers[0], "--device", "RPC0", "--rail", 0, "--slots", 12, "-p", 8, "-n", 4, "--warm", 4)
    done = slotpool(tmp_path, DEMO, *rpc, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [arm["name"] for arm in found["arms"]] == [
        "plain, experts on the CPU",
        "plain, experts of 2 of 4 layers on the device",
        "pool 12",
    ]
    on_cpu, split, pool = found["arms"]
    assert on_cpu["buffers"].get("RPC0[127.0.0.1:" + servers[0].split(":")[1] + "]", 0) < sum(split["buffers"].values())
    assert pool["stats"]["devices"][0]["name"] == "RPC0"
    assert {one["against"] for one in found["ratios"] if one["arm"] == "pool 12"} == {on_cpu["name"], split["name"]}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("none.gguf",), 2, "none.gguf"),
        ((DEMO, "--slots", "8", "--arm", "bypas"), 2, "Did you mean bypass"),
        ((DEMO, "-p", "4000", "--slots", "8"), 2, "expected a text of"),
        ((DEMO, "--depth", "8k"), 2, "expected a text of"),
        ((DEMO, "--record", DEMO), 2, "expected a file of records"),
        ((DEMO, "--html", DEMO), 2, "expected a new file"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_measured(tmp_path: Path, arguments: tuple[object, ...], code: int, words: str) -> None:
    done = slotpool(tmp_path, *arguments)
    assert (done.returncode, words in done.stderr, done.stdout) == (code, True, ""), done.stderr
    assert len(done.stderr.strip().splitlines()) <= 4
