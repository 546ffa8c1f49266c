"""`slotpool plan` and `slotpool probe`: the documents, the exit codes, the files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotpool import machine, model, native
from slotpool.cli import main
from slotpool.cli import probe as verb
from slotpool.probe import busy
from slotpool.speeds import Speed, Speeds
from testkit import syn
from tests.unit.test_planning import SPEC, measured

ModelFile = Callable[[syn.Spec], Path]


@pytest.fixture
def path(model_file: ModelFile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A model, and a machine whose speeds are known, so that nothing is measured."""
    made = model_file(SPEC)
    known = measured(model.read(made))

    def recalled(subjects: Any, _effort: object, **_: object) -> tuple[Speeds, list[str]]:
        disk = subjects.file.disk
        return Speeds("made up", tuple(replace(one, subject=disk if one.subject == "/" else one.subject) for one in known.all)), []

    monkeypatch.setattr(verb, "measure", recalled)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def document(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> dict[str, Any]:
    assert main(["plan", *map(str, arguments), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_json_has_the_fields_that_other_tools_rely_on(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, 1, path)
    assert found["verdict"] == "no-go"
    assert "RAM suffices" in found["reason"]
    assert set(found) >= {"verdict", "reason", "devices", "tensors", "predicted", "plain", "break_even_hit_rate"}
    assert set(found["devices"][0]) >= {"name", "free", "kv", "compute", "reserved", "rail", "budget"}
    assert set(found["tensors"][0]) == {"name", "device", "slots", "state", "reason"}
    assert set(found["predicted"]) == set(found["plain"]) == {"hit_rate", "generation_tps"}


def test_kv_grows_with_the_context_that_is_asked_for(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, long = (document(capsys, 1, path, "--ctx", n)["devices"][0]["kv"] for n in (512, 2048))
    assert long == 4 * short > 0


def test_a_plan_file_is_written_once_and_is_one_that_the_core_takes(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "plan"
    asked = (path, "--ram-budget", "44MiB", "-o", output)
    monkeypatch.setattr("slotpool.predict.outlook.GAIN", 9.0)
    found = document(capsys, 1, *asked)
    assert not output.exists()
    document(capsys, 1, *asked, "--force")
    slots = found["tensors"][0]["slots"]
    assert native.fit_slots(output.read_text(), 10**12, [1] * 4) == [slots] * 4
    monkeypatch.setattr("slotpool.predict.outlook.GAIN", 0.0)
    assert main(["plan", *map(str, asked)]) == 2
    assert "expected no such file yet" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "is_repacked"), [("--repack", True), ("--no-repack", False)])
def test_a_plan_file_says_whether_slots_over_a_disk_are_repacked(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, is_repacked: bool
) -> None:
    output = tmp_path / "plan"
    assert main(["plan", str(path), "--ram-budget", "44MiB", "-o", str(output), "--force", option]) in (0, 1)
    capsys.readouterr()
    assert ("repack on" in output.read_text().splitlines()) == is_repacked


def test_what_else_will_be_loaded_is_reserved_by_its_own_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = sum(tensor.n_bytes for file in model.read(path).files for tensor in file.tensors)
    found = document(capsys, 1, path, "--draft", path, "--lora", path, "--reserve", "1000")
    assert found["devices"][0]["reserved"] == 2 * weights + 1000


def test_a_control_groups_limit_is_what_is_free(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "available_memory", lambda: native.AvailableMemory(64 << 30, 2 << 30))
    assert machine.read().ram_limited_by == "cgroup"
    assert document(capsys, 1, path)["devices"][0]["free"] == 2 << 30


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--device", "CUDA9"), 'unknown device "CUDA9"'),
        (("--kv-type", "q3"), 'unknown type of the KV cache "q3"'),
        (("--slots", "4,5"), "expected one value"),
        (("--trace", "/no/such/file"), "/no/such/file"),
    ],
)
def test_wrong_usage_is_a_line_and_exit_code_2(
    path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main(["plan", str(path), *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) <= 4


def test_probe_measures_keeps_and_recalls(
    model_file: ModelFile, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = ["probe", str(model_file(SPEC)), "--seconds", "0.001", "--samples", "2", "--threads", "1", "--json"]
    runs = []
    for extra in ([], [], ["--fresh"]):
        assert main([*asked, *extra]) == 0
        runs.append(json.loads(capsys.readouterr().out)["speeds"])
    names = {speed["what"] for speed in runs[0]}
    assert names >= {"read", "node", "experts Q8_0 256x256 k=4", "weights F32 256x256", "direct reads x1", "page faults"}
    assert all(0 < speed["low"] <= speed["median"] <= speed["high"] for speed in runs[0])
    assert runs[1] == runs[0]
    assert [speed["median"] for speed in runs[2]] != [speed["median"] for speed in runs[0]]


def test_a_machine_that_was_busy_is_said() -> None:
    quiet = measured_one(0.1)
    assert busy([quiet]) == []
    assert "busy" in busy([quiet, measured_one(2.5)])[0]


def measured_one(load: float) -> Any:
    return Speed("CPU", "read", "B/s", 1.0, 1.0, 1.0, 1, load=load)
