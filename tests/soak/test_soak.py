"""Soaks that find nothing where nothing is wrong, on the CPU and from disk, and find what was put in on purpose."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import pytest

from slotpool import records, soak
from slotpool.cli import main
from slotpool.loading import PooledLlama
from slotpool.soak import session
from slotpool.soak.reference import Replies
from tests.soak.conftest import CPU, SETTINGS

ALL = {"prose", "code", "parallel", "chat prose", "chat code", "long prompt"}
DISK = {"ram_budget": 40 * 2**20, "slots": 6, "require_pool": True}
TINY = ["--ctx", "128", "--parallel", "1", "--rounds", "8"]
SHORT = ["--rounds", "1", "--ctx", "256", "--threads", "1", "--parallel", "2"]


def soaked(demo: Path, plain: Replies, pool: dict[str, Any], rounds: int = 2, **more: Any) -> dict[str, Any]:
    return soak.document(soak.run(demo, SETTINGS, pool, soak.Limit(rounds=rounds), plain, **more))


@pytest.mark.parametrize("pool", [CPU, CPU | {"slots": 4}, DISK], ids=["cpu", "least", "disk"])
@pytest.mark.filterwarnings("ignore:.* slots are fewer")
def test_a_healthy_session_is_equal_to_plain_llama_cpp(pool: dict[str, Any], demo: Path, plain: Replies) -> None:
    made = soaked(demo, plain, pool)
    assert made["differences"] == []
    assert (made["ok"], made["exact"], made["failure"]) == (True, True, "")
    assert {one["name"] for one in made["anchors"] if one["equals_plain"] is True} == ALL
    # every round: one anchor a phase; an abort and two answers of a second context ask one more; chats take turns
    assert sum(one["replays"] for one in made["anchors"]) == 2 * (len(soak.PHASES) + 1 + 2 + 3)
    assert made["aborted"] == 4
    assert made["second_contexts"] == 2
    assert made["stats"]["evicted"] > 100
    assert made["stats"]["lookups"] > 0
    # a chat of 192 tokens in turns of 32: the second turn finds 31 tokens, the third 63...
    assert made["reused_tokens"] == 2 * sum(32 * turn - 1 for turn in range(1, 6))


@pytest.mark.parametrize("swap_slots", [True, False], ids=["wrong-slot-map", "one-byte-per-slot"])
def test_a_damaged_slot_is_found(swap_slots: bool, demo: Path, plain: Replies) -> None:
    """In every slot, in the middle of the session; all experts have slots, so that no eviction repairs them."""
    touched = []

    def damage(llm: PooledLlama, number: int, phase: str) -> None:
        if (number, phase) == (1, "parallel"):
            assert llm.slotpool_session
            touched.append(llm.slotpool_session.corrupt(2, swap_slots=swap_slots))

    made = soaked(demo, plain, CPU | {"slots": "all"}, disturb=damage)
    assert touched == [24]
    assert not made["ok"]
    assert made["verdicts"]["anchors"]["verdict"] == "differ"
    first = made["differences"][0]
    assert (first["round"], first["phase"], first["against"]) == (1, "parallel", "the first time")


def test_an_answer_that_is_not_plain_llama_cpp_s_is_found(demo: Path, plain: Replies) -> None:
    wrong = dict(plain)
    changed = wrong["code"][3]
    wrong["code"] = (*wrong["code"][:3], type(changed)(changed.token, "0" * 16, changed.logit, changed.lead), *wrong["code"][4:])
    made = soaked(demo, wrong, CPU, rounds=1)
    assert [(one["anchor"], one["against"], one["output"]) for one in made["differences"]] == [("code", "plain llama.cpp", 3)]
    assert not made["ok"]
    assert [one["name"] for one in made["anchors"] if not one["equals_plain"]] == ["code"]


def test_a_leak_is_found_and_the_exit_code_says_so(demo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four megabytes a phase in this process, through the command itself; pages of its own, since the heap would give what it has free."""
    n_bytes, kept, run = 4 << 20, [], session.run

    def leak(_llm: PooledLlama, _round: int, _phase: str) -> None:
        kept.append(mmap.mmap(-1, n_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        kept[-1].write(b"x" * n_bytes)

    def leaking(*arguments: Any) -> Any:
        return run(*arguments, disturb=leak)

    monkeypatch.setattr(soak, "run", leaking)
    code = main(["soak", str(demo), "--slots", "8", "--device", "CPU", "--no-reference", *SHORT, *TINY, "--json"])
    made = json.loads(capsys.readouterr().out)
    assert code == 1
    assert made["verdicts"]["memory"]["process"]["verdict"] == "grows"
    assert made["verdicts"]["memory"]["process"]["slope"] == pytest.approx(9 * n_bytes, rel=0.2)
    assert made["verdicts"]["anchors"]["verdict"] == "equal"


def test_the_command_says_what_it_found(demo: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "soak.html"
    kept = tmp_path / "records.jsonl"
    arguments = ["soak", str(demo), "--slots", "8", "--device", "CPU", *SHORT, "--html", str(page), "--record", str(kept)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "equal to the bit" in said
    assert "6 requests compared" not in said  # one round has one of the two chats
    assert "5 requests compared with plain llama.cpp" in said
    assert "Hit rate over time" in page.read_text()
    assert "http" not in page.read_text()
    (record,) = records.read(kept)
    assert (record.kind, record.flags["slots"], record.results["ok"]) == ("soak", 8, True)
    assert len(record.results["samples"]) == len(soak.PHASES)
    assert main(arguments) == 2
    assert "--force" in capsys.readouterr().err


def test_a_damaged_session_has_exit_code_1(demo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = session.run

    def damaging(*arguments: Any) -> Any:
        return run(
            *arguments, disturb=lambda llm, _round, phase: phase == "long prompt" and llm.slotpool_session.corrupt(0, swap_slots=True)
        )

    monkeypatch.setattr(soak, "run", damaging)
    assert main(["soak", str(demo), "--slots", "all", "--device", "CPU", "--no-reference", *SHORT]) == 1
    assert "DIFFERENT: " in capsys.readouterr().out


def test_a_session_without_a_pool_is_refused(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", str(demo), "--no-reference", "--slots", "0", *SHORT]) == 1
    assert "pooled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "1", "--minutes", "1"], "expected one of --minutes and --rounds"),
        (["--rounds", "1", "--parallel", "9"], "expected a context of at least 576 tokens"),
        (["--minutes", "0"], "--minutes"),
    ],
)
def test_wrong_options_are_exit_code_2(arguments: list[str], said: str, demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", str(demo), "--slots", "8", "--device", "CPU", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_an_interrupt_ends_the_session_with_what_was_seen(demo: Path) -> None:
    def interrupt(_llm: PooledLlama, number: int, phase: str) -> None:
        if (number, phase) == (0, "chat prose"):
            raise KeyboardInterrupt

    observed = soak.run(demo, SETTINGS, CPU, soak.Limit(rounds=5), {}, disturb=interrupt)
    assert observed.is_interrupted
    assert [one.phase for one in observed.samples] == list(soak.PHASES[:5])


def test_time_ends_a_session_after_its_first_round(demo: Path) -> None:
    observed = soak.run(demo, SETTINGS, CPU, soak.Limit(seconds=0.001), {})
    assert observed.n_rounds == 1
