"""What a chaos device counted and computed, as tests read it. Facts only; counters.h has the same names."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Counters:
    """What a device counted. Transfers: direction, whether the tensor lies in a buffer of weights, whether the call waited.

    `expert_bytes`: of the distinct experts of each MUL_MAT_ID. `bytes_given`: of all allocations ever. `failures`: requests refused and
    work that failed; `hazards`: conflicts with work that was queued and not executed. `weights_before_read`: the most bytes of
    weights in one copy that a read found on the link.
    """

    to_device_other_async_n: int
    to_device_other_async_bytes: int
    to_device_other_blocking_n: int
    to_device_other_blocking_bytes: int
    to_device_weights_async_n: int
    to_device_weights_async_bytes: int
    to_device_weights_blocking_n: int
    to_device_weights_blocking_bytes: int
    to_host_other_async_n: int
    to_host_other_async_bytes: int
    to_host_other_blocking_n: int
    to_host_other_blocking_bytes: int
    to_host_weights_async_n: int
    to_host_weights_async_bytes: int
    to_host_weights_blocking_n: int
    to_host_weights_blocking_bytes: int
    copies_n: int
    copies_bytes: int
    allocations: int
    failed_allocations: int
    frees: int
    bytes_given: int
    bytes_now: int
    bytes_peak: int
    graphs: int
    nodes: int
    expert_nodes: int
    expert_rows: int
    expert_bytes: int
    synchronizes: int
    failures: int
    hazards: int
    weights_before_read: int

    def to_device_bytes(self) -> int:
        """All bytes that went over the link to the device."""
        return self._bytes("to_device")

    def to_host_bytes(self) -> int:
        """All bytes that came over the link from the device."""
        return self._bytes("to_host")

    def _bytes(self, direction: str) -> int:
        names = (field.name for field in fields(self))
        return sum(getattr(self, name) for name in names if name.startswith(direction) and name.endswith("_bytes"))


@dataclass(frozen=True)
class Node:
    """A node that a device computed: the number of its graph since the last reset, and how many tokens it was for."""

    graph: int
    op: str
    name: str
    n_tokens: int
