"""`slotpool inspect`: the report, the JSON, the exit codes."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Kind

from slotpool import cli
from slotpool.cli import main
from tests.unit.test_model_builder import T, gguf_bytes, layer, moe_bytes, moe_keys, moe_tensors, shard_files, write

SOURCE = Path(cli.__file__).parents[2]


def inspect_json(path: Path, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert main(["inspect", str(path), "--json"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    document: dict[str, Any] = json.loads(out)
    return document


def test_json_has_the_fields_that_other_tools_rely_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.gguf", moe_bytes())
    facts = inspect_json(path, capsys)
    numbers = {
        key: facts[key] for key in ("architecture", "n_layer", "n_expert", "n_expert_used", "expert_bytes", "other_bytes", "problems")
    }
    assert numbers == {
        "architecture": "qwen3moe",
        "n_layer": 2,
        "n_expert": 4,
        "n_expert_used": 2,
        "expert_bytes": 6 * 32768,
        "other_bytes": 1024 + 2 * (128 + 512),
        "problems": [],
    }
    assert len(facts["tensors"]) == 6
    first = facts["tensors"][0]
    assert set(first) >= {"name", "layer", "role", "type", "n_expert", "slab_bytes", "shard", "offset"}
    assert (first["name"], first["layer"], first["role"]) == ("blk.0.ffn_gate_exps.weight", 0, "gate")
    assert (first["type"], first["n_expert"], first["slab_bytes"], first["shard"]) == ("F32", 4, 8192, 0)
    assert path.read_bytes()[first["offset"] :][: 4 * 8192] == b"\x03" * (4 * 8192)


def test_json_of_shards_leads_to_the_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = shard_files(tmp_path, [[], moe_tensors()[:5], moe_tensors()[5:]])
    facts = inspect_json(paths[2], capsys)
    assert (facts["n_shards"], [file["shard"] for file in facts["files"]]) == (3, [0, 1, 2])
    for tensor in facts["tensors"]:
        raw = Path(facts["files"][tensor["shard"]]["path"]).read_bytes()
        assert len(set(raw[tensor["offset"] :][: tensor["bytes"]])) == 1
        assert tensor["file"] == paths[tensor["shard"]].name


def test_json_of_a_missing_shard_still_tells_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = shard_files(tmp_path, [moe_tensors()[:5], moe_tensors()[5:]])
    paths[0].unlink()
    facts = inspect_json(paths[1], capsys, code=1)
    assert (facts["architecture"], len(facts["tensors"]), facts["tensors"][0]["file"]) == ("", 4, paths[1].name)
    assert facts["problems"] == [f"missing shard: {paths[0].name} (shard 1 of 2, expected in {tmp_path})"]


def test_report_shows_files_sizes_roles_layers_and_totals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = [
        *layer(0),
        T("blk.1.ffn_gate_up_exps.weight", (256, 8, 4), Kind.Q4_K),
        T("blk.1.ffn_down_exps.weight", (256, 8, 4), Kind.Q6_K),
    ]
    path = write(tmp_path / "m.gguf", gguf_bytes(moe_keys(), tensors))
    assert main(["inspect", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for pattern in (
        rf"^file +{re.escape(str(path))} \(\S+KiB\)$",
        r"^architecture +qwen3moe$",
        r"^layers +2, 2 with experts$",
        r"^experts +4, 2 used per token$",
        r"^expert bytes +107.06KiB in 5 tensors$",
        r"^gate +F32 +4 +8KiB +1 +32KiB$",
        r"^gate_up +Q4_K +4 +1.12KiB +1 +4.5KiB$",
        r"^down +Q6_K +4 +1.64KiB +1 +6.56KiB$",
        r"^ +0 +gate F32, up F32, down F32 +4 +24KiB +96KiB +1$",
        r"^ +1 +gate_up Q4_K, down Q6_K +4 +2.77KiB +11.06KiB +1$",
        r"^total +107.06KiB$",
        r"^problems: none$",
    ):
        assert re.search(pattern, out, re.MULTILINE), (pattern, out)


def test_report_of_a_dense_model_has_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = gguf_bytes({"general.architecture": "llama", "llama.block_count": 1}, [T("blk.0.ffn_up.weight", (32, 32))])
    assert main(["inspect", str(write(tmp_path / "m.gguf", raw))]) == 0
    out = capsys.readouterr().out
    assert "none, a dense model" in out
    assert "role" not in out
    assert out.endswith("problems: none\n")


def test_damage_is_shown_and_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.gguf", moe_bytes()[:-1])
    assert main(["inspect", str(path)]) == 1
    out, err = capsys.readouterr()
    assert re.search(r"^problems: 1\n  truncated: blk.1.ffn_down_exps.weight lacks 1 of its 32768 bytes", out, re.MULTILINE)
    assert err == ""
    assert len(inspect_json(path, capsys, code=1)["problems"]) == 1


def test_layout_of_2023_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single = [T(f"blk.0.ffn_{role}.{n}.weight", (32, 64)) for n in range(4) for role in ("gate", "up", "down")]
    path = write(tmp_path / "m.gguf", gguf_bytes(moe_keys("llama", n_layer=1), single))
    assert main(["inspect", str(path)]) == 1
    assert "legacy per-expert layout, current llama.cpp cannot load it" in capsys.readouterr().out


@pytest.mark.parametrize("args", [[], ["--json"]])
def test_what_is_no_gguf_is_exit_code_2_with_an_empty_stdout(args: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.gguf", b"<!DOCTYPE html>")
    assert main(["inspect", str(path), *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"slotpool: expected a GGUF file, found a web page (at {path}). Give a .gguf model file.\n"


@pytest.mark.parametrize("cut", sorted(random.Random(7).sample(range(len(moe_bytes())), 24)))
@pytest.mark.parametrize("args", [[], ["--json"]])
def test_cut_file_never_passes(cut: int, args: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m.gguf", moe_bytes()[:cut])
    assert main(["inspect", str(path), *args]) == (1 if cut >= 4 else 2)
    out, err = capsys.readouterr()
    assert ("problems" in out) != ("slotpool: " in err)


PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LLAMA, BYTES = "gr\u00fc\u00dfe \U0001f999.gguf".encode(), b"\xff\xfe\nx.gguf"


@pytest.mark.parametrize(
    ("name", "env"),
    [(LLAMA, {}), (BYTES, {}), (b"x" * 250 + b".gguf", {}), (b"[red]%s.gguf", {"FORCE_COLOR": "1"}), (LLAMA, PLAIN_C), (BYTES, PLAIN_C)],
)
def test_any_path_survives_a_real_command_line(name: bytes, env: dict[str, str], tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    write(Path(os.fsdecode(path)), moe_bytes())
    command = [sys.executable, "-m", "slotpool.cli", "inspect", path]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)} | env
    for args in ([], ["--json"]):
        done = subprocess.run([*command, *args], capture_output=True, env=environment, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\x1b" not in done.stdout
    if not env:
        assert os.fsencode(json.loads(done.stdout)["files"][0]["path"]) == path


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;x\x07\n"
    path = write(tmp_path / "m.gguf", gguf_bytes(moe_keys(evil), [*moe_tensors(), T(evil, (8,)), T(evil, (8,))]))
    assert main(["inspect", str(path)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "architecture  \\x1b]0;x\\x07\\n\n" in out
