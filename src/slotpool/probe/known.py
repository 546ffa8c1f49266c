"""Speeds as they are known on this machine: recalled where they were measured before, measured and kept where not.

Shows no progress: who measures for a user is told of every task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from slotpool import engine, speeds
from slotpool.native.probe import Probe
from slotpool.probe.measure import Effort, measured
from slotpool.probe.subjects import Subjects, identity
from slotpool.probe.tasks import Task, tasks_of
from slotpool.speeds import Speed, Speeds

OnTask = Callable[[int, Task], None]
Progress = Callable[[int], AbstractContextManager[OnTask]]
"""From the number of tasks to a context in which each task is shown."""


def quiet(_n_tasks: int) -> AbstractContextManager[OnTask]:
    """Shows nothing."""
    return nullcontext(lambda _index, _task: None)


def known_speeds(subjects: Subjects, effort: Effort, *, is_fresh: bool = False, progress: Progress = quiet) -> tuple[Speeds, list[str]]:
    """The speeds of `subjects`, and what the user must know of them. `is_fresh` measures again whatever was kept."""
    kept, why = speeds.recall(identity())
    notes = [why] if why else []
    tasks = tasks_of(subjects, Probe(engine.function_address("ggml_backend_load")))
    missing = [task for task in tasks if is_fresh or not kept.find(task.subject, task.what, task.of)]
    with progress(len(missing)) as on_task:
        found, failed = measured(missing, effort, on_task)
    notes += [f"not measured: {line}" for line in failed]
    if found:
        kept = kept.added(found)
        unkept = speeds.keep(kept)
        notes += [unkept] if unkept else []
    here = [one for task in tasks if (one := kept.find(task.subject, task.what, task.of))]
    return Speeds(kept.identity, tuple(here)), notes + busy(here)


def busy(found: Sequence[Speed]) -> list[str]:
    """A line where the machine was busy with something else when some of them were measured."""
    worst = max((speed.load for speed in found if speed.is_busy), default=0.0)
    if not worst:
        return []
    return [f"the machine was busy when this was measured (load {worst:.1f} per core): speeds may be too low; try again with --fresh"]
