"""The witness of child.py: writes the number of each signal that its process group gets to stdout, and ends with its parent.

Run as a script, in a Python without site packages, so it imports nothing of slotpool. When the parent dies without saying `done`,
the program that it ran is killed and its private folder removed: nobody else is left to do it.
"""

import os
import shutil
import signal
import sys


def main(numbers: str, folder: str) -> None:
    """Notes signals `numbers` (with commas) until stdin ends; the first line on stdin is the program's process."""
    os.set_blocking(1, False)
    signal.set_wakeup_fd(1)  # writes a signal's number as one byte
    for number in map(int, numbers.split(",")):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    said = b""
    program = None
    while part := os.read(0, 64):
        said += part
        if program is None and b"\n" in said:
            program = process(int(said.split(b"\n")[0]))
    if said.endswith(b"done"):
        return
    if program is not None:
        signal.pidfd_send_signal(program, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def process(number: int) -> "int | None":
    """A handle of the process: its number may be another's by the time it is used. None when it has ended already."""
    try:
        return os.pidfd_open(number)
    except ProcessLookupError:
        return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
