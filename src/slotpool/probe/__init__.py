"""Measures what this machine can do: memory, experts, links, disks, alone and together; and where a full device gets slow.

Decides nothing: `slotpool.speeds` says how speeds are named and kept, the planner what follows from them.
"""

from slotpool.probe.cliff import Cliff, Step, find_cliff
from slotpool.probe.measure import Effort, measured
from slotpool.probe.subjects import Subjects, of_machine, of_model
from slotpool.probe.tasks import Task, tasks_of

__all__ = ["Cliff", "Effort", "Step", "Subjects", "Task", "find_cliff", "measured", "of_machine", "of_model", "tasks_of"]
