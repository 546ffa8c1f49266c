"""A page comes with a session and goes with it, whatever ends the process; without a place for it nothing else changes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from slotpool import model, page, plan
from slotpool.native import CORE_PATH, Session
from tests.page.conftest import DECODING, DEMO, Start, pages_in

PLAN = """slotpool-plan 1
group layer=4 pass=exps device=CPU slots=6 n_expert=16
tensor blk.4.ffn_up_exps.weight role=up slab=4096
off blk.5.ffn_up_exps.weight off: too large, or so
"""
READY = "print('ready', flush=True)\n"
OPEN = f"from slotpool.native import Session\nsession = Session({PLAN!r})\n{READY}input()\n"


def files(runtime: Path) -> list[str]:
    return sorted(os.listdir(runtime / "slotpool"))


def test_page_is_there_from_the_opening_of_a_session_to_its_close(runtime: Path) -> None:
    session = Session(PLAN)
    (found,) = pages_in(runtime)
    assert session.why_no_page() == ""
    assert (found.facts.header.pid, found.facts.header.session) == (os.getpid(), session.number)
    session.close()
    assert files(runtime) == []


def test_page_is_its_users_alone(runtime: Path) -> None:
    session = Session(PLAN)
    (file,) = (runtime / "slotpool").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) & 0o777 == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    session.close()


def test_sessions_of_a_process_have_a_page_each(runtime: Path) -> None:
    sessions = [Session(PLAN), Session(PLAN.replace("slots=6", "slots=7"))]
    assert [found.facts.groups[0].slots for found in pages_in(runtime)] == [6, 7]
    sessions[0].close()
    assert [found.facts.header.session for found in pages_in(runtime)] == [sessions[1].number]
    sessions[1].close()


def test_page_states_what_the_plan_states(runtime: Path) -> None:
    session = Session(PLAN)
    stats = page.stats_of(pages_in(runtime)[0])
    session.close()
    assert [tuple(tensor.values())[:3] for tensor in stats["tensors"]] == [
        (
            "blk.4.ffn_up_exps.weight",
            "off",
            "off: not in the store: the loader put it elsewhere (a device, an override), or does not use it",
        ),
        ("blk.5.ffn_up_exps.weight", "off", "off: too large, or so"),
    ]
    assert stats["layers"][0] | {"layer": 4, "slots": 6, "n_expert": 16, "device": "CPU", "pass": "exps"} == stats["layers"][0]


def test_long_texts_are_cut_between_characters(runtime: Path) -> None:
    session = Session(PLAN + "off name off: " + "é" * 300 + "\n")
    reason = pages_in(runtime)[0].facts.tensors[-1].off_reason
    session.close()
    assert reason == "off: " + "é" * 123 + "..."


def test_normal_exit_takes_the_page_away(start: Start, runtime: Path) -> None:
    program = start(OPEN)
    program.line()
    assert len(pages_in(runtime)) == 1
    assert program.end() == 0
    assert files(runtime) == []


def test_page_of_a_killed_process_is_not_shown_and_removed_when_it_is_old(
    start: Start, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = start(OPEN)
    program.line()
    program.kill()
    assert pages_in(runtime) == []
    assert len(files(runtime)) == 1  # a file so young may be one that its process has not locked yet
    monkeypatch.setattr(page.files, "_YOUNG_S", -1.0)
    assert pages_in(runtime) == []
    assert files(runtime) == []


def test_page_of_a_living_process_is_never_removed(start: Start, runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(OPEN).line()
    monkeypatch.setattr(page.files, "_YOUNG_S", -1.0)
    assert len(pages_in(runtime)) == len(files(runtime)) == 1


def test_program_that_a_process_becomes_does_not_inherit_its_page(start: Start, runtime: Path) -> None:
    program = start(OPEN + "import os\nos.execl('/bin/sh', 'sh', '-c', 'echo other; read line')")
    program.line()
    program.go_on()
    assert program.line() == "other"
    assert pages_in(runtime) == []  # the pid and the start of the process are those of the page


FORK = DECODING + (
    "import os, sys\ndecode(5)\n" + READY + "input()\n"
    "if os.fork() == 0:\n"
    "    llm.slotpool_session.reset_counts()\n"
    "    print(llm.slotpool_session.counts()[0].generation.events, flush=True)\n"
    "    sys.stdin.readline()\n"
    "    sys.exit(0)\n"
    "{parent}"
)


def test_child_counts_for_itself_and_leaves_the_page_to_its_parent(start: Start, runtime: Path) -> None:
    program = start(FORK.format(parent="os.wait()\nprint('gone', flush=True)\ninput()\n"))
    program.line()
    before = pages_in(runtime)[0]
    program.go_on()
    assert program.line() == "0"  # the child reset its counters
    assert pages_in(runtime) == [before]
    program.go_on()
    assert program.line() == "gone"  # it ended as programs do, its exit handlers called
    assert pages_in(runtime) == [before]
    assert before.counts[0].generation.events > 0


def test_page_dies_with_its_process_though_a_child_lives_on(start: Start, runtime: Path) -> None:
    program = start(FORK.format(parent="os.kill(os.getpid(), 9)\n"))
    program.line()
    program.go_on()
    assert program.line() == "0"
    program.process.wait()
    assert pages_in(runtime) == []


# ---- no place for a page ----


def test_next_directory_is_taken_where_the_first_cannot_be(start: Start, runtime: Path) -> None:
    program = start(OPEN, XDG_RUNTIME_DIR=str(runtime / "missing"))
    program.line()
    found = page.look(page.directories())
    assert [one.facts.header.session for one in found.pages if one.facts.header.pid == program.pid] == [1]


SAYS_WHY = DECODING + "decode(5)\nprint(slotpool.stats(llm)['lookups'])\nprint(llm.slotpool_session.why_no_page(), flush=True)\ninput()\n"
LIMITED = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nresource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))\n"


@pytest.mark.parametrize("limit", [0, 8192], ids=["for the page", "for a context"])
def test_file_that_may_not_grow_costs_the_page_and_no_count(start: Start, runtime: Path, limit: int) -> None:
    expected = start(SAYS_WHY)
    counted, why = expected.line(), expected.line()
    assert (int(counted) > 0, why) == (True, "")
    expected.kill()
    limited = start(LIMITED.format(limit) + SAYS_WHY)
    assert limited.line() == counted
    assert "File too large" in limited.line()
    assert pages_in(runtime) == []
    assert limited.end() == 0


def open_with(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> str:
    """Why a session has no page in `runtime`, or "" when it has one there; elsewhere does not count."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    session = Session(PLAN)
    try:
        return "" if page.look([runtime / "slotpool"]).pages else "elsewhere"
    finally:
        session.close()


