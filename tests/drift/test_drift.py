"""`slotpool drift` as a user runs it: exact where it must be, and every damage found. Slots as few as a token uses: every step evicts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from slotpool import drift, records
from slotpool.cli import drift as verb
from slotpool.cli import main
from slotpool.drift import Settings, Text
from slotpool.drift.facts import CPU, POOL, ArmSpec
from slotpool.drift.process import ArmProcess
from slotpool.errors import SlotpoolError
from slotpool.model import read
from testkit import syn
from tests.unit.test_model_builder import T, gguf_bytes, write

DEMO = Path(str(files("slotpool") / "data" / "demo.gguf"))
N = 40
USED = 4
ModelFile = Callable[[syn.Spec], Path]


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, dict[str, Any]]:
    code = main(["drift", "--threads", "1", "--json", *map(str, args)])
    out, err = capsys.readouterr()
    assert out, err
    return code, json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str]:
    code = main(["drift", "--threads", "1", *map(str, args)])
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) <= 4
    return code, err


def text_in(folder: Path, content: bytes = b"The lighthouse keeper walked down to the harbour in the rain. ") -> Path:
    path = folder / "text.txt"
    path.write_bytes(content)
    return path


# ---- exact ----


def test_the_bundled_model_is_exact_on_the_cpu_with_evictions_in_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Two kinds of text. The first token fills empty slots and has nothing to evict."""
    code, found = run(capsys, DEMO, "--limit", N)
    assert (code, found["verdict"], found["expected"]) == (0, "exact", "exact")
    assert found["tokens"] == found["steps"] == 2 * N
    assert found["steps_with_evictions"] == 2 * N - 1
    assert found["kld"] == {"mean": 0.0, "median": 0.0, "p99": 0.0, "max": 0.0}
    assert found["pool_share"]["kld_max"] == 0.0
    assert found["pool_share"]["first_difference"] is None
    assert [text["name"] for text in found["texts"]] == list(verb.BUNDLED)
    assert all(text["ppl"]["cpu"] == text["ppl"]["pool"] for text in found["texts"])


def test_every_arm_proves_who_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = run(capsys, DEMO, "--limit", 8, "--chunks", 0)
    cpu, pool = found["arms"]
    assert (cpu["name"], cpu["has_core"], cpu["lookups"]) == ("cpu", False, 0)
    assert (pool["name"], pool["has_core"]) == ("pool", True)
    n_layers = len(read(DEMO).layers)
    assert pool["lookups"] == found["stats"]["lookups"] == 16 * n_layers * USED
    assert cpu["pid"] != pool["pid"]
    assert found["placement"] is None


def test_prompts_are_the_same_before_and_after_the_pool_is_full_though_they_go_through_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, DEMO, "--limit", 8, "--ctx", 256, "--chunks", 3, "--slots", "all")
    assert code == 0
    prompts = found["prompts"]
    assert (prompts["chunks"], prompts["tokens"], prompts["same_after"], prompts["same_as_plain"]) == (3, 3 * 256, True, True)
    assert prompts["ppl"]["cpu"] == prompts["ppl"]["pool"]
    assert found["stats"]["prompt"]["lookups"] > 0


def test_a_text_longer_than_the_context_goes_on_in_an_empty_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = run(capsys, DEMO, "-f", text_in(tmp_path, b"one two three four five " * 30), "--limit", 0, "--ctx", 16, "--chunks", 1)
    assert (code, found["verdict"]) == (0, "exact")
    (text,) = found["texts"]
    assert text["tokens"] == text["tokens_of_text"] > 64


def test_experts_on_disk_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, DEMO, "--limit", N, "--ram-budget", "36MiB")
    assert (code, found["verdict"], found["stats"]["store"]) == (0, "exact", "disk")
    assert found["evictions"] > N


