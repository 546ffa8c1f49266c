"""The bench without an engine: windows of the text, arms, proofs, agreement of tokens, the document."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotpool import bench, records
from slotpool.bench import agreement, arms, proof, rounds
from slotpool.bench import text as texts
from slotpool.bench.arms import BYPASS, PLAIN, POOL, STATIC, Arm
from slotpool.bench.document import document
from slotpool.bench.settings import Settings
from slotpool.cli import main
from slotpool.cli.bench import parse_depths
from slotpool.errors import SlotpoolError
from slotpool.model import read
from slotpool.report import bench_page

DEMO = Path(__file__).parents[2] / "src/slotpool/data/demo.gguf"
SETTINGS = Settings(DEMO, n_prompt=10, n_generate=5, n_warm=7, rounds=4, slots=(0, 8, 16), depths=(0, 20))

# ---- text and windows ----


def test_every_round_reads_another_part_and_every_depth_the_same() -> None:
    tokens = range(20 + 4 * 32)
    seen: set[int] = set()
    for number in range(4):
        shallow, deep = (texts.window(tokens, SETTINGS, depth, number) for depth in (0, 20))
        assert (shallow.first, shallow.warm, shallow.prompt, shallow.generate) == (deep.first, deep.warm, deep.prompt, deep.generate)
        assert (len(shallow.before), len(deep.before)) == (0, 20)
        assert deep.before[-1] + 1 == deep.first[0]
        mine = {*shallow.first, *shallow.warm, *shallow.prompt, *shallow.generate}
        assert len(mine) == SETTINGS.tokens_a_round == 32
        assert not mine & seen
        seen |= mine
    assert not texts.is_repeated(tokens, SETTINGS)


def test_text_that_is_too_short_says_how_many_tokens_it_takes() -> None:
    with pytest.raises(SlotpoolError, match=r"expected a text of 148 tokens for 4 rounds of 32 at depth 20, found 147"):
        texts.window(range(147), SETTINGS, 0, 0)


def test_text_is_read_again_only_where_that_was_asked_for() -> None:
    again = replace(SETTINGS, repeats=True)
    tokens = range(20 + 2 * 32)
    assert texts.is_repeated(tokens, again)
    assert texts.window(tokens, again, 0, 0) == texts.window(tokens, again, 0, 2) != texts.window(tokens, again, 0, 1)
    with pytest.raises(SlotpoolError, match="for 1 rounds"):
        texts.window(range(51), again, 0, 0)


def test_cold_bench_has_one_prompt_and_no_warm_up() -> None:
    found = texts.window(range(200), replace(SETTINGS, n_warm=0), 0, 0)
    assert (len(found.first), len(found.warm), len(found.prompt), len(found.generate)) == (0, 0, 10, 5)


def test_digest_tells_any_two_windows_apart() -> None:
    found = texts.window(range(200), SETTINGS, 0, 0)
    moved = replace(found, warm=found.warm[1:], prompt=(found.warm[0], *found.prompt))
    assert len({found.digest, moved.digest, replace(found, before=(1,)).digest}) == 3


def test_bundled_text_is_prose_and_code_and_has_a_hash() -> None:
    found = texts.read_text(None)
    assert found.name == "bundled"
    assert len(found.content) > 20_000
    assert len(found.sha256) == 64


def test_text_file_is_bounded_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a book.txt"
    path.write_bytes(b"x" * 11)
    assert texts.read_text(path).name == "a book.txt"
    monkeypatch.setattr("slotpool.texts.MAX_BYTES", 10)
    with pytest.raises(SlotpoolError, match="at most 10 bytes"):
        texts.read_text(path)
    with pytest.raises(SlotpoolError, match="cannot read the text"):
        texts.read_text(tmp_path / "none")


def test_context_holds_the_longest_sequence() -> None:
    assert SETTINGS.n_ctx(20) == 1 + 20 + 10 + 7
    assert replace(SETTINGS, ctx=512).n_ctx(20) == 512


@pytest.mark.parametrize(("written", "meant"), [("0", (0,)), ("0,4k,16K", (0, 4096, 16384)), ("7", (7,))])
def test_depths_are_read(written: str, meant: tuple[int, ...]) -> None:
    assert parse_depths(written) == meant


@pytest.mark.parametrize("written", ["", "k", "-1", "1,", "4k,4096", "99999999", "9999999k", "1.5k", "four"])
def test_other_depths_are_refused(written: str) -> None:
    with pytest.raises(SlotpoolError, match="expected"):
        parse_depths(written)


# ---- arms ----


def names(settings: Settings) -> list[str]:
    return [arm.name for arm in arms.arms(settings, 0)]


def test_plain_is_always_an_arm() -> None:
    assert names(replace(SETTINGS, slots=(8,))) == ["plain", "pool 8"]
    assert names(replace(SETTINGS, slots=(0,))) == ["plain"]
    assert names(replace(SETTINGS, slots=(0, 8, "all"))) == ["plain", "pool 8", "pool all"]


def test_more_arms_on_request() -> None:
    found = names(replace(SETTINGS, slots=(8, 16), extra=("unpacked", "bypass", "static")))
    assert found == ["plain", "plain, unpacked", "pool 8", "pool 16", "bypass 8", "static 8"]


def test_static_arm_of_a_disk_pins_what_its_profile_says() -> None:
    on_disk = replace(SETTINGS, slots=(8,), extra=("static",), pool={"ram_budget": 1, "profile": "p"})
    assert arms.arms(on_disk, 0)[-1].options["pin"] == "100%"
    assert arms.arms(replace(on_disk, pool={}), 0)[-1].options["miss"] == "frozen"


def test_with_a_device_plain_keeps_its_experts_on_the_host() -> None:
    first = arms.arms(replace(SETTINGS, pool={"device": ["CUDA0"], "rpc": []}), 0)[0]
    assert (first.name, first.options["n_gpu_layers"], bool(first.on_host)) == ("plain, experts on the CPU", -1, True)
    assert first.options.get("slots") is None


def test_plain_placement_takes_no_more_bytes_than_the_slots() -> None:
    facts = read(DEMO)
    settings = replace(SETTINGS, pool={"device": ["CUDA0"]})
    a_layer = sum(tensor.n_bytes for tensor in facts.layers[0])
    sizes = [sum(tensor.n_bytes for tensor in tensors) for tensors in facts.layers.values()]
    assert arms.placement(settings, facts, 0, min(sizes) - 1) is None
    two = arms.placement(settings, facts, 0, sizes[-1] + sizes[-2])
    assert two is not None
    assert two.name == "plain, experts of 2 of 4 layers on the device"
    assert r"blk\.(0|1)\." in two.on_host
    everything = arms.placement(settings, facts, 0, sum(sizes))
    assert everything is not None
    assert everything.on_host == ""
    assert arms.placement(replace(settings, pool={}), facts, 0, 4 * a_layer) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"extra": ("statics",)}, "Did you mean static"),
        ({"extra": ("bypass",), "pool": {"ram_budget": "auto"}}, "nobody else can read"),
        ({"extra": ("static",), "pool": {"ram_budget": 1}}, "expected a --profile"),
        ({"extra": ("static",), "n_warm": 0}, "--warm 0"),
        ({"extra": ("bypass",), "slots": (0,)}, "expected slots"),
    ],
)
def test_arms_that_cannot_be_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SlotpoolError, match=words):
        arms.arms(replace(SETTINGS, **change), 0)


# ---- proofs ----


def phase(**counts: int) -> dict[str, int]:
    return {"lookups": 0, "hits": 0, "misses": 0, "bytes_copied": 0, "bytes_saved": 0, "refused": 0, "admitted": 0, "evicted": 0} | counts


def answer(kind: str = PLAIN, **changes: Any) -> dict[str, Any]:
    """What the worker of a good arm answers."""
    is_pool = kind != PLAIN
    stats = {
        "lookups": 90 if is_pool else 0,
        "refused": 12 if is_pool else 0,
        "pooled_tensors": 12 if is_pool else 0,
        "slot_bytes": 4096 if is_pool else 0,
        "exact": True,
        "repacked_bytes": 0,
        "tensors": [{"reason": "off: budget"}],
    }
    return {
        "process": 7,
        "kind": kind,
        "digest": "d",
        "engine": {"build": "1"},
        "plan": "p",
        "stats": stats,
        "generation": phase(lookups=80, hits=60, misses=20, bytes_copied=640)
        if kind in (POOL, STATIC)
        else phase(refused=20 if is_pool else 0),
        "is_core_registered": is_pool,
        "is_core_mapped": is_pool,
        "buffers": {"CPU_REPACK": 100},
        "free_bytes": {"RAM": 5},
        "resident_bytes": 3,
        "load_ms": 1.0,
        "cached_share": 1.0,
        "ttft_ms": 10.0,
        "prompt_tps": 100.0,
        "generation_tps": 20.0,
        "first_token": 1,
        "best_tokens": [1, 2, 3, 4],
        "logits": "bits",
    } | changes


def arm(kind: str, slots: Any = 8, **options: Any) -> Arm:
    return Arm(kind if kind == PLAIN else f"{kind} {slots}", kind, 0, 0 if kind == PLAIN else slots, options)


def refused(kind: str, change: Callable[[dict[str, Any]], object]) -> str:
    lying = answer(kind)
    change(lying)
    with pytest.raises(SlotpoolError) as found:
        proof.prove(arm(kind), lying, 7, "d")
    assert found.value.exit_code == 1
    assert "\n" not in str(found.value)
    assert str(found.value).startswith("no result: expected ")
    return str(found.value)


@pytest.mark.parametrize("kind", [PLAIN, POOL, BYPASS, STATIC])
def test_arm_that_is_what_its_name_says_is_proved(kind: str) -> None:
    proof.prove(arm(kind), answer(kind), 7, "d")


@pytest.mark.parametrize("kind", [PLAIN, POOL, BYPASS, STATIC])
def test_answer_of_another_process_text_or_kind_is_refused(kind: str) -> None:
    assert "process 7" in refused(kind, lambda lie: lie.update(process=8))
    assert "own text" in refused(kind, lambda lie: lie.update(digest="e"))
    assert "worker for" in refused(kind, lambda lie: lie.update(kind=POOL if kind != POOL else PLAIN))


def test_plain_arm_with_a_pool_is_refused() -> None:
    assert "0 pooled lookups, found 3" in refused(PLAIN, lambda lie: lie["stats"].update(lookups=3))
    assert "0 pooled lookups" in refused(PLAIN, lambda lie: lie["stats"].update(refused=1))
    assert "0 pooled lookups" in refused(PLAIN, lambda lie: lie["stats"].update(pooled_tensors=1))
    assert "no slotpool core" in refused(PLAIN, lambda lie: lie.update(is_core_mapped=True))
    assert "no slotpool core" in refused(PLAIN, lambda lie: lie.update(is_core_registered=True))


@pytest.mark.parametrize("kind", [POOL, STATIC])
def test_pool_arm_without_a_pool_is_refused(kind: str) -> None:
    assert "registry, found none" in refused(kind, lambda lie: lie.update(is_core_registered=False))
    assert "off: budget" in refused(kind, lambda lie: lie["stats"].update(pooled_tensors=0))
    assert "while it generated, found 0 of 90" in refused(kind, lambda lie: lie["generation"].update(lookups=0))
    assert "found 80 of 0" in refused(kind, lambda lie: lie["stats"].update(lookups=0))


def test_bypass_arm_must_have_slots_and_not_use_them() -> None:
    assert "allocated" in refused(BYPASS, lambda lie: lie["stats"].update(slot_bytes=0))
    assert "allocated" in refused(BYPASS, lambda lie: lie["stats"].update(lookups=0))
    assert "stock path" in refused(BYPASS, lambda lie: lie["generation"].update(lookups=1))
    assert "stock path" in refused(BYPASS, lambda lie: lie["generation"].update(refused=0))


def test_static_arm_must_not_change_while_it_is_measured() -> None:
    assert "do not change" in refused(STATIC, lambda lie: lie["generation"].update(admitted=1))


def test_arms_of_a_round_are_of_one_engine_and_of_processes_of_their_own() -> None:
    both = [arm(PLAIN), arm(POOL)]
    proof.prove_alike(both, [answer(PLAIN), answer(POOL, process=8)])
    with pytest.raises(SlotpoolError, match="engine of the other arms"):
        proof.prove_alike(both, [answer(PLAIN), answer(POOL, process=8, engine={"build": "2"})])
    with pytest.raises(SlotpoolError, match="process of its own"):
        proof.prove_alike(both, [answer(PLAIN), answer(POOL)])


def test_arm_keeps_its_plan_unless_the_machine_sizes_it() -> None:
    with pytest.raises(SlotpoolError, match="plan of its first round"):
        proof.prove_same_plan(arm(POOL), answer(POOL), answer(POOL, plan="q"))
    proof.prove_same_plan(arm(POOL, "auto"), answer(POOL), answer(POOL, plan="q"))


# ---- agreement and document ----


def measured(*pairs: tuple[Arm, list[dict[str, Any]]]) -> rounds.Measured:
    settings = replace(SETTINGS, depths=(0,), rounds=len(pairs[0][1]))
    text = texts.Text("a.txt", b"text")
    return rounds.Measured(settings, text, 500, False, tuple(arm for arm, _ in pairs), tuple(tuple(found) for _, found in pairs))


def paired(change: Callable[[dict[str, Any]], object] = lambda _: None) -> dict[str, Any]:
    plain = [answer(PLAIN, process=10 + n, generation_tps=20.0 + n % 2) for n in range(12)]
    pool = [answer(POOL, process=30 + n, generation_tps=24.0 + n % 2, ttft_ms=12.0 + n % 3 / 10) for n in range(12)]
    change(pool[5])
    return document(measured((arm(PLAIN), plain), (arm(POOL), pool)))


def test_document_has_the_fields_that_others_rely_on() -> None:
    found = paired()
    for one in found["arms"]:
        assert {"name", "slots", "prompt_tps", "generation_tps", "ttft_ms", "stats"} <= one.keys()
        for what in ("prompt_tps", "generation_tps", "ttft_ms"):
            assert one[what].keys() == {"median", "low", "high", "samples"}
            assert len(one[what]["samples"]) == 12
    for one in found["ratios"]:
        assert {"arm", "against", "what", "median", "low", "high", "verdict"} <= one.keys()
    assert [arm["slots"] for arm in found["arms"]] == [0, 8]


def test_ratios_above_one_are_faster_whatever_is_measured() -> None:
    verdicts = {one["what"]: (one["verdict"], one["median"]) for one in paired()["ratios"]}
    assert verdicts["generation_tps"][0] == "faster"
    assert verdicts["ttft_ms"] == ("slower", pytest.approx(10 / 12.1))
    assert verdicts["prompt_tps"] == ("no difference", 1.0)


def test_hit_rate_and_bytes_are_of_the_measured_tokens() -> None:
    plain, pool = paired()["arms"]
    assert (plain["hit_rate"], plain["bytes_per_token"]["median"]) == (None, 0)
    assert (pool["hit_rate"]["median"], pool["bytes_per_token"]["median"]) == (0.75, 160)
    assert pool["free_bytes"]["RAM"]["median"] == 5


def test_equal_kernels_that_choose_other_tokens_are_a_difference() -> None:
    assert paired()["differences"] == []
    (line,) = paired(lambda one: one.update(best_tokens=[1, 2, 9, 4]))["differences"]
    assert line == "pool 8 ran the same kernels as plain, and 1 of 60 tokens differ, first in round 6 at token 3"
    (line,) = paired(lambda one: one.update(logits="other"))["differences"]
    assert "0 of 60 tokens differ, in their last bits only" in line


def test_other_kernels_may_choose_other_tokens_and_it_is_counted() -> None:
    plain = [answer(PLAIN, buffers={"CPU_REPACK": 500_000}) for _ in range(2)]
    pool = [answer(POOL, best_tokens=[1, 2, 9, 9]) for _ in range(2)]
    found = document(measured((arm(PLAIN), plain), (arm(POOL), pool)))
    assert found["differences"] == []
    assert found["arms"][1]["agreement"] == {
        "with": "plain",
        "kernels": "other",
        "tokens": 10,
        "different": 4,
        "first_difference": {"round": 0, "token": 3},
        "logits_equal": True,
    }


def test_pool_whose_misses_another_device_computed_is_compared_by_tokens_only() -> None:
    inexact = deepcopy(answer(POOL))
    inexact["stats"]["exact"] = False
    assert not agreement.kernels(arm(POOL), inexact).same_as(agreement.kernels(arm(PLAIN), answer(PLAIN)))
    assert agreement.kernels(arm(POOL), answer(POOL)).same_as(agreement.kernels(arm(PLAIN), answer(PLAIN)))
    on_device = arm(POOL, device=["CUDA0"])
    on_host = replace(arm(PLAIN, n_gpu_layers=-1), on_host="exps")
    assert not agreement.kernels(on_device, answer(POOL)).same_as(agreement.kernels(on_host, answer(PLAIN)))
    assert agreement.kernels(on_device, answer(POOL)).same_as(agreement.kernels(arm(PLAIN, n_gpu_layers=-1), answer(PLAIN)))


def test_what_slots_hold_repacked_counts_as_repacked() -> None:
    plain, pooled, dense = (deepcopy(answer(kind)) for kind in (PLAIN, POOL, POOL))
    plain["buffers"] = {"CPU_REPACK": 50_010_000}
    pooled["buffers"] = dense["buffers"] = {"CPU_REPACK": 10_000_000}
    pooled["stats"]["repacked_bytes"] = 40_000_000
    assert agreement.kernels(arm(POOL), pooled).same_as(agreement.kernels(arm(PLAIN), plain))
    assert not agreement.kernels(arm(POOL), dense).same_as(agreement.kernels(arm(PLAIN), plain))


# ---- the command ----


def command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: object, other_bits: bool = False
) -> tuple[int, str, str]:
    """`slotpool bench` whose processes answer at once: three rounds of plain and a pool. Exit code, stdout, stderr."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plain = [answer(PLAIN, process=10 + n, generation_tps=20.0 + n) for n in range(3)]
    pool = [answer(POOL, process=30 + n, generation_tps=40.0 + n, logits="other" if other_bits else "bits") for n in range(3)]
    for one in pool:
        one["stats"]["layers"] = [{"slots": 8}]
    for one in plain:
        one["stats"]["layers"] = []
    monkeypatch.setattr(bench, "measure", lambda *_: measured((arm(PLAIN), plain), (arm(POOL), pool)))
    code = main(["bench", str(DEMO), "--slots", "8", *map(str, arguments)])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_command_prints_arms_verdicts_and_where_the_record_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, errors = command(monkeypatch, tmp_path, capsys)
    assert code == 0
    lines = {" ".join(line.split()) for line in out.splitlines()}
    assert any(line.startswith("pool 8 0 100.0 (100.0-100.0) 41.0 (40.0-42.0) 10.0 (10.0-10.0) 75.0% 160B") for line in lines), out
    assert any(line.startswith("pool 8 plain 0 generation 1.952x") and line.endswith("faster") for line in lines), out
    assert "pool 8: equal, logits to the last bit (15 tokens beside plain, same kernels)" in lines
    assert "plain: llama.cpp repacked 100B of its weights" in lines
    (record,) = records.read(tmp_path / "cache/slotpool/records.jsonl")
    assert f"record: {tmp_path}/cache/slotpool/records.jsonl" in errors
    assert record.results["ratios"][1]["verdict"] == "faster"