def test_directory_that_is_a_link_is_not_used(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runtime / "there").mkdir(mode=0o700)
    (runtime / "slotpool").symlink_to(runtime / "there")
    assert open_with(monkeypatch, runtime) == "elsewhere"
    assert list((runtime / "there").iterdir()) == []


def test_directory_that_others_may_enter_is_not_used(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (runtime / "slotpool").mkdir()
    (runtime / "slotpool").chmod(0o755)
    assert open_with(monkeypatch, runtime) == "elsewhere"
    (runtime / "slotpool").chmod(0o700)
    assert open_with(monkeypatch, runtime) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_no_directory_at_all_is_said_and_nothing_else_changes(start: Start, tmp_path: Path) -> None:
    user = 61234
    taken = Path(f"/dev/shm/slotpool-{user}")
    taken.mkdir(mode=0o755)  # root's, so not that user's own
    try:
        becomes = f"import os\nos.setuid({user})\n"
        program = start(
            f"import slotpool.native as n\nn.is_registered()\n{becomes}s = n.Session({PLAN!r})\nprint(s.why_no_page(), len(s.counts()))"
        )
        line = program.line()
        assert "no directory" in line
        assert f"expected a directory that is this user's alone, found another: {taken}" in line
        assert line.endswith(" 1")
    finally:
        taken.rmdir()


UNMODIFIED = f"""
import llama_cpp
llama_cpp.llama_cpp._lib.ggml_backend_load_all()  # as llama.cpp's own programs begin
llm = llama_cpp.Llama({str(DEMO)!r}, n_ctx=128, n_threads=1, n_threads_batch=1, verbose=False)
for token in range(20):
    llm.eval([token])
{READY}input()
"""


def test_program_that_knows_nothing_of_us_has_a_page(start: Start, runtime: Path) -> None:
    """The plan's session is never closed there: the page goes at normal exit."""
    made = plan.make(model.read(DEMO), 12)
    (runtime / "plan.txt").write_text(plan.to_text(made))
    program = start(UNMODIFIED, SLOTPOOL_PLAN=str(runtime / "plan.txt"), GGML_BACKEND_PATH=str(CORE_PATH))
    program.line()
    stats = page.stats_of(pages_in(runtime)[0])
    assert stats["generation"]["events"] == 20 * len(made.groups)
    assert stats["pooled_tensors"] == stats["expert_tensors"]
    assert program.end() == 0
    assert files(runtime) == []
