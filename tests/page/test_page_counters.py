"""What is on a page is what the process itself counts, exactly, while it counts and afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import slotpool
from slotpool import model, page
from slotpool.native import GroupCounts
from testkit import syn
from testkit.oracle import Batch, Pooled, Setup, Steps, expected_counts, plan_of, pooled
from tests.page.conftest import DECODING, DEMO, Start, pages_in

ModelFile = Callable[[syn.Spec], Path]
SPEC = syn.Spec(n_layer=3, n_expert=16, n_expert_used=4, types={"*": "Q8_0"})
SETUP = Setup(n_ubatch=16)
STEPS: Steps = (*(Batch(((7 * i) % 250,)) for i in range(20)), Batch(tuple(range(16))))


def same(found: tuple[GroupCounts, ...], counts: list[GroupCounts]) -> None:
    assert list(map(asdict, found)) == list(map(asdict, counts))  # asdict: == leaves out times, admissions and evictions


def read(runtime: Path) -> page.Page:
    (found,) = pages_in(runtime)
    return found


def test_page_has_the_counters_of_the_process(model_file: ModelFile, runtime: Path) -> None:
    with pooled(model_file(SPEC), plan_of(model_file(SPEC), 6), SETUP) as llm:
        same(read(runtime).counts, llm.counts())
        assert not any(group.generation.events for group in llm.counts())
        llm.run(STEPS)
        same(read(runtime).counts, llm.counts())
        assert all(group.generation.events and group.refused and group.evicted for group in llm.counts())


def test_copied_bytes_are_the_admitted_slabs(model_file: ModelFile, runtime: Path) -> None:
    path = model_file(SPEC)
    with pooled(path, plan_of(path, 6), SETUP) as llm:
        llm.run(STEPS)
        for group in read(runtime).counts:
            total = group.generation + group.prompt
            slab = sum(one.slab_bytes for one in model.read(path).experts if one.layer == group.layer)
            assert total.bytes_copied == group.admitted * slab > 0
            assert group.admitted == total.misses
            assert group.admitted - group.evicted == group.slots  # all are in use after twenty tokens


def test_page_sums_over_contexts_that_live_and_that_ended(model_file: ModelFile, oracle, runtime: Path) -> None:  # type: ignore[no-untyped-def]
    path = model_file(SPEC)
    with pooled(path, plan := plan_of(path, 6), SETUP) as llm:
        llm.run(STEPS)
        llm.context().run(STEPS)
        same(read(runtime).counts, llm.counts())
        routing = oracle.routing(path, SETUP, STEPS)
        assert list(read(runtime).counts) == expected_counts(plan, routing, routing)


def n_bytes(runtime: Path) -> int:
    (file,) = (runtime / "slotpool").iterdir()
    return file.stat().st_size


def test_page_grows_with_contexts_at_a_time_and_not_with_all_there_ever_were(model_file: ModelFile, runtime: Path) -> None:
    path = model_file(SPEC)
    with pooled(path, plan_of(path, 6), SETUP) as llm:
        llm.run(STEPS)
        sizes = []
        for _ in range(4):
            context = llm.context()
            context.run(STEPS)
            sizes.append(n_bytes(runtime))
            context.close()
        assert len(set(sizes)) == 1
        same(read(runtime).counts, llm.counts())
        assert read(runtime).counts[0].generation.events == 5 * 20


def test_document_of_a_page_is_the_stats_of_the_process(runtime: Path) -> None:
    llm = slotpool.load(DEMO, 12, n_ctx=256, n_threads=1)
    try:
        for tokens in ([3, 4, 5], list(range(40)), [6]):
            llm.eval(tokens)
        assert page.stats_of(read(runtime)) == slotpool.stats(llm)
        assert slotpool.stats(llm)["lookups"] > 0
    finally:
        llm.close()


def test_document_says_where_experts_on_disk_are_and_what_the_budget_is(runtime: Path) -> None:
    llm = slotpool.load(DEMO, 12, ram_budget=48 << 20, n_ctx=256, n_threads=1)
    try:
        llm.eval([3, 4, 5])
        stats = slotpool.stats(llm)
        assert page.stats_of(read(runtime)) == stats
        assert read(runtime).facts.header.model == str(DEMO)
        (device,) = stats["devices"]
        assert device["name"] == "CPU"
        assert device["slot_bytes"] <= device["taken"] <= device["budget"] == 48 << 20
        assert device["free"] > 48 << 20
        assert stats["store"] == "disk"
        assert device["bytes_copied"] == stats["bytes_copied"] == sum(tensor["bytes_copied"] for tensor in stats["tensors"]) > 0
    finally:
        llm.close()


def test_reset_is_seen_and_is_not_taken_for_counting(model_file: ModelFile, runtime: Path) -> None:
    with pooled(model_file(SPEC), plan_of(model_file(SPEC), 6), SETUP) as llm:
        llm.run(STEPS)
        before = page.Look(page.look([runtime / "slotpool"]))
        llm.session.reset_counts()
        llm.run(STEPS[:1])
        after = page.Look(page.look([runtime / "slotpool"]))
        (one,) = after.found.pages
        same(one.counts, llm.counts())
        assert one.facts.header.resets == 1
        assert page.window(before, after, one).stats == page.stats_of(one)
        assert one.counts[0].generation.events == 1


def test_window_is_what_happened_between_two_looks(model_file: ModelFile, runtime: Path) -> None:
    def looked(llm: Pooled, steps: Steps) -> page.Look:
        llm.run(steps)
        return page.Look(page.look([runtime / "slotpool"]))

    with pooled(model_file(SPEC), plan_of(model_file(SPEC), 6), SETUP) as llm:
        looks = [looked(llm, STEPS), looked(llm, STEPS[:5])]
        seen = page.window(*looks, looks[1].found.pages[0])
        totals = [page.stats_of(look.found.pages[0]) for look in looks]
    assert seen.seconds == looks[1].at - looks[0].at > 0
    assert seen.stats["generation"]["events"] == 5 * SPEC.n_layer
    for name in ("lookups", "hits", "misses", "refused", "bytes_copied", "bytes_saved", "admitted", "evicted"):
        assert seen.stats[name] == totals[1][name] - totals[0][name], name  # type: ignore[literal-required]


def counters(found: page.Page) -> list[int]:
    """Every counter that only grows."""
    values = []
    for group in found.counts:
        values += [group.refused, group.admitted, group.evicted, *vars(group.generation).values(), *vars(group.prompt).values()]
    return values


def test_counters_read_while_a_process_decodes_never_fall_and_fit_each_other(start: Start, runtime: Path) -> None:
    program = start(DECODING + "decode(20)\nprint('ready', flush=True)\nwhile True: decode(300)")
    assert program.line() == "ready"
    looks: list[page.Page] = []
    ends = time.monotonic() + 60
    while len({tuple(counters(look)) for look in looks}) < 60 and time.monotonic() < ends:  # until enough was decoded meanwhile
        looks += [pages_in(runtime)[0] for _ in range(50)]
    assert len({tuple(counters(look)) for look in looks}) >= 60
    for before, after in pairwise(looks):
        assert all(a <= b for a, b in zip(counters(before), counters(after), strict=True))
    for look in looks:
        for group in look.counts:
            total = group.generation + group.prompt
            assert total.lookups == total.hits + total.misses
            assert total.bytes_copied == group.admitted * group.slab_bytes
            assert total.bytes_saved == total.hits * group.slab_bytes
