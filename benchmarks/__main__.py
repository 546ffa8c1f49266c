"""`python -m benchmarks [NAME...]`: runs benchmarks one after the other, goes on after one that fails, and writes docs/performance.md anew.

Each runs in a process of its own, so that none dies of another's crash or finds another's devices. Exit code 1 when one failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.one import SKIPPED
from benchmarks.order import ALL, Entry, duration, entry

ROOT = Path(__file__).parents[1]
DONE, LEFT_OUT, FAILED = "done", "skipped", "failed"
TIDY_SECONDS = 60.0
"""What an interrupted benchmark gets to put things away."""


def main(names: Sequence[str]) -> int:
    """Runs `names`, or all: 0 when all ran or were skipped, 1 when one failed, 2 for a name that is none."""
    if list(names) == ["--list"]:
        print("\n".join(f"{one.name:20} about {duration(one.seconds):>6}  {one.what}" for one in ALL))
        return 0
    wrong = [name for name in names if entry(name) is None]
    if wrong:
        print(f'unknown benchmark "{wrong[0]}" (valid: {", ".join(one.name for one in ALL)}; --list says more)', file=sys.stderr)
        return 2
    entries = [one for one in ALL if not names or one.name in names]
    states = run_all(entries)
    failed = [name for name, state in states.items() if state == FAILED]
    if DONE in states.values():
        failed += [] if _write_documents() else ["docs/performance.md"]
    say(summary(states))
    return 1 if failed else 0


def run_all(entries: Sequence[Entry]) -> dict[str, str]:
    """What became of each benchmark, in their order."""
    states: dict[str, str] = {}
    started = time.monotonic()
    for number, one in enumerate(entries):
        left = sum(later.seconds for later in entries[number:])
        when = f"about {duration(one.seconds)} ({duration(time.monotonic() - started)} passed, about {duration(left)} left)"
        say(f"[{number + 1}/{len(entries)}] {one.name}: {one.what}; {when}")
        states[one.name] = run_one(one)
    return states


def run_one(one: Entry) -> str:
    """Runs a benchmark in a process of its own; its figures go to stdout, what it says on the way to stderr."""
    began = time.monotonic()
    code = run_child([sys.executable, "-m", "benchmarks.one", one.name])
    state = DONE if code == 0 else LEFT_OUT if code == SKIPPED else FAILED
    how = f" (exit code {code})" if state == FAILED else ""
    say(f"{one.name}: {state}{how} after {duration(time.monotonic() - began)}")
    return state


def run_child(command: Sequence[str]) -> int:
    """Runs a command and returns its exit code. An interrupt reaches it from the terminal as well: it gets time to put away what it made
    (control groups, servers, files), and is killed when it takes too long, or at the next interrupt."""
    with subprocess.Popen(command, cwd=ROOT) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired):
                child.wait(TIDY_SECONDS)
            raise
        finally:
            child.kill()  # of one that has ended it is nothing


def summary(states: dict[str, str]) -> str:
    """One line: how many were done, and the names of the others."""
    parts = [f"{sum(state == DONE for state in states.values())} of {len(states)} benchmarks done"]
    for state in (LEFT_OUT, FAILED):
        names = [name for name, found in states.items() if found == state]
        parts += [f"{state}: {', '.join(names)}"] if names else []
    return "; ".join(parts)


def _write_documents() -> bool:
    return subprocess.run([sys.executable, str(ROOT / "scripts/docs.py")], cwd=ROOT, check=False).returncode == 0


def say(text: str) -> None:
    """A line of progress."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        say("interrupted; what was done so far has its records, scripts/docs.py shows them")
        sys.exit(130)
