"""Records of `rpc_wire`: bytes a token on the wire to an RPC server. Reads them, judges nothing."""

from __future__ import annotations

from slotpool.report.facts import LOWER, Content, Figure, Table
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind

_PARTS = ("slabs", "activations", "headers", "own_graphs", "engine_graphs", "all", "expected")
_NAMES = ("slabs", "activations", "headers", "pool's graphs", "engine's graphs", "all", "expected")


def content(results: Field, flags: Field) -> Content:
    """A row an arm: bytes per token by what they are, and what is over the expected."""
    arms = results["arms"].each()
    figures = tuple(
        Figure(arm["name"].text(), name, "bytes", arm["bytes_per_token"][part].spread(), "per token", LOWER, is_counted=True)
        for arm in arms
        for part, name in zip(_PARTS, _NAMES, strict=True)
    )
    header = ("kB per token", *_NAMES, "over expected", "hit rate", "bits of plain")
    return Content(figures, tables=(Table("On the wire", header, tuple(_row(arm) for arm in arms)),))


def _row(arm: Field) -> tuple[str, ...]:
    over = f"{arm['over_expected'].number():+.2%}" if arm["copied_per_token"].number() else ""
    hits = f"{arm['hit_rate'].number():.1%}" if "hit_rate" in arm else ""
    cells = [f"{arm['bytes_per_token'][part].number() / 1000:.1f}" for part in _PARTS]
    return (arm["name"].text(), *cells, over, hits, "yes" if arm["has_bits_of_plain"].value is True else "no")


KIND = Kind(
    "Bytes to an RPC server",
    "What a token costs on the wire, counted by a proxy on loopback, beside what the core's counters and shapes expect. The engine "
    "sends descriptions of its graphs wherever a model is cut, with a pool or without.",
    content,
)
