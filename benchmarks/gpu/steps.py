"""Steps with time limits: each is a process whose output is kept, and whose lines of JSON become results as they come.

A step that fails or runs out of time is a result like any other; the next one decides for itself whether it can do without.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SHOWN = 12
"""Last lines of a step that failed, for who reads the screen only."""


@dataclass
class Steps:
    """Runs steps until `end` (of time.monotonic), results to `folder`/results.jsonl and one log for each step."""

    folder: Path
    end: float
    results: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        """Seconds until the end."""
        return self.end - time.monotonic()

    def run(self, name: str, command: Sequence[str], seconds: float, *, environment: Mapping[str, str] | None = None) -> bool:
        """Runs a command for at most so many seconds, fewer near the end; True when it ended with exit code 0."""
        limit = min(seconds, self.left())
        if limit < 1:
            self.note(name, outcome="left out: no time left")
            return False
        begin = time.monotonic()
        log = self.folder / f"{name}.log"
        with log.open("w", encoding="utf-8", errors="replace") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                env=dict(environment) if environment is not None else None,
                start_new_session=True,
                text=True,
                errors="replace",
            )
            reader = threading.Thread(target=self._read, args=(name, process, file), daemon=True)
            reader.start()
            outcome = _ended(process, limit)
            reader.join(5.0)
        self.note(name, outcome=outcome, seconds=round(time.monotonic() - begin, 1))
        if outcome != "ok":
            print("\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-_SHOWN:]), flush=True)
        return outcome == "ok"

    def note(self, step: str, **facts: Any) -> None:
        """One result: kept, in the file at once, and shown unless it only says that all was the same."""
        result = {"step": step, **facts}
        self.results.append(result)
        with (self.folder / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        if facts.get("same") is not True:
            print(f"{step}: " + ", ".join(f"{key} {_short(value)}" for key, value in facts.items()), flush=True)

    def of(self, step: str) -> list[dict[str, Any]]:
        """What a step has said so far, its outcome left out."""
        return [result for result in self.results if result["step"] == step and "outcome" not in result]

    def _read(self, name: str, process: subprocess.Popen[str], log: Any) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            self._take(name, lines, log)

    def _take(self, name: str, lines: Any, log: Any) -> None:
        for line in lines:
            found = _json(line)
            if found is None:
                log.write(line)
            else:
                self.note(name, **found)


def _ended(process: subprocess.Popen[str], limit: float) -> str:
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        _kill(process)
        return f"stopped after {limit:.0f} s"
    _kill(process)  # what it may have left behind
    return "ok" if code == 0 else f"exit code {code}"


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _json(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 160 else f"{text[:157]}..."
