"""Measures what this machine can do: memory, experts, links, disks, alone and together; and where a full device gets slow.

Decides nothing: `slotpool.speeds` says how speeds are named and kept, the planner what follows from them.
"""

from slotpool.probe.known import busy, known_speeds
from slotpool.probe.measure import Effort, measured
from slotpool.probe.subjects import Subjects, of_machine, of_model
from slotpool.probe.tasks import Task, tasks_of

__all__ = ["Effort", "Subjects", "Task", "busy", "known_speeds", "measured", "of_machine", "of_model", "tasks_of"]