@pytest.mark.parametrize("arch", ["deepseek2", "gpt-oss"])
def test_other_architectures_are_exact(arch: str, model_file: ModelFile, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = model_file(syn.Spec(arch=arch, n_layer=3, n_expert=12, n_expert_used=3))
    code, found = run(capsys, path, "-f", text_in(tmp_path), "--slots", 4)
    assert (code, found["verdict"], found["is_met"]) == (0, "exact", True)
    assert found["evictions"] > 0


@pytest.mark.parametrize("limit", [1, 9, 17])
def test_windows_and_blocks_of_one_token_predict_nothing_and_are_compared(
    limit: int, capsys: pytest.CaptureFixture[str], model_file: ModelFile, tmp_path: Path
) -> None:
    path = model_file(syn.Spec())
    code, found = run(capsys, path, "-f", text_in(tmp_path), "--limit", limit, "--ctx", 8, "--chunks", 1)
    assert (code, found["tokens"], found["verdict"]) == (0, limit, "exact")
    assert (found["texts"][0]["ppl"]["cpu"]["ppl"] is None) == (limit == 1)


# ---- damage ----


def test_one_flipped_bit_in_one_slab_is_found_and_the_first_token_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, DEMO, "--limit", N, "--damage", "bit", "--chunks", 0)
    assert (code, found["verdict"]) == (1, "different")
    assert "one bit of blk.0" in found["damaged"]
    first = found["pool_share"]["first_difference"]
    assert first["text"] == "prose.txt"
    assert drift.facts.BLOCK <= first["index"] < N
    assert str(first["token"]) in found["reason"]
    assert repr(first["piece"]) in found["reason"]
    # what another process says this token is
    with ArmProcess(ArmSpec(CPU, str(DEMO), 64, 1)) as plain:
        ids = plain.tokenize((files("slotpool") / "data" / "prose.txt").read_bytes())
        assert ids[first["index"]] == first["token"]
        assert plain.ask("piece", first["token"]).decode() == first["piece"]


def test_a_wrong_slot_map_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = run(capsys, DEMO, "--limit", 16, "--damage", "swap", "--chunks", 0)
    assert (code, found["verdict"]) == (1, "different")
    assert found["pool_share"]["kld_max"] > 0


def test_damage_is_found_in_prompts_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The text ends before the damaged slab is asked for again; the prompts that come after it do ask."""
    text = text_in(tmp_path, (files("slotpool") / "data" / "prose.txt").read_bytes())
    code, found = run(capsys, DEMO, "-f", text, "--limit", 8, "--damage", "bit", "--chunks", 1)
    assert (code, found["verdict"], found["pool_share"]["first_difference"]) == (1, "different", None)
    assert (found["prompts"]["same_after"], found["prompts"]["same_as_plain"]) == (False, True)


def test_a_file_with_one_changed_byte_is_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensor = read(DEMO).experts[0]
    content = bytearray(DEMO.read_bytes())
    content[tensor.offset] ^= 0x40  # of expert 0
    other = tmp_path / "other.gguf"
    other.write_bytes(content)
    code, found = run(capsys, DEMO, "--limit", 120, "--against", other, "--chunks", 0)
    assert (code, found["verdict"]) == (1, "different")
    assert found["files"]["differ"] == 1
    assert found["files"]["first"] == f"byte {tensor.offset}, in {tensor.name}, expert 0"
    assert found["pool_share"]["tokens_that_differ"] > 0
    assert main(["drift", str(DEMO), "--limit", "8", "--against", str(other), "--chunks", "0", "--threads", "1"]) in (0, 1)
    assert "1 bytes differ" in capsys.readouterr().out


# ---- saying no ----


def test_a_model_of_another_vocabulary_is_refused(model_file: ModelFile, capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(capsys, DEMO, "--against", model_file(syn.Spec()))
    assert code == 2
    assert "to compare with, found one of 256" in err


def test_nothing_pooled_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(capsys, DEMO, "--slots", "auto", "--device", "CPU")
    assert code == 1
    assert "expected something pooled, found nothing" in err


def test_a_pool_that_is_off_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, err = refused(capsys, DEMO, "--slots", 0)
    assert code == 2
    assert "found it off (at --slots)" in err


def test_a_dense_model_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, err = refused(
        capsys, write(tmp_path / "dense.gguf", gguf_bytes({"general.architecture": "llama"}, [T("blk.0.ffn_up.weight", (32, 32))]))
    )
    assert code == 2
    assert "expected a model with experts, found a dense one" in err


@pytest.mark.parametrize(("content", "words"), [(b"", "found an empty one"), (None, "cannot read the text"), (b"ab\xff", "from byte 2 on")])
def test_a_text_that_cannot_be_used_is_refused(
    content: bytes | None, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = tmp_path / "none" if content is None else text_in(tmp_path, content)
    code, err = refused(capsys, DEMO, "-f", text)
    assert code == 2
    assert words in err


def test_a_pool_without_a_lookup_proves_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = ArmProcess.counts
    monkeypatch.setattr(ArmProcess, "counts", lambda arm: drift.facts.Counts() if arm.name == POOL else counts(arm))
    code, err = refused(capsys, DEMO, "--limit", 4, "--chunks", 0)
    assert code == 1
    assert "expected lookups in the pool, found none" in err


def test_a_core_in_the_reference_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain runs begin without the core; whoever brings it in later is seen at the end."""
    ask = ArmProcess.ask
    monkeypatch.setattr(ArmProcess, "ask", lambda arm, request, *rest: True if request == "has_core" else ask(arm, request, *rest))
    code, err = refused(capsys, DEMO, "--limit", 4, "--chunks", 0)
    assert code == 1
    assert "expected arm cpu to be plain llama.cpp" in err


