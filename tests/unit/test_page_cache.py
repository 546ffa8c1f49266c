"""What of a file is in the page cache: of files that were just written, dropped, read in part."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from slotpool import page_cache

MIB = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is in its page cache")


def drop(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def written(path: Path, n_bytes: int) -> Path:
    path.write_bytes(b"x" * n_bytes)
    return path


def test_a_file_that_was_just_written_is_there_and_one_that_was_dropped_is_not(tmp_path: Path) -> None:
    path = written(tmp_path / "a", 3 * MIB + 17)
    assert page_cache.cached_share([path]) == 1.0
    drop(path)
    if page_cache.cached_share([path]) == 1.0:
        pytest.skip("this file system keeps its files in memory")
    assert page_cache.cached_share([path]) == 0.0


def test_the_share_is_one_of_bytes_over_all_files(tmp_path: Path) -> None:
    large, small = written(tmp_path / "a", 3 * MIB), written(tmp_path / "b", MIB)
    drop(large)
    if page_cache.cached_share([large]) == 1.0:
        pytest.skip("this file system keeps its files in memory")
    assert page_cache.cached_share([large, small]) == 0.25


def test_windows_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_WINDOW", 1 << 16)
    assert page_cache.cached_share([written(tmp_path / "a", MIB + 5)]) == 1.0


def test_what_nobody_says_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a", 100)
    assert page_cache.cached_share([path, tmp_path / "none"]) is None
    assert page_cache.cached_share([written(tmp_path / "empty", 0)]) is None
    assert page_cache.cached_share([tmp_path]) is None
    assert page_cache.cached_share([]) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert page_cache.cached_share([path]) is None


def test_a_file_of_somebody_else_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux says of those that all of it is there."""
    path = written(tmp_path / "a", 100)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert page_cache.cached_share([path]) is None
