"""Records: made whole, added to files of records only, and refused with line and field when anything in them is not as it must be."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from slotpool import about, engine, records
from slotpool.errors import SlotpoolError
from slotpool.records import digest, facts, files, schema

DEMO = Path(__file__).parents[2] / "src/slotpool/data/demo.gguf"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/slotpool/sha256.json"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return records.make("bench", flags={"slots": 16}, results={"arms": [records.spread([3.0, 1.0, 2.0])]})


# ---- making ----


def test_record_comes_back_as_it_was_written(made: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "new/records.jsonl"
    records.append(path, made)
    records.append(path, made | {"kind": "soak"})
    first, second = records.read(path)
    assert first.document == made
    assert (first.kind, second.kind) == ("bench", "soak")
    assert first.results["arms"][0] == {"median": 2.0, "low": 1.0, "high": 3.0, "samples": [3.0, 1.0, 2.0]}


def test_record_says_what_ran_and_where(made: dict[str, Any]) -> None:
    assert made["engine"]["package"].startswith("llama-cpp-python 0.")
    assert made["engine"]["abi"] == "fits, backend API 2"
    assert "CPU" in made["engine"]["build_flags"]
    assert "ggml" in made["engine"]["llama_cpp"]
    assert "CPU" in [device["name"] for device in made["devices"]]
    assert made["machine"]["n_cores"] >= 1
    assert made["machine"]["cpu"]
    assert made["commit"] == about.commit()


def test_devices_are_the_engines_and_not_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    own = engine.Device("SLOTS0", "slotpool: expert slots on CPU", "ACCEL", 0, 0)
    gpu = engine.Device("CUDA0", "a GPU", "GPU", 5, 9)
    monkeypatch.setattr(engine, "devices", lambda: [gpu, own])
    found = facts.device_facts()
    assert [(one["name"], one["description"], one["memory_bytes"]) for one in found] == [("CUDA0", "a GPU", 9)]


def test_record_says_which_model_by_its_bytes() -> None:
    found = records.make("drift", model=DEMO, flags={}, results={})["model"]
    assert found["sha256"] == hashlib.sha256(DEMO.read_bytes()).hexdigest()
    assert (found["name"], found["bytes"]) == ("demo.gguf", DEMO.stat().st_size)
    assert len(found["fingerprint"]) == 64


def test_record_has_no_path_of_the_machine() -> None:
    text = json.dumps(records.make("drift", model=DEMO, flags={}, results={}))
    assert str(Path.home()) not in text
    assert str(DEMO.parent) not in text


def test_load_that_was_taken_before_the_run_stays() -> None:
    assert records.make("bench", flags={}, results={}, load_average=0.25)["load_average"] == 0.25


def test_spread_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="found none"):
        records.spread([])


# ---- files ----


@pytest.mark.parametrize("text", ["GGUF and so on\n", "{}\n", '{"slotpool_record": 1, "torn'])
def test_nothing_is_added_to_a_file_of_something_else(made: dict[str, Any], tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    for refuse in (lambda: records.append(path, made), lambda: files.check_appendable(path)):
        with pytest.raises(SlotpoolError, match="expected a file of records"):
            refuse()
    assert path.read_text() == text


def test_asking_makes_no_file(tmp_path: Path) -> None:
    files.check_appendable(tmp_path / "new.jsonl")
    assert not (tmp_path / "new.jsonl").exists()


def test_record_that_could_not_be_read_is_not_written(made: dict[str, Any], tmp_path: Path) -> None:
    for wrong in (made | {"flags": None}, made | {"results": {"speed": float("nan")}}, made | {"results": {"where": Path("x")}}):
        with pytest.raises(SlotpoolError, match="not a record"):
            records.append(tmp_path / "records.jsonl", wrong)
    assert not (tmp_path / "records.jsonl").exists()


def test_error_names_the_line(made: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, made)
    with path.open("a") as file:
        file.write("\n{]\n")
    with pytest.raises(SlotpoolError, match=r"expected a JSON object.*records.jsonl, line 3"):
        records.read(path)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"slotpool_record": 1' + b"0" * 5000 + b"}",
        b"null",
        b'{"slotpool_record": 2}',
        b'{"slotpool_record": true}',
    ],
)
def test_hostile_lines_are_refused_in_one_message(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(SlotpoolError) as refused:
        records.read(path)
    assert "line 1" in str(refused.value)
    assert len(str(refused.value)) < 600


def test_lines_and_files_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]) -> None:
    path = tmp_path / "records.jsonl"
    records.append(path, made)
    records.append(path, made)
    monkeypatch.setattr(files, "MAX_RECORDS", 1)
    with pytest.raises(SlotpoolError, match="at most 1 records"):
        records.read(path)
    monkeypatch.setattr(files, "MAX_LINE", 100)
    with pytest.raises(SlotpoolError, match="at most 100 bytes"):
        records.read(path)
    with pytest.raises(SlotpoolError, match="at most 100 bytes"):
        records.append(path, made)


def test_form_before_version_1_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"benchmark": "decode_resident", "date": "2026-11-29"}\n')
    with pytest.raises(SlotpoolError, match="the form before"):
        records.read(path)


def test_missing_file_is_an_error_of_the_house(tmp_path: Path) -> None:
    with pytest.raises(SlotpoolError, match="cannot read records: No such file"):
        records.read(tmp_path / "none.jsonl")


# ---- fields ----

WRONG: list[tuple[str, Any]] = [
    ("kind", "Bench!"),
    ("kind", None),
    ("date", "yesterday"),
    ("date", "2026-11-30T01:00:00"),
    ("date", "2026-11-30T01:00:00+02:00"),
    ("commit", 7),
    ("uncommitted_changes", "no"),
    ("slotpool", None),
    ("engine", []),
    ("engine.package", None),
    ("engine.abi", 2),
    ("machine", "big"),
    ("load_average", "1.0"),
    ("load_average", -1),
    ("devices", {}),
    ("devices", [{}] * 257),
    ("devices.0.memory_bytes", -1),
    ("devices.0.memory_bytes", True),
    ("devices.0.driver", 1),
    ("model", {"name": "x"}),
    ("model", {"name": "x", "bytes": 1, "sha256": "00", "fingerprint": "0" * 64}),
    ("flags", []),
    ("results", None),
    ("results.speed", float("inf")),
    ("results.count", 2**64),
    ("slotpool", "x" * 5000),
]


@pytest.mark.parametrize(("place", "value"), WRONG)
def test_every_wrong_field_is_named(made: dict[str, Any], place: str, value: Any) -> None:
    document = copy.deepcopy(made)
    *folders, name = place.split(".")
    inner: Any = document
    for folder in folders:
        inner = inner[int(folder) if folder.isdigit() else folder]
    inner[name] = value
    with pytest.raises(schema.FieldError) as wrong:
        records.check(document)
    assert name in str(wrong.value)
    assert len(str(wrong.value)) < 300


def test_endless_nesting_is_refused(made: dict[str, Any]) -> None:
    deep: dict[str, Any] = {}
    for _ in range(80):
        deep = {"deeper": deep}
    with pytest.raises(schema.FieldError, match="levels"):
        records.check(made | {"results": deep})


def test_unknown_fields_and_a_day_without_time_are_welcome(made: dict[str, Any]) -> None:
    assert records.check(made | {"more": 1, "date": "2026-11-30"}).date == "2026-11-30"


# ---- digests ----


def test_digest_is_kept_until_the_file_changes(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"one")
    first = digest.sha256_of([path])
    assert first == hashlib.sha256(b"one").hexdigest()
    hashed = digest._hashed
    monkeypatch.setattr(digest, "_hashed", lambda _: pytest.fail("hashed again"))
    assert digest.sha256_of([path]) == first
    monkeypatch.setattr(digest, "_hashed", hashed)
    path.write_bytes(b"two")
    os.utime(path, ns=(1, 1))
    assert digest.sha256_of([path]) == hashlib.sha256(b"two").hexdigest()


def test_digest_of_shards_is_over_theirs(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    for path in paths:
        path.write_bytes(path.name.encode())
    each = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)
    assert digest.sha256_of(paths) == hashlib.sha256(each.encode()).hexdigest()


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1, "digests": {"x": "short"}}', '{"version": 9, "digests": {}}', "[" * 100_000])
def test_damaged_cache_counts_as_none(tmp_path: Path, cache: Path, text: str) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text(text)
    path = tmp_path / "model.gguf"
    path.write_bytes(b"one")
    assert digest.sha256_of([path]) == hashlib.sha256(b"one").hexdigest()
    assert len(json.loads(cache.read_text())["digests"]) == 1


# ---- the repository's own ----


def test_records_of_the_repository_can_be_read() -> None:
    found = [one for path in sorted((Path(__file__).parents[2] / "benchmarks/records").glob("*.jsonl")) for one in records.read(path)]
    assert len(found) >= 9
    assert all(one.results for one in found)
