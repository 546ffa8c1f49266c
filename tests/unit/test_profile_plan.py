"""Profiles in plans: whose they must be, what slots begin with, how many are pinned; and the options as a user meets them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from slotpool import model, plan, profile, trace
from slotpool.cli import main
from slotpool.errors import SlotpoolError
from slotpool.model import Model
from slotpool.native import Session
from slotpool.profile import Pin, Profile, pin_of, usable_slots
from slotpool.simulate import Settings, Slots, simulate
from slotpool.trace import Facts, Group, Trace, single_events
from slotpool.trace.fingerprint import fingerprint
from testkit import syn

SPEC = syn.Spec(n_expert=8, n_expert_used=2, n_layer=2)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return syn.write(SPEC, tmp_path_factory.mktemp("model") / "m.gguf")


@pytest.fixture(scope="module")
def facts(path: Path) -> Model:
    return model.read(path)


def profile_of(facts: Model, *layers: int, mark: str = "", n_expert: int = 8) -> Profile:
    """Expert e was asked for by e rows, of every layer."""
    made = Facts("qwen3moe", 2, 8, 2, mark or fingerprint(facts), "", "test")
    return profile.of_heat(made, {(layer, "exps"): list(range(n_expert)) for layer in layers or (0, 1)})


@pytest.mark.parametrize(
    ("text", "pin"),
    [
        (None, None),
        ("25%", Pin(250000, 65536, 2)),
        ("37.5%", Pin(375000, 65536, 2)),
        ("0%", Pin(0, 65536, 2)),
        ("8", Pin(10**6, 8, 2)),
        (8, Pin(10**6, 8, 2)),
        (0, Pin(10**6, 0, 2)),
        ("99999999999", Pin(10**6, 65536, 2)),
    ],
)
def test_a_pin_is_a_share_or_a_number_of_slots(text: str | int | None, pin: Pin | None) -> None:
    assert pin_of(text, 2) == pin


@pytest.mark.parametrize("text", ["", "%", "-1", "101%", "-5%", "nan%", "inf%", "1.5", "half", True, "²", "9" * 30])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(SlotpoolError, match="expected a share of the slots"):
        pin_of(text, 2)


@pytest.mark.parametrize("n_slots", range(1, 20))
@pytest.mark.parametrize("text", ["0%", "25%", "100%", "1", "100"])
@pytest.mark.parametrize("n_used", [1, 2, 4])
def test_a_token_always_finds_slots_that_nobody_has_pinned(text: str, n_slots: int, n_used: int) -> None:
    pin = pin_of(text, n_used)
    assert pin is not None
    n_pinned = pin.of(n_slots, 100)
    assert 0 <= n_pinned <= max(0, n_slots - n_used)
    assert usable_slots(n_slots, 64, n_pinned) == n_slots - n_pinned
    assert usable_slots(n_slots, n_slots, n_pinned) == n_slots, "where every expert has a slot nobody is ever evicted"


def test_slots_begin_with_the_hottest_and_the_core_takes_the_plan(facts: Model) -> None:
    made = plan.with_profile(plan.make(facts, 4), facts, profile_of(facts), "25%")
    assert made.groups[0].warm == tuple((expert, 2 * 10**6 * expert // 28) for expert in range(7, 0, -1))
    text = plan.to_text(made)
    assert "warm 7:500000 6:428571" in text
    assert "pin share=250000 slots=65536 spare=2\n" in text
    session = Session(text)
    session.loaded()
    session.close()
    assert plan.from_text(text).plan.groups[1].warm == made.groups[1].warm
    assert plan.from_text(text).plan.pin == made.pin


def test_layers_that_the_profile_lacks_begin_cold_and_say_so(facts: Model) -> None:
    made = plan.with_profile(plan.make(facts, 4), facts, profile_of(facts, 1))
    assert [bool(group.warm) for group in made.groups] == [False, True]
    assert made.warnings == ("the profile has nothing of 1 of 2 layers: they begin cold",)


def test_pins_that_pin_nobody_say_so(facts: Model) -> None:
    made = plan.with_profile(plan.make(facts, 2), facts, profile_of(facts), "100%")
    assert made.warnings[-1].startswith("nobody is pinned: 2 slots")


def refused(facts: Model, found: Profile | None, pin: str | None = None) -> SlotpoolError:
    with pytest.raises(SlotpoolError) as caught:
        plan.with_profile(plan.make(facts, 4), facts, found, pin)
    assert caught.value.exit_code == 2
    return caught.value


def test_the_profile_of_another_model_is_refused_by_its_fingerprint(facts: Model) -> None:
    said = str(refused(facts, profile_of(facts, mark="ab" * 32)))
    assert fingerprint(facts)[:12] in said
    assert "found one of another (qwen3moe, 2 layers, 8 experts, abababababab)" in said
    assert len(said.splitlines()) == 1


def test_what_has_no_fingerprint_must_have_the_models_layers_and_experts(facts: Model) -> None:
    nameless = replace(profile_of(facts), facts=Facts())
    assert plan.with_profile(plan.make(facts, 4), facts, nameless).groups[0].warm
    fewer = replace(profile_of(facts, n_expert=6), facts=Facts())
    assert plan.with_profile(plan.make(facts, 4), facts, fewer).groups[0].warm
    for other in (profile_of(facts, 0, 7), profile_of(facts, n_expert=9)):
        assert "expected a profile of this model, which has" in str(refused(facts, replace(other, facts=Facts())))


def test_a_pin_without_a_profile_is_refused(facts: Model) -> None:
    assert "expected a profile that says who is pinned" in str(refused(facts, None, "25%"))


def test_a_foreign_profile_is_refused_even_where_nothing_is_pooled(facts: Model) -> None:
    with pytest.raises(SlotpoolError, match="found one of another"):
        plan.with_profile(plan.make(facts, 0), facts, profile_of(facts, mark="ab" * 32))


# ---- as a user meets it ----


@pytest.mark.parametrize("verb", [["run", "{model}", "-p", "x"], ["exec", "--slots", "4", "--", "true", "-m", "{model}"]])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pin", "25%"], "expected a profile that says who is pinned"),
        (["--pin", "some", "--profile", "{profile}"], "expected a share of the slots"),
        (["--profile", "{model}"], "expected an imatrix with counts of experts, found a model"),
        (["--profile", "nowhere"], "cannot read"),
        (["--profile", "{other}"], "found one of another"),
    ],
)
def test_wrong_usage_is_told_in_a_line(
    verb: list[str], options: list[str], said: str, path: Path, facts: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile.write(tmp_path / "p", profile_of(facts))
    profile.write(tmp_path / "other", profile_of(facts, mark="ab" * 32))
    places = {"model": path, "profile": tmp_path / "p", "other": tmp_path / "other"}
    words = [word.format(**places) for word in (verb[:1] + options + ["--slots", "4"] + verb[1:])]
    assert main(words) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1


def test_a_heat_map_becomes_a_profile_of_a_model(path: Path, facts: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.csv").write_text("layer,expert,count\n0,3,9\n1,1,10\n")
    assert main(["profile", str(tmp_path / "h.csv"), "--model", str(path), "-o", str(tmp_path / "p")]) == 0
    capsys.readouterr()
    found = profile.read_profile(tmp_path / "p")
    assert found.facts.fingerprint == fingerprint(facts)
    assert [(one.n_expert, one.experts) for one in found.groups] == [(8, (3,)), (8, (1,))]


def trace_of(ids: list[list[int]]) -> Trace:
    rows = np.array(ids, np.int32)
    return Trace(Facts(), (Group(0, "exps", 8, 2, rows, single_events(rows)),))


def test_a_simulated_pool_begins_warm_and_keeps_whom_it_must() -> None:
    found = trace_of([[0, 1], [2, 3], [4, 5], [0, 1]])
    hot = profile.of_heat(Facts(), {(0, "exps"): [9, 8, 0, 0, 0, 0, 0, 0]})

    def hits(settings: Settings) -> int:
        return simulate(found, ["lru"], [Slots(count=4)], settings).rows[0].hits

    assert hits(Settings()) == 0
    assert hits(Settings(profile=hot)) == 2, "both are there at first, and gone at last"
    assert hits(Settings(profile=hot, pin=pin_of("50%", 2))) == 4


def test_the_simulator_takes_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = trace_of([[0, 1], [2, 3], [4, 5], [0, 1]])
    trace.save(tmp_path / "t.trace", found)
    words = ["simulate", str(tmp_path / "t.trace"), "--slots", "4", "--policy", "lru", "--json"]
    rates = []
    for more in ([], ["--profile", str(tmp_path / "t.trace")], ["--profile", str(tmp_path / "t.trace"), "--pin", "50%"]):
        assert main([*words, *more]) == 0
        rates.append(json.loads(capsys.readouterr().out)["rows"][0]["hit_rate"])
    assert rates == [0.0, 0.5, 0.75]
    assert main([*words, "--pin", "50%"]) == 2
