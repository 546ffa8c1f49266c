"""The stats pages of this user's processes: finds them, reads them, and tells what is on them as the `stats` document.

Needs no core and no engine, writes nothing, and takes away only what a process left behind that is no more.
"""

from slotpool.page.document import Look, Window, stats_of, window
from slotpool.page.files import Pages, directories, look
from slotpool.page.layout import VERSION, Facts, Page, UnreadableError

__all__ = ["VERSION", "Facts", "Look", "Page", "Pages", "UnreadableError", "Window", "directories", "look", "stats_of", "window"]
