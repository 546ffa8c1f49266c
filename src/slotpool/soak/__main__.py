"""The process in which plain llama.cpp answers: python -m slotpool.soak, the question on stdin, the answer on stdout, both JSON.

Not for people: `slotpool soak` starts it.
"""

from __future__ import annotations

import json
import sys

from slotpool.errors import SlotpoolError


def main() -> int:
    """The exit code; why not on stderr, in one line."""
    from slotpool.soak.reference import answer

    try:
        print(json.dumps(answer(json.load(sys.stdin))))
    except SlotpoolError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
