"""Plans a pool before anything is loaded: budgets with every term, slots where they pay, the speed to expect, go or no-go, and why.

Puts together what others know: the model, the devices, llama.cpp's own reservation, measured speeds, a trace. Loads and measures nothing.
"""

from slotpool.planning.decide import Decision, decide
from slotpool.planning.document import document
from slotpool.planning.given import Given

__all__ = ["Decision", "Given", "decide", "document"]
