"""The process of an arm: `python -m slotpool.drift FD` answers requests on a socket that its parent opened, until that closes it.

Knows only how to ask and answer; what can be asked is `arm`'s.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from multiprocessing.connection import Connection
from typing import Any

from slotpool.drift.arm import Arm
from slotpool.errors import SlotpoolError


def main() -> None:
    """Makes the arm, then answers until the parent is gone. Ends without tidying up: the parent waits for nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to answer
    os.dup2(2, 1)  # whatever the engine prints is no answer
    warnings.simplefilter("ignore", UserWarning)  # few slots are what is wanted here
    connection = Connection(int(sys.argv[1]))
    try:
        arm = _answered(connection, Arm, connection.recv())
        while arm is not None:
            name, arguments = connection.recv()
            _answered(connection, getattr(arm, name), *arguments)
    except (EOFError, ConnectionError):
        pass
    sys.stderr.flush()
    os._exit(0)


def _answered(connection: Connection, function: Any, *arguments: Any) -> Any:
    """Sends (True, result), or (False, what the SlotpoolError said) and gives None. An arm that was made is not sent."""
    try:
        result = function(*arguments)
    except SlotpoolError as error:
        connection.send((False, (error.message, error.where, error.do, error.exit_code)))
        return None
    connection.send((True, None if isinstance(result, Arm) else result))
    return result


if __name__ == "__main__":
    main()
