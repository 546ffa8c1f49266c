"""The command around the verbs: finding them, errors, exit codes, streams."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from slotpool import cli
from slotpool.cli import main, parameters
from slotpool.errors import REFUSED, SlotpoolError

SOURCE = Path(cli.__file__).parents[2]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Adds a verb `trial` that does what the test says: as a real one, a module with `command`, and a name in VERBS."""

    def add(body: Callable[..., Any], *options: Any) -> None:
        command = click.command("trial")(body)
        for option in options:
            command = option(command)
        monkeypatch.setitem(sys.modules, "slotpool.cli.trial", SimpleNamespace(command=command))  # type: ignore[misc]
        monkeypatch.setattr(cli, "VERBS", (*cli.VERBS, "trial"))

    return add


def raising(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


def run_python(code: str) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | {"PYTHONPATH": str(SOURCE)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, timeout=60)


def run(*args: str, stdin: Any = subprocess.DEVNULL, **more: Any) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | {"PYTHONPATH": str(SOURCE)} | more.pop("env", {})
    return subprocess.run([sys.executable, "-m", "slotpool.cli", *args], capture_output=True, stdin=stdin, env=env, timeout=60, **more)


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert "inspect" in out
    assert err == ""


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["inspect", "--help"], ["inspect", "-h"]])
def test_help_goes_to_stdout(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: slotpool")
    assert err == ""


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"slotpool \S+\n", capsys.readouterr().out)


@pytest.mark.parametrize("name", cli.VERBS)
def test_every_verb_has_help_and_an_example_of_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"slotpool {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["inspct", "x"], 'unknown verb "inspct" (valid: '),
        (["inspct", "x"], "Did you mean inspect?"),
        (["inspect"], "expected MODEL, found nothing (at slotpool inspect). Usage: slotpool inspect [OPTIONS] MODEL"),
        (["inspect", "--jsn", "x"], 'unknown option "--jsn" (valid: --json, --help) (at slotpool inspect). Did you mean --json?'),
        (["--dbug"], "Did you mean --debug?"),
        (["inspect", "a", "b"], "unexpected extra argument (b) (at slotpool inspect)"),
        (["inspect", "a", "b\x1b[31m\n"], r"unexpected extra argument (b\x1b[31m\n)"),
        (["inspect", "--json=yes", "a"], "'--json' does not take a value"),
    ],
)
def test_wrong_usage_is_answered_in_one_line_with_exit_code_2(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert err.startswith("slotpool: ")
    assert (out, len(err.splitlines())) == ("", 1)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (SlotpoolError("no such thing", where="here", do="Do that."), 2, "slotpool: no such thing (at here). Do that.\n"),
        (SlotpoolError("no-go", exit_code=REFUSED), 1, "slotpool: no-go\n"),
        (KeyboardInterrupt(), 130, ""),
        (click.Abort(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (click.UsageError("bad"), 2, "slotpool: bad (at slotpool trial). Usage: slotpool trial [OPTIONS]\n"),
        (click.exceptions.Exit(7), 7, ""),
        (FileNotFoundError(2, "No such file", "a\nb"), 2, "slotpool: the system says no: No such file (at a\\nb)\n"),
    ],
)
def test_what_a_verb_raises_becomes_a_message_and_an_exit_code(
    error: BaseException, code: int, message: str, verb: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    verb(raising(error))
    assert main(["trial"]) == code
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (1, 1)])
def test_what_a_verb_returns_is_the_exit_code(result: int | None, code: int, verb: Callable[..., None]) -> None:
    verb(lambda: result)
    assert main(["trial"]) == code


