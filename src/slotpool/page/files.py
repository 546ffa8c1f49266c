"""Finds the pages of this user's processes and reads each as it was at one moment, while its process goes on.

Reads with `pread` and maps nothing: a file that is cut while it is read is then a short read and not a SIGBUS, and the kernel copies
aligned words whole, so no counter is torn. Never waits for a process, and never writes to a page.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slotpool.errors import printable
from slotpool.page.layout import MAX_BYTES, Header, Page, UnreadableError, counters_at, read_counts, read_facts, read_header

_PIECE = 1 << 18
_TRIES = 50
_PAUSE_S = 0.0002
_YOUNG_S = 2.0
"""A process makes its file, then locks it: a file without a lock that is older than this has lost its process."""


@dataclass(frozen=True)
class Pages:
    """What a look found: pages, in the order of their processes' start, and a line for each file that cannot be used."""

    pages: tuple[Page, ...]
    problems: tuple[str, ...]


def directories() -> list[Path]:
    """Where processes of this user put their pages: the first that they can use, and a reader's environment may be another."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    user = os.geteuid()
    found = [Path(runtime, "slotpool")] if runtime.startswith("/") else []
    found += [Path(f"/run/user/{user}/slotpool"), Path(f"/dev/shm/slotpool-{user}")]
    return list(dict.fromkeys(found))


def look(folders: Sequence[Path] | None = None) -> Pages:
    """Reads every page there is, and removes those whose process is gone."""
    pages: list[Page] = []
    problems: list[str] = []
    for folder in directories() if folders is None else folders:
        for name in _names(folder, problems):
            try:
                page = _page_of(folder, name)
            except (UnreadableError, OSError) as error:
                reason = (error.strerror or "the system says no") if isinstance(error, OSError) else str(error)
                problems.append(f"{reason} (at {printable(folder / name)})")
            else:
                pages += [page] if page else []
    return Pages(tuple(sorted(pages, key=lambda page: (page.facts.header.started_ns, page.facts.header.pid))), tuple(problems))


def _names(folder: Path, problems: list[str]) -> list[str]:
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            problems.append(f"expected a directory of this user's, found another (at {printable(folder)})")
            return []
        return sorted(name for name in os.listdir(folder) if name.endswith(".page"))
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{error.strerror} (at {printable(folder)})")
        return []


def _page_of(folder: Path, name: str) -> Page | None:
    """None when there is nothing to show: no process, a process that has only just begun, or a file that has gone meanwhile."""
    path = folder / name
    try:
        with _opened(path) as file:
            if not _is_owned(file):
                _remove_left_behind(path, file)
                return None
            return read_page(file)
    except FileNotFoundError:
        return None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise UnreadableError("expected a file of this user's, found another")
        yield file
    finally:
        os.close(file)


def _is_owned(file: int) -> bool:
    """Whether a process lives that has this page. It holds a lock on it, which no crash and no reused pid can leave behind."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _remove_left_behind(path: Path, file: int) -> None:
    ours, there = os.fstat(file), os.lstat(path)
    if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino) and time.time() - ours.st_ctime > _YOUNG_S:
        os.unlink(path)


def read_page(file: int) -> Page | None:
    """The page in an open file, every text whole and every group's counters of one moment. None: not finished yet.

    A process that is stopped while it changes a text is waited for 10 ms. Raises UnreadableError, OSError.
    """
    for _ in range(_TRIES):
        before = _bytes_of(file)
        header = read_header(before)
        if header is None:
            return None
        after = read_header(_bytes_of(file))
        if header.changes % 2 == 0 and after is not None and after.changes == header.changes:
            facts = read_facts(header, before)
            return Page(
                facts, tuple(read_counts(facts, index, _settled(file, header, index, before)) for index in range(len(facts.groups)))
            )
        time.sleep(_PAUSE_S)
    raise UnreadableError("expected a page that can be read, found one that its process is changing all the time")


def _settled(file: int, header: Header, index: int, page: bytes) -> bytes:
    """The counters of a group, read until two reads in a row find the same: then no event was being counted in between.

    Counters that never rest, which a layer's do between two tokens, are taken as they are: each is whole all the same.
    """
    places = counters_at(header, index)
    found = b"".join(page[begin:end] for begin, end in places)
    for _ in range(_TRIES):
        again = b"".join(os.pread(file, end - begin, begin) for begin, end in places)
        if again == found:
            break
        if len(again) != len(found):
            raise UnreadableError("expected a page that only grows, found one that was cut while it was read")
        found = again
    return found


def _bytes_of(file: int) -> bytes:
    """All of a file. The header comes first, so whatever it speaks of has been there when the rest is read."""
    found = bytearray()
    while piece := os.pread(file, _PIECE, len(found)):
        found += piece
        if len(found) > MAX_BYTES:
            raise UnreadableError(f"expected a page of at most {MAX_BYTES} bytes, found more")
    return bytes(found)
