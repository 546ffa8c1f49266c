"""Texts of users: what is not UTF-8, too long or not there is said, with the place."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slotpool import texts
from slotpool.cli import main
from slotpool.errors import SlotpoolError

DEMO = Path(__file__).parents[2] / "src/slotpool/data/demo.gguf"


def test_a_text_is_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("Gödel\r\n\0".encode())
    assert texts.read_text(path) == "Gödel\r\n\0".encode()


def test_a_dash_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a text")))
    assert texts.read_text(Path("-")) == b"a text"


@pytest.mark.parametrize("content", [b"abc\xff", b"abc\xc3", b"abc\xed\xa0\x80"], ids=["no-utf-8", "cut-off", "surrogate"])
def test_the_first_byte_that_is_not_utf_8_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(SlotpoolError, match=r"expected text in UTF-8, found something else from byte 3 on.*a\.txt"):
        texts.read_text(tmp_path / "a.txt")


def test_a_text_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_BYTES", 4)
    (tmp_path / "a.txt").write_bytes(b"four")
    assert texts.read_text(tmp_path / "a.txt") == b"four"
    (tmp_path / "a.txt").write_bytes(b"fives")
    with pytest.raises(SlotpoolError, match="at most 4 bytes"):
        texts.read_text(tmp_path / "a.txt")


def test_a_text_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SlotpoolError, match=r"cannot read the text: No such file.*none\.txt"):
        texts.read_text(tmp_path / "none.txt")


@pytest.mark.parametrize("verb", [("run",), ("trace", "-o", "OUT"), ("drift",), ("bench",)], ids=lambda verb: verb[0])
def test_no_verb_gives_the_engine_what_is_not_utf_8(verb: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_bytes(b"ab\xff\xfe")
    options = [str(tmp_path / "out.trace") if one == "OUT" else one for one in verb[1:]]
    assert main([verb[0], str(DEMO), "-f", str(tmp_path / "a.txt"), *options]) == 2
    assert "found something else from byte 2 on" in capsys.readouterr().err


def test_nor_does_a_prompt_in_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(DEMO), "-p", "ab\udcff"]) == 2
    assert "from byte 2 on (at --prompt)" in capsys.readouterr().err
