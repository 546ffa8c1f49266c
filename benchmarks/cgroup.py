"""A memory control group around one process: made, limited before the process touches anything, read, removed. Linux, versions 1 and 2.

Judges nothing. Version 2 needs the root of its mount, where memory can be handed to children; elsewhere it is skipped.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc/self")
_DROP = Path("/proc/sys/vm/drop_caches")


class SkippedError(Exception):
    """This machine lacks what a benchmark needs; the message is one line that says what."""


@dataclass(frozen=True)
class Version:
    """Names of files and keys of one version of control groups. `kills` and `failures` are (file, key); no key: the file is a number.

    Where a limit on memory and swap together is the same as that on memory, it is the one that is met.
    """

    number: int
    limit: str
    swap: str
    peak: str
    kills: tuple[str, str]
    failures: tuple[tuple[str, str], ...]
    rss: str
    cache: str


V1 = Version(
    1,
    limit="memory.limit_in_bytes",
    swap="memory.memsw.limit_in_bytes",  # memory and swap together
    peak="memory.max_usage_in_bytes",
    kills=("memory.oom_control", "oom_kill"),
    failures=(("memory.failcnt", ""), ("memory.memsw.failcnt", "")),
    rss="rss",
    cache="cache",
)
V2 = Version(
    2,
    limit="memory.max",
    swap="memory.swap.max",
    peak="memory.peak",
    kills=("memory.events", "oom_kill"),
    failures=(("memory.events", "max"),),
    rss="anon",
    cache="file",
)


@dataclass(frozen=True)
class Ended:
    """How a process ended: exit code (negative: the signal), what it wrote, and whether its time was up."""

    code: int
    output: str
    errors: str
    is_late: bool


@dataclass(frozen=True)
class Group:
    """One control group. Sizes in bytes."""

    path: Path
    version: Version

    def limit(self, n_bytes: int) -> None:
        """Memory that its processes may use, page cache included; they get no swap."""
        (self.path / self.version.limit).write_text(str(n_bytes))
        swap = self.path / self.version.swap
        if swap.exists():
            swap.write_text(str(n_bytes if self.version.number == 1 else 0))

    def run(self, command: Sequence[str], timeout: float) -> Ended:
        """Runs `command` inside, from its first instruction on. Past `timeout` seconds it is killed."""
        inside = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs"), *command]
        process = subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        is_late = False
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException as error:  # an interrupt too: nothing may stay behind in the group
            process.kill()
            output, errors = process.communicate()
            is_late = isinstance(error, subprocess.TimeoutExpired)
            if not is_late:
                raise
        return Ended(process.returncode, output, errors, is_late)

    @property
    def peak(self) -> int:
        """The most that was used; 0 where the kernel does not say."""
        file = self.path / self.version.peak
        return int(file.read_text()) if file.exists() else 0

    @property
    def n_kills(self) -> int:
        """Processes that the kernel killed for memory."""
        return self._value(*self.version.kills)

    @property
    def n_failures(self) -> int:
        """How often the limit was met."""
        return sum(self._value(*one) for one in self.version.failures)

    def split(self) -> dict[str, int]:
        """What is used now: `rss`, the processes' own memory, and `cache`, pages of files."""
        return {"rss": self._value("memory.stat", self.version.rss), "cache": self._value("memory.stat", self.version.cache)}

    def _value(self, file: str, key: str) -> int:
        path = self.path / file
        text = path.read_text() if path.exists() else ""
        if not key:
            return int(text or 0)
        return next((int(line.split()[1]) for line in text.splitlines() if line.split()[0] == key), 0)


@contextmanager
def group(limit: int | None, proc: Path = _PROC) -> Iterator[Group]:
    """A new group with a limit of `limit` bytes (None: none), removed at the end. Raises SkippedError where there can be none."""
    parent, version = where(proc)
    made = Group(parent / f"benchmark-{os.getpid()}", version)
    try:
        if version.number == 2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        made.path.mkdir()
    except OSError as error:
        raise SkippedError(
            f"expected leave to make a memory control group, found: {error.strerror} (at {made.path}). Run it as root"
        ) from error
    try:
        if limit is not None:
            made.limit(limit)
        yield made
    finally:
        _remove(made.path)


def where(proc: Path = _PROC) -> tuple[Path, Version]:
    """The group to make groups in, and its version. Raises SkippedError where the kernel has no memory control groups mounted."""
    for root, mount, kind, options in _mounts(proc):
        if kind == "cgroup" and "memory" in options.split(","):
            own = next(
                line.split(":", 2)[2] for line in (proc / "cgroup").read_text().splitlines() if "memory" in line.split(":")[1].split(",")
            )
            return Path(mount) / os.path.relpath(own, root), V1
    for _, mount, kind, _ in _mounts(proc):
        controllers = Path(mount, "cgroup.controllers")
        if kind == "cgroup2" and controllers.exists() and "memory" in controllers.read_text().split():
            return Path(mount), V2
    raise SkippedError(f"expected a mounted memory control group, found none (in {proc}/mountinfo)")


def drop_caches() -> None:
    """Empties the system's page cache. Raises SkippedError where that is not allowed."""
    os.sync()
    try:
        _DROP.write_text("3")
    except OSError as error:
        raise SkippedError(f"expected leave to drop the page cache, found: {error.strerror} (at {_DROP}). Run it as root") from error


def _mounts(proc: Path) -> Iterator[tuple[str, str, str, str]]:
    """(root, mount point, type, options) of everything that is mounted."""
    file = proc / "mountinfo"
    for line in file.read_text().splitlines() if file.exists() else ():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ")[:3]
        yield before.split()[3], before.split()[4], kind, options


def _remove(path: Path) -> None:
    empty = path / "memory.force_empty"
    if empty.exists():  # version 1: what is cached would keep the group alive, unseen
        with suppress(OSError):
            empty.write_text("0")
    for _ in range(50):
        with suppress(OSError):
            path.rmdir()
            return
        time.sleep(0.1)  # a killed process leaves its group a moment later
    raise RuntimeError(f"expected an empty control group, found one in use (at {path})")
