"""A process with chaos devices: devices cannot be unloaded, so what uses them is run in one that ends with its test."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor

from . import Chaos

_loaded: list[Chaos] = []


def process(knobs: Mapping[str, float] | None) -> ProcessPoolExecutor:
    """A process of its own for functions of importable modules, with the devices in it before anything else; None: without any."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, spawn) if knobs is None else ProcessPoolExecutor(1, spawn, _load, (dict(knobs),))


def here() -> Chaos | None:
    """The devices of this process, where `process` made it so."""
    return _loaded[0] if _loaded else None


def _load(knobs: Mapping[str, float]) -> None:
    _loaded.append(Chaos.load(**knobs))
