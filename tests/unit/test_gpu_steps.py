"""The steps of benchmarks/gpu: limits hold, results are in the file as they come, and the packed source has what a build reads."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu.source import is_wanted
from benchmarks.gpu.steps import Steps


def _run(steps: Steps, code: str, seconds: float = 30.0) -> bool:
    return steps.run("one", [sys.executable, "-u", "-c", code], seconds)


def _written(steps: Steps) -> list[dict[str, object]]:
    return [json.loads(line) for line in (steps.folder / "results.jsonl").read_text().splitlines()]


@pytest.fixture
def steps(tmp_path: Path) -> Steps:
    return Steps(tmp_path / "out", time.monotonic() + 60)


def test_lines_of_json_are_results_and_the_rest_is_the_log(steps: Steps) -> None:
    assert _run(steps, "import sys; print('{\"a\": 1}'); print('words'); print('{no json'); print('more', file=sys.stderr)")
    assert steps.of("one") == [{"step": "one", "a": 1}]
    log = (steps.folder / "one.log").read_text()
    assert "words" in log
    assert "{no json" in log
    assert "more" in log
    assert [result.get("outcome") for result in _written(steps)] == [None, "ok"]


_PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print('{"child": %d}' % child.pid)
child.wait()
"""


def test_step_that_takes_too_long_is_stopped_with_its_children_and_keeps_what_it_said(steps: Steps) -> None:
    begin = time.monotonic()
    assert not _run(steps, _PARENT, 2.0)
    assert time.monotonic() - begin < 20
    assert _written(steps)[-1]["outcome"] == "stopped after 2 s"
    (said,) = steps.of("one")
    assert not _is_running(said["child"])


def test_what_a_step_leaves_behind_is_ended(steps: Steps) -> None:
    assert _run(steps, _PARENT.replace("child.wait()", ""))
    (said,) = steps.of("one")
    assert not _is_running(said["child"])


def _is_running(pid: int) -> bool:
    for _ in range(50):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return False
        time.sleep(0.1)
    return True


def test_step_that_fails_says_its_exit_code(steps: Steps, capsys: pytest.CaptureFixture[str]) -> None:
    assert not _run(steps, "import sys; print('why', file=sys.stderr); sys.exit(3)")
    assert _written(steps)[-1]["outcome"] == "exit code 3"
    assert "why" in capsys.readouterr().out


def test_nothing_begins_after_the_end(tmp_path: Path) -> None:
    steps = Steps(tmp_path, time.monotonic())
    assert not _run(steps, "print('{\"a\": 1}')")
    assert _written(steps) == [{"step": "one", "outcome": "left out: no time left"}]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("", True),
        ("CMakeLists.txt", True),
        ("llama_cpp/llama.py", True),
        ("vendor/llama.cpp/ggml/src/ggml-cuda/mmq.cu", True),
        ("vendor/llama.cpp/models", False),
        ("vendor/llama.cpp/models-of-mine", True),
        ("vendor/llama.cpp/scripts/build-info.cmake", True),
        ("vendor/llama.cpp/scripts/sync.py", False),
        ("docs/index.md", False),
    ],
)
def test_source_is_cut_to_what_a_build_reads(name: str, wanted: bool) -> None:
    assert is_wanted(name) == wanted
