"""Measured speeds: their names, and a cache file that may hold anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotpool import speeds
from slotpool.speeds import Speed, Speeds

SPEED = Speed("CPU", speeds.READ, "B/s", 2.0, 1.0, 3.0, 5, "2 threads", "2026-11-29T00:00:00+00:00", 0.1)
KNOWN = Speeds("a machine", (SPEED, replace(SPEED, subject="GPU0", what=speeds.UPLOAD, of="a card")))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "slotpool"


def test_what_was_kept_is_recalled() -> None:
    assert speeds.keep(KNOWN) == ""
    assert speeds.recall("a machine") == (KNOWN, "")


def test_another_machine_knows_nothing() -> None:
    speeds.keep(KNOWN)
    assert speeds.recall("another machine") == (Speeds("another machine"), "")


def test_a_copied_file_of_another_machine_is_not_used() -> None:
    speeds.keep(KNOWN)
    os.replace(speeds.cache_path("a machine"), speeds.cache_path("another"))
    found, why = speeds.recall("another")
    assert (found.all, "measured again" in why) == ((), True)


def test_the_file_is_replaced_as_a_whole_and_leaves_nothing_else(cache: Path) -> None:
    speeds.keep(KNOWN)
    speeds.keep(KNOWN.added([replace(SPEED, median=2.5)]))
    assert len(list(cache.iterdir())) == 1
    assert speeds.recall("a machine")[0].value("CPU", speeds.READ) == 2.5


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(speeds.cache_path("a machine").read_text())
    change(document)
    return json.dumps(document).encode()


def one(**values: object) -> Callable[[], bytes]:
    return lambda: changed(lambda document: document["speeds"][0].update(values))


DAMAGES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "cut": lambda: changed(lambda _: None)[:-20],
    "no JSON": lambda: b"\xff\x00" * 100,
    "deep": lambda: b"[" * 200_000,
    "a list": lambda: b"[]",
    "a number": lambda: b"7",
    "version": lambda: changed(lambda document: document.update(version=2)),
    "no speeds": lambda: changed(lambda document: document.pop("speeds")),
    "speeds are no list": lambda: changed(lambda document: document.update(speeds=3)),
    "many": lambda: changed(lambda document: document.update(speeds=document["speeds"] * 6000)),
    "field missing": lambda: changed(lambda document: document["speeds"][0].pop("low")),
    "field too many": lambda: changed(lambda document: document["speeds"][0].update(more=1)),
    "zero": one(low=0.0),
    "negative": one(low=-1.0),
    "text": one(median="fast"),
    "true": one(median=True),
    "null": one(median=None),
    "infinite": lambda: changed(lambda _: None).replace(b'"high": 3.0', b'"high": Infinity'),
    "out of order": one(low=5.0),
    "unit": one(unit="furlongs"),
    "no samples": one(n_samples=0),
    "load": one(load=-1.0),
    "huge": lambda: b" " * (5 << 20),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_counts_as_none_and_says_so(damage: str) -> None:
    speeds.keep(KNOWN)
    speeds.cache_path("a machine").write_bytes(DAMAGES[damage]())
    found, why = speeds.recall("a machine")
    assert found == Speeds("a machine")
    assert "damaged or of another version" in why
    assert speeds.keep(KNOWN) == ""
    assert speeds.recall("a machine") == (KNOWN, "")


def test_a_cache_that_cannot_be_written_is_a_line_and_no_failure(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert "cannot keep the measured speeds" in speeds.keep(KNOWN)
    found, why = speeds.recall("a machine")
    assert (found.all, why != "") == ((), True)


def test_a_relative_cache_home_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert speeds.cache_path("x").is_absolute()


def test_a_speed_of_something_else_is_not_found() -> None:
    assert KNOWN.find("GPU0", speeds.UPLOAD, "a card") is not None
    assert KNOWN.find("GPU0", speeds.UPLOAD, "another card") is None
    assert KNOWN.value("GPU0", speeds.DOWNLOAD, speeds.UPLOAD) == 2.0


def test_a_loaded_machine_is_busy() -> None:
    assert not SPEED.is_busy
    assert replace(SPEED, load=1.0).is_busy


@pytest.mark.parametrize("samples", [[], [0.0], [1.0, float("nan")], [float("inf")], [-1.0]])
def test_samples_that_are_no_speeds_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="finite samples"):
        speeds.summary(samples)
    assert speeds.summary([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
