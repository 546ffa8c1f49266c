"""`slotpool run`, `demo` and `doctor`: documents, exit codes and words, through the command's own front door."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slotpool.cli import main
from testkit import syn

SMALL = syn.Spec(n_layer=2, n_expert=16, n_expert_used=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return syn.write(SMALL, tmp_path_factory.mktemp("models") / "small.gguf")


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main([str(argument) for argument in arguments]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def test_run_json_has_the_fields_that_tools_rely_on(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "run", model, "-p", "hello", "-n", 70, "--slots", 8, "--json")
    assert len(made["tokens"]) == 70
    assert isinstance(made["text"], str)
    assert all(made[name] > 0 for name in ("prompt_tps", "generation_tps", "steady_tps", "ttft_ms"))
    stats = made["stats"]
    assert stats["lookups"] == stats["hits"] + stats["misses"] > 0
    assert stats["served"] == {"hit": stats["hits"], "copy": stats["misses"], "cpu": 0}  # one token at a time: a row per lookup
    assert stats["generation"]["lookups"] + stats["prompt"]["lookups"] == stats["lookups"]
    assert stats["exact"] is True
    assert stats["refused"] == 2  # 5 tokens x 4 experts do not fit 8 slots: both layers of the prompt's one ubatch
    assert [layer["layer"] for layer in stats["layers"]] == [0, 1]
    assert stats["lookups"] == 2 * 4 * 69  # the last token is sampled, not decoded


def test_run_writes_the_same_tokens_with_and_without_a_pool(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, *pooled = (
        document(capsys, "run", model, "-p", "hello", "-n", 40, "--slots", slots, "--no-repack", "--json") for slots in (0, 5, 8, "all")
    )
    assert plain["stats"]["lookups"] == 0
    for made in pooled:
        assert made["stats"]["lookups"] > 0
        assert made["tokens"] == plain["tokens"]
        assert made["text"] == plain["text"]


def test_run_prints_text_on_stdout_and_one_line_on_stderr(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model), "-p", "hello", "-n", "8", "--slots", "8"]) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith("\n")
    assert "pool 6 of 6 expert tensors" in printed.err
    assert "hit rate" in printed.err


def test_run_says_why_the_pool_is_off(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(model), "-p", "hello", "-n", "2"]) == 0
    assert "pool off: no device" in capsys.readouterr().err


def test_run_speeds_without_enough_tokens_are_null(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "run", model, "-p", "hello", "-n", 1, "--slots", 8, "--json")
    assert made["generation_tps"] is None
    assert made["steady_tps"] is None


def test_run_reads_a_prompt_from_a_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "prompt.txt").write_bytes(b"hello")
    from_file = document(capsys, "run", model, "-f", tmp_path / "prompt.txt", "-n", 5, "--json")
    assert from_file["tokens"] == document(capsys, "run", model, "-p", "hello", "-n", 5, "--json")["tokens"]


def test_run_samples_with_a_seed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = [
        document(capsys, "run", model, "-p", "a", "-n", 12, "--temperature", 5, "--seed", seed, "--json")["tokens"] for seed in (1, 1, 2)
    ]
    assert seeds[0] == seeds[1] != seeds[2]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-p", "x", "--slots", "3"], 2, "at least 4 slots"),
        (["-p", "x", "--slots", "many"], 2, 'found "many"'),
        (["-p", "x", "--slots", "-2"], 2, 'found "-2"'),
        (["-p", "x", "--policy", "lruk"], 2, 'unknown policy "lruk"'),
        (["-p", "x", "--require-pool"], 1, "expected something pooled"),
        (["-p", "x", "-f", "y"], 2, "expected one of --prompt and --file, found both"),
        ([], 2, "expected one of --prompt and --file, found none"),
        (["-p", ""], 2, "at least one token"),
        (["-p", "x", "-n", "1000", "--ctx", "32"], 2, "Try --ctx 1001"),
        (["-p", "x", "-n", "-1"], 2, "-1"),
        (["-p", "x", "--ctx", "0"], 2, "0"),
        (["-p", "x", "--chat"], 2, "chat template"),
        (["-p", "x", "--slot", "8"], 2, "--slots"),
        (["-f", "/no/such/file"], 2, "/no/such/file"),
    ],
)
def test_run_refuses_in_one_line(model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str) -> None:
    assert main(["run", str(model), *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert len(printed.err.splitlines()) <= 4


def test_run_refuses_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    assert main(["run", str(tmp_path / "x.gguf"), "-p", "x"]) == 2
    assert main(["run", str(tmp_path / "missing.gguf"), "-p", "x"]) == 2
    assert "bug" not in capsys.readouterr().err


def test_demo_checks_its_tokens_against_plain_llama_cpp() -> None:
    done = subprocess.run([sys.executable, "-m", "slotpool.cli", "demo", "-n", "24"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "wrote the same 24 tokens" in done.stdout
    assert "hit rate" in done.stdout


def test_demo_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "demo", "-n", 12, "--json")
    assert made["same_tokens"] is True
    assert made["plain_tokens"] == made["tokens"]
    assert made["stats"]["lookups"] > 0


def test_doctor_finds_everything_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "doctor", "--json")
    assert found["abi"] == "fits"
    assert found["verdict"] == "ok"
    assert "CPU" in [device["type"] for device in found["devices"]]
    assert main(["doctor"]) == 0
    assert "A pool can be used here." in capsys.readouterr().out


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_bug_and_no_message_strays_into_the_json(model: Path, closed: str) -> None:
    line = f'"{sys.executable}" -m slotpool.cli run "{model}" -f - -n 2 --slots 5 --json {closed} < /dev/null'
    line = line.replace(" < /dev/null", "") if closed == "<&-" else line.replace("-f -", "-p hello")
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert "bug" not in done.stderr + done.stdout
    assert done.returncode == (2 if closed == "<&-" else 0)  # a closed stdin is an empty prompt
    if closed == "2>&-":
        assert json.loads(done.stdout)["stats"]["lookups"] > 0


def test_an_interrupt_while_the_engine_logs_is_not_lost() -> None:
    code = (
        "import ctypes, os, signal, llama_cpp\n"
        "from slotpool import engine\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background of a script ignores it
        "with engine.captured_log():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('held', flush=True)\n"
        "print('lost')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "held\n"
    assert "KeyboardInterrupt" in done.stderr


def test_only_our_own_warnings_are_shown(model: Path) -> None:
    command = [sys.executable, "-m", "slotpool.cli", "run", str(model), "-p", "hello", "-n", "2", "--slots", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "arning" in line] == [
        "warning: 5 slots are fewer than twice the 4 experts a token uses: this is the slow end"
    ]
