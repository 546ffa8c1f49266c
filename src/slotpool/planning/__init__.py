"""Plans a pool before anything is loaded: budgets with every term, slots where they pay, the speed to expect, go or no-go, and why.

Puts together what others know: the model, the devices, llama.cpp's own reservation, measured speeds, a trace. Loads and measures nothing.
"""

from slotpool.planning.choosing import Choice, choose
from slotpool.planning.decide import decide
from slotpool.planning.decision import Decision
from slotpool.planning.document import document
from slotpool.planning.gather import Asked, gather
from slotpool.planning.given import Given
from slotpool.planning.locking import lock_notes

__all__ = ["Asked", "Choice", "Decision", "Given", "choose", "decide", "document", "gather", "lock_notes"]
