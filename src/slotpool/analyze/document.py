"""An analysis as the JSON document of `slotpool analyze --json`: the names that other tools may rely on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from slotpool.analyze.analysis import CURVE, WINDOWS, Analysis, LayerAnalysis


def document(analysis: Analysis) -> dict[str, Any]:
    """`layers`, `working_set` and what belongs to them; numbers are null where the trace does not say them."""
    return {
        **asdict(analysis.facts),
        "phase": analysis.phase,
        "tokens": analysis.n_tokens,
        "segments": analysis.n_segments,
        "is_complete": analysis.is_complete,
        "dropped_events": analysis.n_dropped,
        "layers": [_layer(layer) for layer in analysis.layers],
        "working_set": _windows(analysis.working_set),
        "hit_rates": [asdict(row) for row in analysis.hit_rates],
        "warming": [asdict(row) for row in analysis.warming],
        "topic_switches": [
            {
                "share": dip.share,
                "switches": dip.n_switches,
                "before": dip.before,
                "after": [{"tokens": tokens, "hit_rate": rate} for tokens, rate in dip.after],
            }
            for dip in analysis.dips
        ],
    }


def _layer(layer: LayerAnalysis) -> dict[str, Any]:
    return {
        "layer": layer.layer,
        "pass": layer.pass_,
        "n_expert": layer.n_expert,
        "n_expert_used": layer.n_expert_used,
        "rows": layer.rows,
        "entropy_bits": layer.entropy_bits,
        "gini": layer.gini,
        "coverage_25": layer.coverage_25,
        "coverage_50": layer.coverage_50,
        "coverage": [{"share": share, "traffic": traffic} for share, traffic in zip(CURVE, layer.coverage, strict=True)],
        "reuse": layer.reuse,
        "working_set": _windows(layer.distinct),
        "never_used": layer.n_never,
    }


def _windows(means: tuple[float | None, ...]) -> list[dict[str, Any]]:
    return [{"window": window, "distinct_mean": mean} for window, mean in zip(WINDOWS, means, strict=True)]
