"""Analysing a trace: which rows are taken, what pools would have done with them, and the document that comes out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slotpool import trace
from slotpool.analyze import WINDOWS, Analysis, analyze, document, replay
from slotpool.errors import SlotpoolError
from slotpool.policies import POLICIES, ReferencePool, belady, make_policy


def group(rows: list[list[int]], layer: int = 0, n_expert: int = 4, events: trace.Events | None = None) -> trace.Group:
    ids = np.array(rows, np.int32)
    return trace.Group(layer, "exps", n_expert, ids.shape[1], ids, events or trace.single_events(ids))


def of(*groups: trace.Group, segments: tuple[trace.Segment, ...] = ()) -> trace.Trace:
    return trace.Trace(trace.Facts("x", 2, 4, 1), groups, segments)


def random_group(n_rows: int = 600, n_expert: int = 12, k: int = 3, seed: int = 1) -> trace.Group:
    rng = np.random.default_rng(seed)
    heat = rng.permutation(np.arange(1, n_expert + 1) ** 2.0)
    rows = [rng.choice(n_expert, k, replace=False, p=heat / heat.sum()) for _ in range(n_rows)]
    return group(np.array(rows).tolist(), n_expert=n_expert)


HAND = of(group([[0], [1], [1], [2], [0]]), group([[3], [3], [3], [3], [3]], layer=1))


def test_a_small_trace_by_hand() -> None:
    found = analyze(HAND)
    first, second = found.layers
    assert first.counts.tolist() == [2, 2, 1, 0]
    # 2/5, 2/5, 1/5
    assert first.entropy_bits == pytest.approx(-(2 * 0.4 * np.log2(0.4) + 0.2 * np.log2(0.2)))
    assert first.gini == pytest.approx((-3 * 0 - 1 * 1 + 1 * 2 + 3 * 2) / (4 * 5))
    assert (first.coverage_25, first.coverage_50) == (0.4, 0.8)
    assert first.reuse == 0.25
    assert first.n_never == 1
    assert (second.entropy_bits, second.reuse, second.coverage_25) == (0, 1, 1)
    assert (found.phase, found.n_tokens) == ("generation", 5)
    assert found.working_set == (1, None, None, None, None, None)


def test_the_document_has_the_names_that_others_rely_on() -> None:
    made = json.loads(json.dumps(document(analyze(HAND))))
    assert {"layer", "entropy_bits", "gini", "coverage_25", "coverage_50", "reuse"} <= made["layers"][0].keys()
    assert made["working_set"][0] == {"window": 1, "distinct_mean": 1}
    assert [row["window"] for row in made["working_set"]] == list(WINDOWS)
    assert made["layers"][1]["layer"] == 1
    assert {"policy", "slots", "hit_rate"} <= made["hit_rates"][0].keys()


def test_generation_is_taken_where_there_is_any_else_prompts() -> None:
    events = trace.events_of([0, 1, 2], [3, 1, 1], np.array([0, 1, 1], np.uint8))
    mixed = of(group([[0], [1], [2], [3], [3]], events=events))
    assert analyze(mixed).layers[0].counts.tolist() == [0, 0, 0, 2]
    assert analyze(mixed, "prompt").layers[0].counts.tolist() == [1, 1, 1, 0]
    assert analyze(mixed, "all").layers[0].counts.tolist() == [1, 1, 1, 2]
    only = of(group([[0], [1]], events=trace.events_of([0], [2], trace.PROMPT)))
    assert analyze(only).phase == "prompt"
    with pytest.raises(SlotpoolError, match="expected rows of phase generation"):
        analyze(only, "generation")


def test_rows_of_a_pruned_layer_are_no_neighbours() -> None:
    """Two ubatches of three tokens of which the last layer has the output row only: no token follows another."""
    events = trace.events_of([0, 1], [1, 1], trace.PROMPT, [3, 3])
    assert analyze(of(group([[0], [0]], events=events))).layers[0].reuse is None
    whole = trace.events_of([0, 1], [1, 1], trace.PROMPT)
    assert analyze(of(group([[0], [0]], events=whole))).layers[0].reuse == 1
    gap = trace.events_of([0, 2], [1, 1], trace.PROMPT)
    assert analyze(of(group([[0], [0]], events=gap))).layers[0].reuse is None


@pytest.mark.parametrize("policy", ["lru", "decay"])
def test_hit_rates_are_those_of_the_reference_pool(policy: str) -> None:
    made = random_group()
    rows = [row for row in replay.hit_rates([made]) if row.policy == policy]
    assert [row.slots for row in rows] == [3, 3, 4, 6, 8, 9, 10, 12]  # never fewer than a token uses
    for row in rows:
        pool = ReferencePool(12, int(row.slots), make_policy(policy, 0.97, 12, int(row.slots)))
        hits = sum(sum(lookup.is_hit for lookup in pool.event(ids.tolist())) for ids in made.ids)
        assert row.hit_rate == hits / made.ids.size


def test_the_optimum_is_compared_on_the_same_tokens() -> None:
    made = random_group()
    rows = replay.hit_rates([made], shares=(0.5,))
    assert [(row.policy, row.n_tokens) for row in rows] == [(policy, 600) for policy in (*POLICIES, "belady")]
    assert rows[-1].hit_rate == sum(belady(made.ids.tolist(), 6)) / made.ids.size
    assert rows[-1].hit_rate >= max(row.hit_rate for row in rows[:-1])


def test_a_pool_warms_up_until_it_is_steady() -> None:
    """Four experts in turn, a slot for each: every lookup but the first four is a hit."""
    made = group([[index % 4] for index in range(128)])
    found = replay.warming([made], 1.0)
    assert found is not None
    assert found.hit_rates == (12 / 16, *[1.0] * 7)
    assert (found.steady, found.tokens) == (1, 16)
    assert replay.warming([group([[0]] * 63)], 1.0) is None


def test_a_cold_step_is_not_steady_because_good_ones_follow() -> None:
    """Two experts in turn: 14 hits of 16 in the first step, whose mean with the next three is above what is steady."""
    found = replay.warming([group([[index % 2] for index in range(128)])], 1.0)
    assert found is not None
    assert (found.hit_rates[0], found.tokens) == (14 / 16, 16)


def test_the_dip_after_a_topic_switch_is_where_it_is() -> None:
    """Experts 0 and 1 in turn, then 2 and 3: with two slots two misses follow the switch, and nothing else."""
    made = group([[index % 2] for index in range(300)] + [[2 + index % 2] for index in range(300)])
    found = replay.dip([made], [300], 0.5)
    assert found is not None
    assert (found.n_switches, found.before) == (1, 1)
    assert dict(found.after)[16] < 1
    assert dict(found.after)[256] == 1
    assert replay.dip([made], [], 0.5) is None
    assert replay.dip([made], [590], 0.5) is None  # too few tokens after it
    assert replay.dip([made], [10], 0.5) is None  # and before it


def test_heat_says_what_needs_no_order() -> None:
    heat = trace.heat_of(HAND)
    found = analyze(heat)
    plain = analyze(HAND)
    assert [layer.entropy_bits for layer in found.layers] == [layer.entropy_bits for layer in plain.layers]
    assert [layer.gini for layer in found.layers] == [layer.gini for layer in plain.layers]
    assert {layer.reuse for layer in found.layers} == {None}
    assert found.hit_rates == ()
    json.dumps(document(found), allow_nan=False)


def test_layers_of_their_own_length_and_size_are_analysed_together() -> None:
    short = replace(random_group(80, 8, 2, seed=2), layer=3)
    found: Analysis = analyze(of(random_group(), short))
    assert [layer.rows for layer in found.layers] == [600, 80]
    assert found.warming
    assert len(found.hit_rates) == (len(POLICIES) + 1) * len(replay.SHARES)
    json.dumps(document(found), allow_nan=False)


def test_a_layer_without_rows_of_the_phase_is_left_out(tmp_path: Path) -> None:
    prompt_only = group([[0]], layer=1, events=trace.events_of([0], [1], trace.PROMPT))
    assert [layer.layer for layer in analyze(of(HAND.groups[0], prompt_only)).layers] == [0]
