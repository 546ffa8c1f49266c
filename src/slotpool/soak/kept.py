"""Samples of a session, kept in a file: what watches for growing memory must not be what grows.

The file has no name and goes with the session. Nothing but this room reads it.
"""

from __future__ import annotations

import pickle
import tempfile

from slotpool.soak.facts import Sample


class KeptSamples:
    """Samples in the order in which they were added."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the session
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def add(self, sample: Sample) -> None:
        """One more, about half a kilobyte."""
        pickle.dump(sample, self._file)
        self._n += 1

    def all(self) -> tuple[Sample, ...]:
        """Every one."""
        self._file.seek(0)
        return tuple(pickle.load(self._file) for _ in range(self._n))

    def close(self) -> None:
        """Forgets them."""
        self._file.close()
