"""The simulator against the reference pool and by small exact cases, and `slotpool simulate` as a user meets it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from slotpool import cli, trace
from slotpool.errors import SlotpoolError
from slotpool.policies import DEFAULT, ReferencePool, belady, make_policy
from slotpool.simulate import ONLINE, POLICIES, Row, Settings, Slots, replayed, simulate
from slotpool.trace import GENERATION, PROMPT, Facts, Group, Trace, events_of

K = 2


def group_of(layer: int, n_expert: int, events: Sequence[Sequence[Sequence[int]]], tokens: Sequence[int] | None = None) -> Group:
    """A group whose events have these rows of K ids each; an event of more than one token is a prompt."""
    ids = np.array([row for event in events for row in event], np.int32).reshape(-1, K)
    n_tokens = list(tokens or map(len, events))
    phase = np.array([PROMPT if n > 1 else GENERATION for n in n_tokens], np.uint8)
    return Group(layer, "exps", n_expert, K, ids, events_of(range(len(events)), [len(event) for event in events], phase, n_tokens))


def random_trace(seed: int, sizes: Sequence[int] = (9, 12), n_events: int = 120) -> Trace:
    draw = random.Random(seed)
    groups = []
    for layer, n_expert in enumerate(sizes):
        rows = draw.choices([1, 1, 1, 2, 8], k=n_events)
        groups.append(group_of(layer, n_expert, [[skewed(draw, n_expert) for _ in range(n)] for n in rows]))
    return Trace(Facts(), tuple(groups))


def skewed(draw: random.Random, n_expert: int) -> list[int]:
    return [int(n_expert * draw.random() ** 2) for _ in range(K)]


def only(found: Trace, policy: str, slots: str, **settings: object) -> Row:
    (row,) = simulate(found, [policy], [Slots.parse(slots)], Settings(**settings)).rows  # type: ignore[arg-type]
    return row


def reference_hits(group: Group, policy: str, n_slots: int, store: str, may_refuse: bool) -> tuple[int, int]:
    """Lookups and hits by the Python reference and the engine's rule of what fits."""
    pool = ReferencePool(group.n_expert, n_slots, make_policy(policy, 0.97, group.n_expert, n_slots))
    lookups = []
    for index in range(group.n_events):
        ids = group.event_ids(index).ravel().tolist()
        fits = min(K * int(group.events.n_tokens[index]), group.n_expert) <= n_slots
        if fits:
            lookups += pool.event(ids, may_refuse=may_refuse)
        elif store == "disk":
            lookups += pool.passing(ids)
    return len(lookups), sum(lookup.is_hit for lookup in lookups)


@pytest.mark.parametrize("policy", ONLINE)
@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("admission", ["wanted", "all"])
@pytest.mark.parametrize("slots", ["2", "4", "50%", "100%"])
def test_counts_are_those_of_the_reference_pool(policy: str, store: str, admission: str, slots: str) -> None:
    found = random_trace(3)
    row = only(found, policy, slots, store=store, admission=admission)
    sizes = [Slots.parse(slots).of(group.n_expert) for group in found.groups]
    counts = [reference_hits(group, policy, n, store, admission == "wanted") for group, n in zip(found.groups, sizes, strict=True)]
    assert (row.lookups, row.hits) == tuple(map(sum, zip(*counts, strict=True)))
    assert row.total_slots == sum(sizes)


def test_one_policy_alone_counts_what_its_row_does() -> None:
    found, settings = random_trace(4), Settings(phase="generation")
    alone, row = replayed(found, "lru", Slots(count=5), settings), only(found, "lru", "5", phase="generation")
    assert (alone.lookups, alone.hits) == (row.lookups, row.hits)
    assert replayed(found, "lru", Slots(count=1), settings).lookups == 0
    with pytest.raises(SlotpoolError, match="policy"):
        replayed(found, "no-such", Slots(count=5), settings)


@pytest.mark.parametrize("slots", [2, 5])
def test_belady_is_the_specification_and_everybody_has_a_share_of_it(slots: int) -> None:
    found = random_trace(5)
    groups = [group.select(group.events.n_tokens * K <= slots) for group in found.groups]
    best = sum(sum(belady([group.event_ids(i).ravel().tolist() for i in range(group.n_events)], slots)) for group in groups)
    rows = simulate(found, ["lru", "belady", "belady-admit"], [Slots(count=slots)]).rows
    assert [row.policy for row in rows] == ["lru", "belady", "belady-admit"], "rows stand in the order asked for"
    assert rows[1].hits == best
    assert all(row.share_of_belady == row.hits / best <= 1.0 for row in rows)


def test_default_is_the_policy_that_it_says() -> None:
    found = random_trace(7)
    assert only(found, "default", "4").hits == only(found, DEFAULT, "4").hits


def test_event_too_large_in_memory_is_not_seen_and_on_disk_passes() -> None:
    found = Trace(Facts(), (group_of(0, 8, [[[0, 1]], [[2, 3], [4, 5]], [[0, 1]]]),))
    assert (only(found, "lru", "2").lookups, only(found, "lru", "2").hits) == (4, 2)
    on_disk = only(found, "lru", "2", store="disk")
    assert (on_disk.lookups, on_disk.hits) == (8, 2), "it evicted nobody, and its experts were looked up"


def test_pruned_last_layer_fits_by_the_tokens_of_its_ubatch() -> None:
    found = Trace(Facts(), (group_of(0, 8, [[[0, 1]], [[2, 3]], [[0, 1]]], tokens=[1, 6, 1]),))
    assert only(found, "lru", "2").lookups == 4


