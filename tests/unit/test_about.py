"""Which checkout a record comes from: changed files count, what benchmarks themselves write does not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from slotpool import about


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("core/include/slotpool.h", "benchmarks/records/a.jsonl", "docs/performance.md", "docs/log.md", "README.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(about, "_ROOT", tmp_path)
    return tmp_path


def test_a_new_record_changes_nothing_that_is_measured(checkout: Path) -> None:
    assert not about.has_uncommitted_changes()
    for name in ("benchmarks/records/a.jsonl", "docs/performance.md"):
        (checkout / name).write_text("2")
    assert not about.has_uncommitted_changes()


@pytest.mark.parametrize("name", ["core/include/slotpool.h", "README.md", "docs/log.md"])
def test_any_other_change_is_one(checkout: Path, name: str) -> None:
    (checkout / name).write_text("2")
    assert about.has_uncommitted_changes()


def test_a_package_outside_of_a_checkout_has_no_commit(checkout: Path) -> None:
    assert about.commit()
    (checkout / "core/include/slotpool.h").unlink()
    assert about.commit() is None
    assert not about.has_uncommitted_changes()
