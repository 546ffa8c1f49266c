"""Which slotpool this is: its version, and the commit of the checkout that it runs from.

Knows nothing of the engine and of the machine.
"""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SECONDS = 10.0
_WRITTEN = ("benchmarks/records", "docs/performance.md")
"""What benchmarks write: else all but the first of a series of them would say that something was changed."""


def version() -> str:
    """The installed version of slotpool; `unknown` when it runs from a checkout that is not installed."""
    try:
        return metadata.version("slotpool")
    except metadata.PackageNotFoundError:
        return "unknown"


def commit() -> str | None:
    """The checkout's commit, short; None for an installed package and where git does not say."""
    return _git("rev-parse", "--short", "HEAD") or None


def has_uncommitted_changes() -> bool:
    """Whether files of the checkout that git knows were changed since; records, and the page of them, are no part of what they measure."""
    return bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".", *(f":(exclude){path}" for path in _WRITTEN)))


def _git(*arguments: str) -> str:
    # an installed package may lie inside somebody else's repository, whose commit is not ours
    if not (_ROOT / "core/include/slotpool.h").is_file():
        return ""
    try:
        done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