def test_equal_kernels_with_other_bits_are_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, errors = command(monkeypatch, tmp_path, capsys, other_bits=True)
    assert code == 1
    assert "slotpool: pool 8 ran the same kernels as plain, and 0 of 15 tokens differ, in their last bits only" in errors


def test_json_is_the_recorded_document_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = command(monkeypatch, tmp_path, capsys, "--json", "--record", tmp_path / "mine.jsonl")
    (record,) = records.read(tmp_path / "mine.jsonl")
    assert (code, json.loads(out)) == (0, record.results)


def test_page_shows_what_the_record_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command(monkeypatch, tmp_path, capsys, "--html", tmp_path / "page.html")
    (record,) = records.read(tmp_path / "cache/slotpool/records.jsonl")
    text = (tmp_path / "page.html").read_text()
    assert text == bench_page.render(record.document)
    assert "41.0 (40.0-42.0)" in text
    assert record.document["model"]["sha256"][:16] in text


def test_sweep_of_slots_is_drawn_beside_plain() -> None:
    found = paired()
    for one in found["arms"]:
        one["stats"]["layers"] = [{"slots": one["slots"]}] if one["kind"] == POOL else []
    more = deepcopy(found["arms"][1])
    more["stats"]["layers"] = [{"slots": 16}]
    assert bench_page.charts(found["arms"]) == []
    charts = bench_page.charts([*found["arms"], more])
    assert [chart.title for chart in charts] == ["Generation against slots", "Prompt against slots", "First token against slots"]
    assert [(line.name, line.kind, [x for x, _ in line.points]) for line in charts[0].lines] == [
        ("pool", "s0", [8, 16]),
        ("plain", "even", [8, 16]),
    ]
