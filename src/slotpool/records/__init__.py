"""Records: what one run was and what came of it, one JSON object a line, version 1 (docs/design/records.md).

Measures nothing and judges nothing; `report` shows records, `bench`, `drift`, `soak` and the benchmarks write them.
"""

from slotpool.records.facts import make
from slotpool.records.files import append, read
from slotpool.records.samples import spread
from slotpool.records.schema import VERSION, Record, check

__all__ = ["VERSION", "Record", "append", "check", "make", "read", "spread"]
