"""Runs tasks: several samples each, median and spread, with something else beside them where the task says so. Knows no devices."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone

from slotpool import engine
from slotpool.errors import SlotpoolError
from slotpool.probe.tasks import Repeats, Task
from slotpool.speeds import Speed, summary

_BESIDE_SECONDS = 0.02


@dataclass(frozen=True)
class Effort:
    """So many samples of at least so many seconds each, after a shorter one that does not count."""

    n_samples: int = 5
    seconds: float = 0.1


def measured(
    tasks: Sequence[Task], effort: Effort, on_task: Callable[[int, Task], None] = lambda _i, _t: None
) -> tuple[list[Speed], list[str]]:
    """The speeds, and a line for each that could not be had. `on_task` is told before each, with its number."""
    load, found, failed = load_per_core(), [], []
    for index, task in enumerate(tasks):
        on_task(index, task)
        try:
            found.append(_measure(task, effort, load))
        except SlotpoolError as error:
            failed.append(f"{task.subject}, {task.what}: {error}")
    return found, failed


def load_per_core() -> float:
    """The load average of the last minute over the cores of this process."""
    return os.getloadavg()[0] / engine.n_cores()


def _measure(task: Task, effort: Effort, load: float) -> Speed:
    work = task.make()
    try:
        with _going_on(task.beside):
            work.repeat(effort.seconds / 4)
            samples = [_value(task, *work.repeat(effort.seconds)) for _ in range(effort.n_samples)]
    finally:
        work.close()
    median, low, high = summary(samples)
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    note = getattr(work, "why_buffered", "")
    return Speed(task.subject, task.what, task.unit, median, low, high, len(samples), task.of, date, load, note)


def _value(task: Task, amount: int, seconds: float) -> float:
    return amount / seconds if task.unit == "B/s" else seconds * task.each / amount


@contextmanager
def _going_on(make: Callable[[], Repeats] | None) -> Iterator[None]:
    """Within it the work goes on, on a thread of its own."""
    if make is None:
        yield
        return
    work, is_over, began = make(), threading.Event(), threading.Event()

    def go_on() -> None:
        while not is_over.is_set():
            try:
                work.repeat(_BESIDE_SECONDS)
            finally:
                began.set()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    began.wait()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        work.close()