def test_the_core_in_the_environment_does_not_reach_the_reference(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from slotpool.native import CORE_PATH

    monkeypatch.setenv("GGML_BACKEND_PATH", str(CORE_PATH))
    code, found = run(capsys, DEMO, "--limit", 4, "--chunks", 0)
    assert (code, found["arms"][0]["has_core"]) == (0, False)


def test_an_arm_that_dies_is_one_line_with_its_last_words() -> None:
    with ArmProcess(ArmSpec(CPU, str(DEMO), 64, 1)) as arm:
        arm._process.kill()
        with pytest.raises(SlotpoolError, match="arm cpu: its process ended with -9"):
            arm.decode([1])


def test_an_arm_goes_with_its_parent() -> None:
    arm = ArmProcess(ArmSpec(CPU, str(DEMO), 64, 1))
    arm._connection.close()
    assert arm._process.wait(20) == 0
    arm._errors.close()


def test_expectations_and_damages_of_the_verb_are_those_of_the_room() -> None:
    assert (verb.EXPECTATIONS, verb.DAMAGES) == (drift.EXPECTATIONS, drift.DAMAGES)


def test_progress_counts_every_token_of_every_arm() -> None:
    seen: list[tuple[int, int, str]] = []
    text = Text("a", b"one two three four five six seven eight nine ten " * 4)
    settings = Settings(pool={"slots": USED}, n_threads=1, limit=20, n_chunks=1)
    drift.measure(DEMO, [text], settings, lambda *step: seen.append(step))
    done = [step[0] for step in seen]
    assert done == sorted(done)
    assert {step[1] for step in seen} == {done[-1]}
    assert list(dict.fromkeys(step[2] for step in seen)) == ["prompts, before", "a", "prompts, after"]


def test_a_run_is_a_record_with_its_options_and_all_its_results(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, found = run(capsys, DEMO, "--limit", 4, "--chunks", 0, "--record", tmp_path / "records.jsonl")
    (record,) = records.read(tmp_path / "records.jsonl")
    assert record.kind == "drift"
    assert record.results == found
    assert (record.flags["slots"], record.flags["limit"], record.flags["miss"]) == (USED, 4, "auto")
    assert record.document["model"]["name"] == "demo.gguf"
    prose = (files("slotpool") / "data" / "prose.txt").read_bytes()
    assert record.flags["texts"][0] == f"prose.txt sha256:{hashlib.sha256(prose).hexdigest()[:16]}"


def test_a_file_that_holds_no_records_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = text_in(tmp_path)
    before = text.read_bytes()
    code, err = refused(capsys, DEMO, "--record", text)
    assert code == 2
    assert str(text) in err
    assert text.read_bytes() == before