def test_bug_is_called_a_bug_in_one_line(verb: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(raising(KeyError("x\ny")))
    assert main(["trial"]) == 70
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("slotpool: this is a bug in slotpool: KeyError: 'x\\ny' at test_cli_main.py:")
    assert "--debug" in line


@pytest.mark.parametrize(("error", "code"), [(KeyError("x"), 70), (SlotpoolError("no"), 2)])
def test_debug_shows_the_traceback(error: Exception, code: int, verb: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(raising(error))
    assert main(["--debug", "trial"]) == code
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "in body" in err
    assert err.splitlines()[-1].startswith("slotpool: ")


def test_debug_after_the_verb_is_not_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--debug", "x"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_only_the_verb_that_is_asked_for_is_imported() -> None:
    code = "import sys; from slotpool.cli import main; main(['--version'])\n"
    code += "print([m for m in sys.modules if m.endswith(('.inspect', 'rich'))])"
    done = run_python(code)
    assert done.stdout.splitlines()[-1] == b"[]"


def test_one_of_lists_the_names(verb: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(lambda miss: print(miss), click.option("--miss", "-m", type=parameters.OneOf("miss", ["auto", "copy", "cpu"])))
    assert main(["trial", "--miss", "copi"]) == 2
    assert capsys.readouterr().err == (
        'slotpool: unknown miss "copi" (valid: auto, copy, cpu) (at slotpool trial --miss). Did you mean copy?\n'
    )
    assert main(["trial", "--miss", "cpu"]) == 0
    assert capsys.readouterr().out == "cpu\n"
    assert main(["trial", "--help"]) == 0
    assert "[auto|copy|cpu]" in capsys.readouterr().out


def test_byte_size_is_read_and_refused(verb: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    verb(lambda rail: print(rail), click.option("--rail", callback=parameters.byte_size, metavar="BYTES"))
    assert main(["trial", "--rail", "1.5KiB"]) == 0
    assert main(["trial"]) == 0
    assert main(["trial", "--rail", "1.5K"]) == 2
    out, err = capsys.readouterr()
    assert out == "1536\nNone\n"
    assert "(at slotpool trial --rail). Write KiB" in err


def table(capsys: pytest.CaptureFixture[str], rows: list[list[str]]) -> list[str]:
    from slotpool.cli.output import print_table

    print_table(["name", "bytes"], rows, right=["bytes"])
    return capsys.readouterr().out.splitlines()


def test_table_in_a_pipe_is_plain_and_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    long = "blk.0." + "x" * 500
    assert table(capsys, [[long, "1"], ["[red]:smile:", "200"], ["\u3000\x1b\n", ""]]) == [
        "name" + " " * 504 + "bytes",
        "-" * 506 + "  -----",
        long + "      1",
        "[red]:smile:" + " " * 498 + "200",
        "\u3000\\x1b\\n",
    ]


def test_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    assert table(capsys, []) == ["name  bytes", "----  -----"]


def test_table_in_a_terminal_folds_but_cuts_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    lines = table(capsys, [["n" * 100, "1"], ["[red]x", "22"]])
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))
    assert text.count("n") - 1 == 100
    assert "[red]x" in text
    assert "\u2026" not in text
    assert all(len(line) <= 40 for line in text.splitlines())


def test_json_is_ascii_and_refuses_what_is_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    from slotpool.cli.output import print_json

    print_json({"path": "\udcff\u3000"})
    assert capsys.readouterr().out.isascii()
    with pytest.raises(ValueError, match="JSON"):
        print_json({"x": float("nan")})


def test_interrupt_is_quiet_and_130() -> None:
    # a job in the background inherits an ignored SIGINT
    code = "import os, signal, slotpool.cli as c\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "import slotpool.cli.inspect as i\ni.read = lambda p: os.kill(os.getpid(), signal.SIGINT)\n"
    done = run_python(code + "raise SystemExit(c.main(['inspect', 'x']))")
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, b"", b"")


def run_into(stdout: int, unbuffered: str) -> subprocess.CompletedProcess[bytes]:
    env = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "slotpool.cli", "--help"]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=env, timeout=60)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_reader_that_went_away_is_no_error(unbuffered: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = run_into(write_end, unbuffered)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_disk_is_told_in_one_line(unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = run_into(full.fileno(), unbuffered)
    assert (done.returncode, done.stderr) == (2, b"slotpool: the system says no: No space left on device\n")


def test_closed_stdout_is_no_bug() -> None:
    env = os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": ""}
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m slotpool.cli --version >&-"], capture_output=True, env=env, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_verb_is_found_from_a_real_command_line() -> None:
    done = run("inspect", "/nonexistent\u00e9", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"No such file or directory" in done.stderr
    assert b"Traceback" not in done.stderr
