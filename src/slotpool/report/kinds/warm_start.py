"""Records of `warm_start`: what the first tokens of a session find in slots, cold and warm. Reads them, judges nothing."""

from __future__ import annotations

from slotpool.report.facts import Content, Figure, Headline, Table, spread_of
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind


def content(results: Field, flags: Field) -> Content:
    """Hits of the first so many tokens by arm and slots."""
    cases = results["cases"].each()
    figures = tuple(figure for case in cases for figure in _figures(case))
    return Content(figures=figures, tables=(_table(cases),), headlines=tuple(_headlines(cases)))


def _figures(case: Field) -> list[Figure]:
    made = []
    for first in case["first"].each():
        share = first["hits"].count() / max(1, first["lookups"].count())
        where = f"{case['slots'].count()} slots, first {first['tokens'].count()} tokens"
        made.append(Figure(case["arm"].text(), "hit rate", "share", spread_of([share]), where, is_counted=True))
    return made


def _table(cases: list[Field]) -> Table:
    rows = tuple((case["arm"].text(), str(case["slots"].count()), *map(_found, case["first"].each())) for case in cases)
    tokens = [f"first {first['tokens'].count()} tokens" for first in cases[0]["first"].each()] if cases else []
    return Table("Experts found in slots", ("arm", "slots", *tokens), tuple(row[: 2 + len(tokens)] for row in rows))


def _found(first: Field) -> str:
    return f"{first['hits'].count()} of {first['lookups'].count()}"


def _headlines(cases: list[Field]) -> list[Headline]:
    """Cold and warm at the most slots, after the fewest tokens and after the most."""
    most = max((case["slots"].count() for case in cases), default=0)
    found = {case["arm"].text(): case["first"].each() for case in cases if case["slots"].count() == most}
    if not {"cold", "warm"} <= found.keys() or not all(found.values()):
        return []
    tokens = " / ".join(str(first["tokens"].count()) for first in found["warm"])
    values = " / ".join(_found(first) for first in found["warm"])
    cold = " / ".join(_found(first) for first in found["cold"])
    return [Headline(f"experts that the first {tokens} tokens find in {most} slots from a profile; cold {cold}", values)]


KIND = Kind(
    "Warm start",
    "The bundled model reads text token by token; counters, not time. Warm: slots begin with what an earlier session of 256 tokens, about "
    "the same or something else, found hot.",
    content,
)
