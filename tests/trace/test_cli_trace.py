"""`slotpool trace` and `slotpool analyze` as a user runs them: files in, files out, exit codes, errors in the house style."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from slotpool import recording, trace
from slotpool.cli import main
from slotpool.cli import trace as verb

DEMO = str(files("slotpool") / "data" / "demo.gguf")
PROSE = "The lighthouse keeper walked down to the harbour in the rain. " * 8
CODE = "def add(left: int, right: int) -> int:\n    return left + right\n" * 8


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of the bundled model over two short texts."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "prose.txt").write_text(PROSE)
    (folder / "code.txt").write_text(CODE)
    texts = ["-f", str(folder / "prose.txt"), "-f", str(folder / "code.txt")]
    assert main(["trace", DEMO, *texts, "-o", str(folder / "demo.trace"), "--threads", "1"]) == 0
    return folder / "demo.trace"


def run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = main([str(arg) for arg in args])
    out, err = capsys.readouterr()
    return code, out, err


def test_modes_of_the_verb_are_those_of_the_recorder() -> None:
    assert verb.MODES == recording.MODES


def test_the_bundled_model_is_traced_token_by_token(demo: Path) -> None:
    found = trace.open(demo)
    assert found.is_complete
    assert [segment.name.split("/")[-1] for segment in found.segments] == ["prose.txt", "code.txt"]
    assert {len(group.events) for group in found.groups} == {found.n_ubatches}
    assert {group.events.n_tokens.max() for group in found.groups} == {1}


def test_a_prompt_routes_as_the_tokens_do_one_by_one(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other kernels, other last bits: a tie may fall the other way, but not many."""
    code, out, err = run(capsys, "trace", DEMO, "-f", demo.parent / "prose.txt", "-o", tmp_path / "p", "--mode", "prompt", "--json")
    assert (code, err) == (0, "")
    made = json.loads(out)
    assert {"n_tokens", "n_generated", "n_events", "n_windows", "mode", "path", "file_bytes"} <= made.keys()
    prompt, forced = trace.open(tmp_path / "p").group(0).ids, trace.open(demo).group(0).ids[: made["n_tokens"]]
    assert (np.sort(prompt, axis=1) == np.sort(forced, axis=1)).mean() > 0.99


def test_generate_follows_from_n(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t").write_text("Once upon a time")
    code, out, _ = run(capsys, "trace", DEMO, "-f", tmp_path / "t", "-o", tmp_path / "g", "-n", "5", "--no-weights", "--json")
    assert code == 0
    assert json.loads(out)["n_generated"] == 5
    found = trace.open(tmp_path / "g")
    assert found.groups[0].events.phase.tolist()[-5:] == [trace.GENERATION] * 5
    assert found.groups[0].weights is None


def test_the_dump_has_every_row(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "trace", "--dump", demo)
    rows = [line for line in out.splitlines() if line[0].isdigit()]
    assert code == 0
    assert len(rows) == sum(group.n_rows for group in trace.open(demo).groups)


@pytest.mark.parametrize("suffix", trace.SUFFIXES)
def test_a_trace_is_converted(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    assert run(capsys, "trace", "--convert", demo, "-o", tmp_path / f"a{suffix}")[0] == 0
    code, out, _ = run(capsys, "analyze", tmp_path / f"a{suffix}", "--json", "--no-pools", "--experts", "24")
    assert code == 0
    plain = json.loads(run(capsys, "analyze", demo, "--json", "--no-pools")[1])
    assert [layer["gini"] for layer in json.loads(out)["layers"]] == [layer["gini"] for layer in plain["layers"]]


def test_analyze_prints_tables_and_writes_a_page(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "analyze", demo, "--html", tmp_path / "a.html")
    assert code == 0
    assert "entropy bits" in out
    assert "belady" in out
    assert "from cold to steady with 25% slots" in out
    assert "wrote" in err
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert run(capsys, "analyze", demo, "--html", tmp_path / "a.html")[0] == 2


BAD = {
    "nothing": (["trace"], "expected one of MODEL, --dump and --convert"),
    "two things": (["trace", "m", "--dump", "t"], "expected one of MODEL"),
    "no text": (["trace", DEMO, "-o", "x"], "expected a text to run"),
    "no output": (["trace", DEMO, "-f", "x"], "expected a file to write"),
    "no such text": (["trace", DEMO, "-f", "no-such-file", "-o", "x"], "cannot read the text"),
    "an unknown mode": (["trace", DEMO, "-f", "x", "-o", "y", "--mode", "force"], "Did you mean forced?"),
    "-n with another mode": (["trace", DEMO, "-f", "x", "-o", "y", "--mode", "prompt", "-n", "3"], "-n with --mode generate"),
    "generate without -n": (["trace", DEMO, "-f", "x", "-o", "y", "--mode", "generate"], "-n with --mode generate"),
    "no such trace": (["analyze", "no-such-file"], "cannot read the trace"),
    "an unknown phase": (["analyze", "x", "--phase", "prompts"], "Did you mean prompt?"),
    "no such dump": (["trace", "--dump", "no-such-file"], "cannot read the trace"),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_usage_is_said_in_few_lines(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    args, words = BAD[name]
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) <= 4
    assert not list(tmp_path.iterdir())


def test_a_damaged_trace_is_refused_and_salvaged(demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(demo.read_bytes())
    data[-60] ^= 1
    (tmp_path / "a").write_bytes(data)
    code, _, err = run(capsys, "analyze", tmp_path / "a")
    assert code == 1
    assert "--salvage" in err
    (tmp_path / "b").write_bytes(demo.read_bytes()[:-10])
    code, out, _ = run(capsys, "analyze", tmp_path / "b", "--json", "--no-pools")
    assert (code, json.loads(out)["is_complete"]) == (0, False)


def test_heat_cannot_be_converted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("0,1,5\n")
    assert "without the order of tokens" in run(capsys, "trace", "--convert", tmp_path / "a.csv", "-o", tmp_path / "b.npz")[2]


def test_a_dense_model_has_no_routing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + (3).to_bytes(4, "little") + bytes(16))
    (tmp_path / "t").write_text("x")
    code, _, err = run(capsys, "trace", tmp_path / "m.gguf", "-f", tmp_path / "t", "-o", tmp_path / "o")
    assert code == 2
    assert len(err.splitlines()) <= 4
