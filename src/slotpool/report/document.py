"""Sheets and comparisons as JSON documents. Decides nothing about what is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slotpool.report.compare import Comparison
from slotpool.report.facts import Figure, Ratio, Sheet, Source, Spread


def document(sheets: Sequence[Sheet], n_older: int = 0) -> dict[str, Any]:
    """`records`: [{`source`, `title`, `figures`, `ratios`, `tables`, `notes`}], and how many `older` ones were left out."""
    return {"records": [_sheet(sheet) for sheet in sheets], "older": n_older}


def comparison(found: Comparison) -> dict[str, Any]:
    """`pairs`: [{`what`, `arm`, `workload`, `unit`, `before`, `after`, `ratio`, `verdict`, `sources`}], `only_before`, `only_after`."""
    pairs = [
        {
            **_name(pair.before),
            "before": _spread(pair.before.spread),
            "after": _spread(pair.after.spread),
            "ratio": None if pair.ratio is None else _spread(pair.ratio, with_samples=False),
            "verdict": pair.verdict,
            "sources": [source(one) for one in pair.sources],
        }
        for pair in found.pairs
    ]
    alone = {
        name: [{"source": source(where), "figures": [_figure(figure) for figure in figures]} for where, figures in some]
        for name, some in (("only_before", found.only_before), ("only_after", found.only_after))
    }
    return {"pairs": pairs, **alone}


def source(found: Source) -> dict[str, Any]:
    """Where a figure comes from."""
    return {
        "file": found.file,
        "record": found.line,
        "kind": found.kind,
        "date": found.date,
        "commit": found.commit,
        "uncommitted_changes": found.has_changes,
        "slotpool": found.slotpool,
        "engine": found.engine,
        "machine": found.machine,
        "devices": list(found.devices),
        "load_average": found.load,
        "model": found.model,
        "flags": found.flags,
    }


def _sheet(sheet: Sheet) -> dict[str, Any]:
    content = sheet.content
    return {
        "source": source(sheet.source),
        "title": sheet.title,
        "figures": [_figure(figure) for figure in content.figures],
        "ratios": [_ratio(ratio) for ratio in content.ratios],
        "tables": [{"title": one.title, "header": one.header, "rows": one.rows, "note": one.note} for one in content.tables],
        "notes": list(content.notes),
    }


def _name(figure: Figure) -> dict[str, Any]:
    return {"what": figure.what, "arm": figure.arm, "workload": figure.workload, "unit": figure.unit}


def _figure(figure: Figure) -> dict[str, Any]:
    return {**_name(figure), **_spread(figure.spread), "better": figure.better or None}


def _ratio(ratio: Ratio) -> dict[str, Any]:
    names = {"arm": ratio.arm, "against": ratio.against, "what": ratio.what, "workload": ratio.workload}
    return {**names, **_spread(ratio.spread), "verdict": ratio.verdict}


def _spread(spread: Spread, *, with_samples: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = {"median": spread.median, "low": spread.low, "high": spread.high}
    return {**found, "samples": list(spread.samples)} if with_samples else found
