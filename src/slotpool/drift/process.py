"""The parent's end of an arm: starts its process, asks, and says in a line why one died.

Arms are asked one after the other, so that they never compute at the same time: two that share the cores would wait for each other.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from slotpool.drift.facts import ArmSpec, Chunk, Counts, Hello
from slotpool.drift.numbers import Logits
from slotpool.errors import REFUSED, SlotpoolError, quoted

_NOT_OURS = ("GGML_BACKEND_PATH", "SLOTPOOL_PLAN")
_SECONDS = 10


class ArmProcess:
    """An arm as the parent sees it, to be used in a with block: its process ends with it."""

    def __init__(self, spec: ArmSpec) -> None:
        """Raises SlotpoolError, in the arm's own words, when its model does not load."""
        self.name = spec.name
        ours, its = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        with its:
            command = [sys.executable, "-m", "slotpool.drift", str(its.fileno())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors, env=_environment(), pass_fds=(its.fileno(),)
            )
        self._connection = Connection(ours.detach())
        try:
            self._connection.send(spec)
            self._answer()
            self.hello: Hello = self.ask("hello")
        except BaseException:
            self.end()
            raise

    def ask(self, request: str, *arguments: object) -> Any:
        """One request and its answer. SlotpoolError with what the arm says, or how its process ended."""
        try:
            self._connection.send((request, arguments))
        except ConnectionError as error:
            raise self._death() from error
        return self._answer()

    def tokenize(self, text: bytes) -> list[int]:
        return cast(list[int], self.ask("tokenize", text))

    def decode(self, tokens: Sequence[int]) -> Logits:
        return cast(Logits, self.ask("decode", tokens))

    def chunk(self, tokens: Sequence[int]) -> Chunk:
        return cast(Chunk, self.ask("chunk", tokens))

    def forget(self) -> None:
        self.ask("forget")

    def counts(self) -> Counts:
        return cast(Counts, self.ask("counts"))

    def has_core(self) -> bool:
        return bool(self.ask("has_core"))

    def end(self) -> None:
        """Ends the process, now."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def __enter__(self) -> ArmProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def _answer(self) -> Any:
        try:
            is_well, result = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise self._death() from error
        if not is_well:
            message, where, do, exit_code = result
            raise SlotpoolError(f"arm {self.name}: {message}", where=where, do=do, exit_code=exit_code)
        return result

    def _death(self) -> SlotpoolError:
        """What is known of a process that ended without an answer."""
        code = self._process.wait(_SECONDS)
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
        last = quoted(lines[-1]) if lines else "no word"
        return SlotpoolError(f"arm {self.name}: its process ended with {code}: {last}", exit_code=REFUSED)


def _environment() -> dict[str, str]:
    """The user's, without what would bring a core into a plain process."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), kept.get("PYTHONPATH"))))
    return kept | {"PYTHONPATH": path}
