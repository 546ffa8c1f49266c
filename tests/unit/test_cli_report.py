"""`slotpool report`: its forms, and what it says to wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slotpool.cli import main
from tests.unit.report_records import decode, record, spread, written


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "a.jsonl", decode(1.0, 1.0, date="2025-01-01"), decode(0.9, 0.8))


def test_it_prints_tables_their_record_and_where_we_lose(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "commit abc1234" in out
    assert "Where we lose" in out
    assert "1 older records" in err


def test_all_shows_older_ones(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(path), "--all", "--json"])
    assert [one["source"]["date"] for one in json.loads(capsys.readouterr().out)["records"]] == ["2025-01-01", "2026-01-02T03:04:05Z"]


def test_json_is_one_document(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["older"] == 1
    assert made["records"][0]["ratios"][0]["verdict"] == "worse in both"
    assert made["records"][0]["figures"][0]["samples"] == [9.0, 8.0]


def test_markdown_and_a_page_from_one_call(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "p.html"
    assert main(["report", str(path), "--markdown", "--html", str(page)]) == 0
    assert capsys.readouterr().out.startswith("## Decode")
    assert page.read_text().startswith("<!doctype html>")
    assert main(["report", str(path), "--html", str(page)]) == 2
    assert main(["report", str(path), "--html", str(page), "--force"]) == 0


def test_two_sets_are_compared(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = written(tmp_path / "b.jsonl", decode(0.9, 0.8, commit="fff0000"))
    assert main(["report", str(path), "--compare", str(other)]) == 0
    out = capsys.readouterr().out
    assert "too few samples to say" in out
    assert "commit fff0000" in out


def test_two_sets_without_a_common_figure_say_so(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = written(tmp_path / "b.jsonl", record("tomorrow", {"a": spread(1.0)}))
    assert main(["report", str(path), "--compare", str(other)]) == 0
    assert "no figure is in both sets" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected records, found none"),
        ("{}\n", "version 1"),
        ("not json\n", "line 1"),
        (json.dumps(decode(1.0)) + "\n" + json.dumps(decode(1.0))[:-9] + "\n", "line 2"),
        (json.dumps(decode(1.0) | {"kind": 7}) + "\n", "kind"),
        (json.dumps(record("decode_resident", {"ratio": 1})) + "\n", "results"),
        (json.dumps({"slotpool_record": 2}) + "\n", "version 1"),
        ("[" * 100_000 + "\n", "line 1"),
    ],
    ids=["empty", "no version", "no json", "torn", "no kind", "no arms", "newer", "deep"],
)
def test_a_wrong_file_is_an_error_of_at_most_four_lines(text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text(text)
    assert main(["report", str(path)]) == 2
    err = capsys.readouterr().err
    assert "wrong.jsonl" in err
    assert said in err
    assert len(err.splitlines()) <= 4


def test_of_a_damaged_file_whole_records_can_be_shown_and_the_others_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.jsonl", record("decode_resident", {"ratio": 1}), decode(1.1, 1.2))
    path.write_text("torn\n" + path.read_text())
    assert main(["report", str(path)]) == 2
    assert main(["report", str(path), "--salvage", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [one["ratios"][0]["median"] for one in json.loads(out)["records"]] == [pytest.approx(1.15)]
    assert "a.jsonl, line 1" in err
    assert "field results.pool_tps" in err


def test_a_file_without_a_whole_record_has_nothing_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("torn\n" * 30)
    assert main(["report", str(path), "--salvage", "--html", str(tmp_path / "p.html")]) == 0
    assert "10 more records passed over" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kind", "decode_residen"], "Did you mean decode_resident?"),
        (["--json", "--markdown"], "found both"),
        (["--ignore", "machine"], "--compare"),
        (["--compare", "x", "--ignore", "machin"], "Did you mean machine?"),
        (["--compare", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_a_wrong_option_is_an_error(options: list[str], said: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(path), *options]) == 2
    assert said in capsys.readouterr().err


def test_without_records_it_shows_those_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["report"]) == 2
    assert "expected RECORDS, found none" in capsys.readouterr().err
    (tmp_path / "slotpool").mkdir()
    written(tmp_path / "slotpool" / "records.jsonl", decode(1.1, 1.2))
    assert main(["report"]) == 0
    assert "1.150x" in capsys.readouterr().out