def test_phases_are_counted_apart_and_replayed_together() -> None:
    found = Trace(Facts(), (group_of(0, 8, [[[0, 1]], [[0, 1], [2, 3]], [[2, 3]]]),))
    generation, prompt, both = (only(found, "lru", "4", phase=phase) for phase in ("generation", "prompt", ""))
    assert (generation.lookups, generation.hits) == (4, 2), "the prompt brought 2 and 3"
    assert (prompt.lookups, prompt.hits) == (4, 2)
    assert (both.lookups, both.hits) == (8, 4)


def test_static_learns_from_the_first_part_and_is_judged_on_the_rest() -> None:
    events = [[[0, 1]]] * 6 + [[[2, 3]]] * 3 + [[[0, 2]], [[2, 3]], [[0, 1]]] * 3
    found = Trace(Facts(), (group_of(0, 8, events),))
    row = only(found, "static", "2", train=0.5)
    assert (row.lookups, row.hits) == (18, 9), "0 and 1 were the hottest; nobody else is ever admitted"
    assert only(found, "lru", "2", train=0.5).lookups == 18


def test_one_pool_over_all_layers_has_the_slots_of_all_and_shares_them() -> None:
    busy = [[[0, 1]], [[2, 3]]] * 10
    quiet = [[[0, 0]]] * 20
    found = Trace(Facts(), (group_of(0, 4, busy), group_of(1, 4, quiet)))
    alone, shared = only(found, "lru", "2"), only(found, "lru", "3", is_global=True)
    assert alone.hits == 19, "the busy layer misses always"
    assert shared.total_slots == 6
    assert shared.hits == 36 + 19, "all five experts have a slot"
    assert shared.lookups == alone.lookups == 60


def test_one_pool_over_all_layers_is_the_reference_in_the_order_of_computation() -> None:
    found = random_trace(11, sizes=(6, 7, 5))
    pool = ReferencePool(18, 9, make_policy("lru", 0.97, 18, 9))
    offsets = (0, 6, 13)
    hits = 0
    for ubatch in range(120):
        for group, offset in zip(found.groups, offsets, strict=True):
            if min(K * int(group.events.n_tokens[ubatch]), group.n_expert) <= 9:
                ids = (group.event_ids(ubatch).ravel() + offset).tolist()
                hits += sum(lookup.is_hit for lookup in pool.event(ids))
    assert only(found, "lru", "3", is_global=True).hits == hits


@pytest.mark.parametrize(("text", "n_expert", "slots"), [("8", 32, 8), ("64", 32, 32), ("25%", 32, 8), ("37.5%", 32, 12), ("1%", 10, 1)])
def test_slots_are_a_number_or_a_share_of_the_experts(text: str, n_expert: int, slots: int) -> None:
    assert Slots.parse(text).of(n_expert) == slots
    assert str(Slots.parse(text)) == text


@pytest.mark.parametrize("text", ["", "0", "-1", "0%", "101%", "x", "nan%", "inf%", "8.5", "%"])
def test_slots_that_are_neither_are_refused(text: str) -> None:
    with pytest.raises(SlotpoolError, match="expected slots as a number"):
        Slots.parse(text)


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        ("lruk", {}, 'unknown policy "lruk"'),
        ("static", {}, "static needs a part to learn from"),
        ("lru", {"train": 1.0}, "expected a share from 0"),
        ("lru", {"store": "tape"}, 'unknown store "tape"'),
        ("lru", {"admission": "some"}, 'unknown admission "some"'),
        ("lru", {"phase": "chat"}, 'unknown phase "chat"'),
    ],
)
def test_what_cannot_be_simulated_is_said(policy: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(SlotpoolError, match=message):
        only(random_trace(1), policy, "4", **settings)


def test_trace_without_an_event_that_fits_is_no_hit_rate_of_zero() -> None:
    with pytest.raises(SlotpoolError, match="expected events that pools of 2 slots serve in the prompt, found none"):
        only(random_trace(1), "lru", "2", phase="prompt")


# ---- the verb ----


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.trace"
    trace.write(path, random_trace(13))
    return path


def test_verb_prints_the_rows_as_json(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", str(trace_file), "--policy", ",".join(POLICIES), "--slots", "3,50%", "--train", "0.25", "--json"]
    assert cli.main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in document["rows"]] == [*POLICIES, *POLICIES]
    assert {"policy", "slots", "hit_rate", "share_of_belady"} <= set(document["rows"][0])
    assert document["rows"][0]["slots"] == 3
    assert document["rows"][-1]["slots"] == (round(4.5) + 6) / 2
    assert document["lookups_per_second"] > 0


def test_verb_prints_a_table(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", str(trace_file), "--slots", "4", "--global", "--store", "disk", "--admit", "all"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[2:6]] == ["default", "lru", "decay", "belady"]


def test_verb_reads_csv_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("layer,expert\n" + "0,1\n0,2\n" * 5)
    assert cli.main(["simulate", str(path), "--slots", "2", "--policy", "lru", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["hits"] == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slots", "many"], "expected slots as a number"),
        (["--policy", "lruk"], 'unknown policy "lruk"'),
        (["--store", "tape"], 'unknown store "tape"'),
        (["--policy", "static"], "Try --train 0.5"),
    ],
)
def test_verb_answers_wrong_usage_in_words(
    trace_file: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["simulate", str(trace_file), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_heat_has_no_order_to_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "heat.csv"
    path.write_text("0,1,5\n0,2,7\n")
    assert cli.main(["simulate", str(path)]) == 2
    assert "found counts without the order of tokens" in capsys.readouterr().err
