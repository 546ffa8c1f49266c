"""Recording through the core: every pooled event of every context is in the file as it was served, or counted as dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slotpool import loading, recording, trace
from slotpool import model as models
from slotpool import plan as plans
from slotpool.cli import main
from slotpool.errors import SlotpoolError
from slotpool.native import Recorder
from testkit import syn
from testkit.oracle.pooled import Pooled
from testkit.oracle.script import Batch, Setup, steps_of

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 53, 58, 97, 9, 32]
Models = Callable[[syn.Spec], Path]
ARCHS = ("qwen3moe", "grovemoe", "gpt-oss", "deepseek2", "nemotron_h_moe", "gemma4")


def spec(arch: str, **changes: object) -> syn.Spec:
    n_layer = max(3, syn.ARCHS[arch].min_layers)
    return syn.Spec(**{"arch": arch, "n_layer": n_layer, "n_expert": 12, "n_expert_used": 3, "router": "rigged"} | changes)  # type: ignore[arg-type]


def header(path: Path) -> Path:
    """A trace file that has its header only, as the core expects it."""
    trace.TraceWriter(path, trace.Facts(source="core")).close(is_complete=False)
    return path


def pooled(path: Path, slots: int, **asked: str) -> Pooled:
    return Pooled(path, plans.make(models.read(path), slots, **asked), Setup(n_ubatch=8))  # type: ignore[arg-type]


def oracle(spec: syn.Spec, group: trace.Group, tokens: list[int]) -> np.ndarray:
    ids = np.array([syn.rigged_ids(spec, group.layer, token) for token in tokens], np.int32)
    return ids // spec.experts_per_group if group.pass_ == "chexps" else ids


@pytest.mark.parametrize("chosen", [*map(spec, ARCHS), spec("qwen3moe", n_expert=300)], ids=[*ARCHS, "300 experts"])
def test_the_core_records_what_the_callback_records(chosen: syn.Spec, model_file: Models, tmp_path: Path) -> None:
    path = model_file(chosen)
    under_test = pooled(path, 4)
    try:
        under_test.session.trace(header(tmp_path / "core"))
        under_test.run(steps_of(*([token] for token in TOKENS)))
        n_events, n_dropped = under_test.session.end_trace()
    finally:
        under_test.close()
    recording.record(path, [recording.Text("a", tokens=TOKENS)], tmp_path / "callback", recording.Settings(n_threads=1))
    found, wanted = trace.open(tmp_path / "core"), trace.open(tmp_path / "callback")
    assert found.is_complete
    assert (n_events, n_dropped) == (len(TOKENS) * len(found.groups), 0)
    assert [(group.layer, group.pass_) for group in found.groups] == [(group.layer, group.pass_) for group in wanted.groups]
    for group, other in zip(found.groups, wanted.groups, strict=True):
        assert np.array_equal(group.ids, other.ids)
        assert np.array_equal(group.ids, oracle(chosen, group, TOKENS))
        assert np.array_equal(group.events.ubatch, other.events.ubatch)
        assert (group.n_expert, group.n_expert_used) == (other.n_expert, other.n_expert_used)
        assert set(group.events.phase) == {trace.GENERATION}


def test_prompts_that_fit_are_recorded_with_their_tokens(model_file: Models, tmp_path: Path) -> None:
    chosen = spec("qwen3moe")
    under_test = pooled(model_file(chosen), 12)
    try:
        under_test.session.trace(header(tmp_path / "core"))
        under_test.run([Batch(tuple(TOKENS), outputs="last")])  # ubatches of 8 and 5 tokens
        under_test.session.end_trace()
    finally:
        under_test.close()
    found = trace.open(tmp_path / "core")
    assert found.group(0).events.n_rows.tolist() == found.group(0).events.n_tokens.tolist() == [8, 5]
    assert np.array_equal(found.group(0).ids, oracle(chosen, found.group(0), TOKENS))
    last = found.group(2)  # has the output row only, and the tokens of its ubatch all the same
    assert (last.events.ubatch.tolist(), last.events.n_rows.tolist(), last.events.n_tokens.tolist()) == ([1], [1], [5])


def test_pools_that_share_a_routing_record_it_once(model_file: Models, tmp_path: Path) -> None:
    chosen = spec("qwen3moe")
    under_test = pooled(model_file(chosen), 4, slots_per_role="down=6")
    try:
        under_test.session.trace(header(tmp_path / "core"))
        under_test.run(steps_of(*([token] for token in TOKENS)))
        n_events, _ = under_test.session.end_trace()
    finally:
        under_test.close()
    found = trace.open(tmp_path / "core")
    assert n_events == len(TOKENS) * chosen.n_layer
    assert all(np.array_equal(group.ids, oracle(chosen, group, TOKENS)) for group in found.groups)


def test_contexts_are_streams_of_their_own(model_file: Models, tmp_path: Path) -> None:
    chosen = spec("qwen3moe")
    under_test = pooled(model_file(chosen), 4)
    try:
        under_test.session.trace(header(tmp_path / "core"))
        other = under_test.context()
        for token in TOKENS:
            under_test.run(steps_of([token]))
            other.run(steps_of([token + 1]))
        under_test.session.end_trace()
    finally:
        under_test.close()
    for group in trace.open(tmp_path / "core").groups:
        for stream, step in ((0, 0), (1, 1)):
            ids = group.select(group.events.stream == stream).ids
            assert np.array_equal(ids, oracle(chosen, group, [token + step for token in TOKENS]))
        assert len(np.unique(group.events.ubatch)) == 2 * len(TOKENS)


def test_run_records_with_a_pool(model_file: Models, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model_file(spec("qwen3moe"))
    args = ["run", str(path), "-p", "hello", "-n", "9", "--slots", "4", "--threads", "1", "--trace", str(tmp_path / "a.trace")]
    assert main([*args, "--json"]) == 0
    assert "24 events in" in capsys.readouterr().err  # three layers, the first token is sampled from the prompt
    found = trace.open(tmp_path / "a.trace")
    assert found.facts.fingerprint
    assert found.facts.source == "core"
    assert main(args) == 2  # never overwritten
    assert "expected no file, found one" in capsys.readouterr().err


def test_a_trace_of_nothing_pooled_is_an_error(model_file: Models, tmp_path: Path) -> None:
    with pytest.raises(SlotpoolError, match="expected something pooled"):
        loading.load(model_file(spec("qwen3moe")), 0, trace_path=tmp_path / "a.trace")
    assert not list(tmp_path.iterdir())


def test_a_load_that_fails_leaves_no_file(model_file: Models, tmp_path: Path) -> None:
    with pytest.raises(SlotpoolError):
        loading.load(model_file(spec("qwen3moe")), 8, trace_path=tmp_path / "a.trace", n_ctx="many")
    assert not list(tmp_path.iterdir())


# ---- the recorder alone ----


def test_what_does_not_fit_is_counted_and_the_rest_is_there(tmp_path: Path) -> None:
    recorder = Recorder(header(tmp_path / "a"))
    ring = recorder.ring(0, 4)
    ring.push(1, [0, 1], 2)
    ring.push(2, [0, 1] * 100_000, 2)  # larger than a ring
    ring.push(3, [2, 3], 2)
    assert recorder.finish() == (2, 1)
    ring.push(4, [0, 1], 2)  # nobody reads any more: forgotten
    ring.close()
    found = trace.open(tmp_path / "a")
    assert found.n_dropped == 1
    assert found.group(0).ids.tolist() == [[0, 1], [2, 3]]


def test_two_threads_push_faster_than_anybody_writes(tmp_path: Path) -> None:
    n_ubatches, n_ids = 30_000, 16
    recorder = Recorder(header(tmp_path / "a"))
    rings = [recorder.ring(layer, 256, context=layer + 1) for layer in range(2)]

    def push(layer: int) -> None:
        for ubatch in range(1, n_ubatches + 1):
            rings[layer].push(ubatch, [ubatch % 250] * n_ids, n_ids)

    threads = [threading.Thread(target=push, args=(layer,)) for layer in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    n_events, n_dropped = recorder.finish()
    found = trace.open(tmp_path / "a")
    assert found.is_complete
    assert n_events + n_dropped == 2 * n_ubatches
    assert sum(group.n_events for group in found.groups) == n_events
    for group in found.groups:
        assert (group.ids == group.ids[:, :1]).all()  # no event is torn
        if not n_dropped:
            assert group.ids[:, 0].tolist() == [ubatch % 250 for ubatch in range(1, n_ubatches + 1)]


def test_an_event_twice_in_an_ubatch_or_of_another_k_is_counted(tmp_path: Path) -> None:
    recorder = Recorder(header(tmp_path / "a"))
    ring = recorder.ring(0, 4)
    ring.push(1, [0, 1], 2)
    ring.push(1, [2, 3], 2)
    ring.push(2, [0, 1, 2], 3)
    assert recorder.finish() == (1, 2)
    assert trace.open(tmp_path / "a").group(0).ids.tolist() == [[2, 3]]


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(SlotpoolError, match="Expected to write the trace"):
        Recorder(tmp_path / "no-such-folder" / "a")
    recorder = Recorder("/dev/full")
    recorder.ring(0, 4).push(1, [0, 1], 2)
    with pytest.raises(SlotpoolError, match="No space left"):
        recorder.finish()


def test_a_killed_recorder_leaves_what_it_had(tmp_path: Path) -> None:
    """As if the process ended between two blocks: the file has no end, and is read up to there."""
    recorder = Recorder(header(tmp_path / "a"))
    ring = recorder.ring(0, 300)
    for ubatch in range(1, 40):
        ring.push(ubatch, [ubatch, 299], 2)
    recorder.finish()
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "b").write_bytes(whole[:-20])
    found = trace.open(tmp_path / "b")
    assert not found.is_complete
    assert found.group(0).ids.tolist() == [[ubatch, 299] for ubatch in range(1, 40)]
