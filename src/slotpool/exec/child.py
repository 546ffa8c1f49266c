"""Runs a program as a child so that nobody can tell: its signals reach it exactly once, its stops stop us, its end is ours.

The program stays in our process group, so the terminal's signals and a shell's job control work as if we were not there, pipelines
included. A signal that the whole group got the program has already; one that was sent to us alone is passed on. Which of the two it
was a witness tells: a small process in the group that notes what it gets (witness.py).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from slotpool.errors import SlotpoolError, printable

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGUSR1, signal.SIGUSR2)
_WAITED_FOR = (*PASSED_ON, signal.SIGCONT, signal.SIGCHLD)
_WITNESS_S = 0.25
"""How long the witness may take to say that it got a signal too: what a signal to us alone is late by."""


def run_child(program: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> int:
    """Runs `program` as `command` and returns its exit code, or 128 + n when signal n ended it.

    Should this process be killed, the program is too, and `folder` is removed by the witness.
    """
    with _arriving_signals() as arriving:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
        try:
            witness = Witness(folder)  # starts with signals blocked, so that it misses none
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with witness:
            child = _start(program, command, environment)
            witness.watch(child)
            return _exit_code(_wait(child, arriving, witness))


@contextmanager
def _arriving_signals() -> Iterator[int]:
    """A pipe's end from which the numbers of arriving signals are read, one byte each.

    Not sigwait: a thread of some library may exist, and would get a signal that is blocked only here. Who ignores a signal goes on
    ignoring it, and so does the program.
    """
    end, start = os.pipe()
    os.set_blocking(start, False)
    former: dict[signal.Signals, Any] = {}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent that ignores it would leave us nobody to wait for
    former_fd = signal.set_wakeup_fd(start, warn_on_full_buffer=False)
    try:
        for number in _WAITED_FOR:
            if signal.getsignal(number) != signal.SIG_IGN:
                former[number] = signal.signal(number, lambda *_: None)
        yield end
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(former_fd)
        os.close(start)
        os.close(end)


class Witness:
    """The process beside us in our group."""

    def __init__(self, folder: Path) -> None:
        script = Path(__file__).with_name("witness.py")
        numbers = ",".join(str(int(number)) for number in PASSED_ON)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), numbers, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._seen: Counter[int] = Counter()

    def __enter__(self) -> Witness:
        return self

    def __exit__(self, *_: object) -> None:
        self._tell("done")
        self._process.communicate()

    def watch(self, child: int) -> None:
        """Names the program that must not outlive us."""
        self._tell(f"{child}\n")

    def has_seen(self, number: int) -> bool:
        """Whether the group got the signal that we just got."""
        assert self._process.stdout is not None
        if not self._seen[number] and select.select([self._process.stdout], [], [], _WITNESS_S)[0]:
            self._seen.update(os.read(self._process.stdout.fileno(), 64))
        is_seen = self._seen[number] > 0
        self._seen[number] -= is_seen
        return is_seen

    def _tell(self, text: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # somebody killed it: signals to the group then arrive twice, and that is all
            self._process.stdin.write(text.encode())


def _start(program: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    # what Python ignores a program does not expect to be ignored
    reset = (signal.SIGPIPE, signal.SIGXFSZ)
    try:
        return os.posix_spawn(program, list(command), environment, setsigdef=reset)
    except OSError as error:
        raise SlotpoolError(f"cannot run the program: {error.strerror}", where=printable(program)) from error


def _wait(child: int, arriving: int, witness: Witness) -> int:
    """The wait status of `child` when it has ended. Until then its stops stop us, and what we get goes to it."""
    while True:
        for number in os.read(arriving, 1):
            if number == signal.SIGCHLD:
                ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
                if ended and not os.WIFSTOPPED(status):
                    return status
                if ended:
                    _stop_with(child)
            elif number == signal.SIGCONT or not witness.has_seen(number):
                os.kill(child, number)


def _stop_with(child: int) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)  # the shell must see its job stopped; we go on here when it lets it continue
    os.kill(child, signal.SIGCONT)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code
