"""`python -m slotpool.cli`: the same as the `slotpool` command, from a checkout that is not installed."""

import sys

from slotpool.cli import main

if __name__ == "__main__":
    sys.exit(main())
