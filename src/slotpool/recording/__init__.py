"""Records routing while a model runs: through the engine's evaluation callback, or beside a pool through the core.

What comes out is a trace file (`slotpool.trace`); nothing here analyses it.
"""

from slotpool.recording.record import MODES, Recorded, Settings, Text, record

__all__ = ["MODES", "Recorded", "Settings", "Text", "record"]
