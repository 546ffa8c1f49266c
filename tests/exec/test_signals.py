"""Signals, stops and deaths: a program under `slotpool exec` gets what it would get alone, once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.exec.conftest import command, environment

Script = Callable[[str], list[str]]
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
COUNTING = """
import os, signal, sys, time
from pathlib import Path
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda n, _: got.append(int(n)))
print(os.getpid(), os.environ["SLOTPOOL_PLAN"], flush=True)
deadline = time.monotonic() + 20
while not got and time.monotonic() < deadline:
    time.sleep(0.01)
end = time.monotonic() + 1  # a second one would come by now
while time.monotonic() < end:
    time.sleep(0.05)
print(got, flush=True)
"""
WAITING = "import os, time; print(os.getpid(), os.environ['SLOTPOOL_PLAN'], flush=True); time.sleep(60)"


@contextmanager
def started(program: list[object], **options: object) -> Iterator[subprocess.Popen[str]]:
    """The command in a process group of its own, but in our session: a shell's job."""
    process = subprocess.Popen(
        command(("--slots", 8), program),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=options.pop("preexec_fn", os.setpgrp),  # type: ignore[arg-type]
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> tuple[int, Path]:
    assert process.stdout is not None
    number, plan = process.stdout.readline().split()
    return int(number), Path(plan)


def state(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def becomes(process: int, wanted: str) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if state(process) in wanted.split():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("to_group", [False, True], ids=["to us alone", "to the group"])
def test_a_signal_arrives_once(script: Script, model_path: Path, number: signal.Signals, to_group: bool) -> None:
    with started([*script(COUNTING), "-m", model_path]) as process:
        first_line(process)
        (os.killpg if to_group else os.kill)(process.pid, number)
        out, _ = process.communicate(timeout=30)
    assert out == f"[{int(number)}]\n"
    assert process.returncode == 0


def test_a_second_signal_arrives_too(script: Script, model_path: Path) -> None:
    with started([*script(COUNTING.replace("while not got", "while len(got) < 2")), "-m", model_path]) as process:
        first_line(process)
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.6)
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert out == "[2, 2]\n"


@pytest.mark.parametrize("to_group", [False, True], ids=["to us alone", "to the group"])
def test_a_stopped_program_stops_us_and_both_go_on(script: Script, model_path: Path, to_group: bool) -> None:
    send = os.killpg if to_group else os.kill
    with started([*script(WAITING.replace("60", "1.5") + "; print('went on')"), "-m", model_path]) as process:
        program, _ = first_line(process)
        send(process.pid, signal.SIGTSTP)
        assert becomes(program, "T")
        assert becomes(process.pid, "T")
        send(process.pid, signal.SIGCONT)
        assert becomes(program, "S R")
        out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == ("went on\n", 0)


def test_what_is_ignored_stays_ignored_and_nothing_else_is(script: Script, model_path: Path) -> None:
    def as_nohup() -> None:
        os.setpgrp()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    shell = ["sh", "-c", "exec grep -E 'SigBlk|SigIgn' /proc/self/status", "-m", str(model_path)]
    with started(shell, preexec_fn=as_nohup) as process:
        out, _ = process.communicate(timeout=30)
    blocked, ignored = (int(line.split()[1], 16) for line in out.splitlines())
    # the C library has two more signals of its own, 32 and 33, and ignores them in what it spawns
    assert (blocked, ignored & 0x7FFFFFFF) == (0, 1 << (signal.SIGHUP - 1) | 1 << (signal.SIGINT - 1))


def test_when_we_are_killed_the_program_and_its_plan_go_too(script: Script, model_path: Path) -> None:
    with started([*script(WAITING), "-m", model_path]) as process:
        program, plan = first_line(process)
        assert plan.exists()
        os.kill(process.pid, signal.SIGKILL)
        assert becomes(program, "gone Z")
        deadline = time.monotonic() + 20
        while plan.parent.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not plan.parent.exists()


def test_a_signal_that_ends_the_program_leaves_nothing_behind(script: Script, model_path: Path) -> None:
    with started([*script(WAITING), "-m", model_path]) as process:
        _, plan = first_line(process)
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert not plan.parent.exists()
