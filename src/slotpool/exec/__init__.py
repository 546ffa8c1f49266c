"""Runs an unmodified llama.cpp program with a pool: a few variables in its environment, a plan in a private file, nothing else.

Makes no plan itself and knows no engine: whoever calls says how a plan is made from the model that the program's arguments name.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from slotpool import model, native, plan, profile
from slotpool.errors import REFUSED, SlotpoolError, printable, quoted
from slotpool.exec.child import run_child
from slotpool.exec.fit_target import VARIABLE as FIT_VARIABLE
from slotpool.exec.fit_target import fit_target, has_own_target
from slotpool.exec.linked import has_linked_backends
from slotpool.exec.program_model import program_model
from slotpool.exec.program_options import Option, value
from slotpool.exec.repack_option import repacks
from slotpool.exec.report import Report, read_report
from slotpool.model import Model
from slotpool.plan import Plan
from slotpool.trace.fingerprint import facts_of, fingerprint

CORE_VARIABLE = "GGML_BACKEND_PATH"
"""ggml's own: the one backend from outside that a program loads beside those it was built with."""
PLAN_VARIABLE = "SLOTPOOL_PLAN"
PRELOAD_VARIABLE = "LD_PRELOAD"
PRELOAD_PATH = native.CORE_PATH.with_name("libslotpool-preload.so")
"""For programs whose backends are linked in, which never look for others (core/os/preload_posix.cpp)."""

_SPLIT = Option(("-sm", "--split-mode"), "LLAMA_ARG_SPLIT_MODE")
_NO_WHOLE_EXPERT = ("row", "tensor")

MakePlan = Callable[[Model], Plan]
Say = Callable[[str], None]


def run(
    command: Sequence[str],
    make_plan: MakePlan,
    *,
    require_pool: bool = False,
    save_profile: Path | None = None,
    say: Say,
    say_more: Say = lambda _: None,
) -> int:
    """Runs `command`, a program and its arguments, with a pool for the model that the arguments name; returns its exit code.

    128 + n for a program that signal n ended, as a shell has it. `say` takes a line for the user, `say_more` one that only a curious
    one wants. Raises SlotpoolError for a program or a model that cannot be found, variables that the user has set already, and
    with `require_pool` or `save_profile` for an empty plan. `save_profile` is where the
    profile of all its processes that exited goes. A program that then uses no pool makes 1 of 0 with `require_pool`.
    """
    program = _find(command[0])
    _check_environment(os.environ)
    facts = _read(program_model(command[1:], os.environ))
    made = _for_program(make_plan(facts), facts, command[1:])
    if save_profile is not None:
        profile.check_target(save_profile, fingerprint(facts))
        made = replace(made, has_heat_report=True)
    for warning in made.warnings:
        say(f"warning: {warning}")
    if not made.groups:
        return _run_plain(program, command, made, facts, require_pool or save_profile is not None, say)
    with _private_folder() as folder:
        added = _variables(program, folder / "plan") | _reservation(made, command[1:], say_more)
        report = folder / "report"
        _write_plan(folder / "plan", plan.to_text(made, report=str(report)))
        for name, value in added.items():
            say_more(f"{name}={value}")
        code = run_child(program, command, dict(os.environ) | added, folder)
        found = read_report(report)
        code = _judge(code, command[0], found, require_pool, say)
        return _save(code, save_profile, found, facts, say) if save_profile is not None else code


def _save(code: int, path: Path, found: Report, facts: Model, say: Say) -> int:
    """Writes the profile; what cannot be kept makes 1 of 0."""
    experts = {(one.layer, plan.PASSES[one.is_chunk]): one.n_expert for one in facts.experts}
    heat = {place: [rows.get(expert, 0) for expert in range(experts[place])] for place, rows in found.heat.items() if place in experts}
    made = profile.of_heat(facts_of(facts, "", "exec"), heat)
    if not made.groups:
        say("no profile written: no process said at its exit which experts it asked for")
        return code or REFUSED
    profile.write(path, made)
    say(f"profile in {printable(path)}")
    return code


def _variables(program: str, plan_path: Path) -> dict[str, str]:
    added = {CORE_VARIABLE: str(native.CORE_PATH), PLAN_VARIABLE: str(plan_path)}
    if has_linked_backends(program):
        if not PRELOAD_PATH.exists():
            raise SlotpoolError("expected the library to preload, found none", where=printable(PRELOAD_PATH), do="Install slotpool again.")
        users = os.environ.get(PRELOAD_VARIABLE)
        added[PRELOAD_VARIABLE] = f"{PRELOAD_PATH}:{users}" if users else str(PRELOAD_PATH)
    return added


def _for_program(made: Plan, facts: Model, arguments: Sequence[str]) -> Plan:
    """The plan as a program can have it: drafting contexts have no part in it, nor a model that is split across devices by rows."""
    split = set((value(_SPLIT, arguments, os.environ) or "").split(",")) & set(_NO_WHOLE_EXPERT)
    if made.devices and split:
        reason = f"off: --split-mode {split.pop()} leaves no expert whole on one device"
        return plan.all_off(facts, made.policy, reason, made.warnings)
    return replace(plan.repacked(made, repacks(arguments, os.environ)), contexts="first")


def _reservation(made: Plan, arguments: Sequence[str], say_more: Say) -> dict[str, str]:
    target = fit_target(made, arguments, os.environ)
    if made.devices and has_own_target(arguments, os.environ):
        say_more("the program's own fit target stays: slots get what it leaves free, less the rail")
    return {FIT_VARIABLE: target} if target else {}


def _run_plain(program: str, command: Sequence[str], made: Plan, facts: Model, require_pool: bool, say: Say) -> int:
    reason = made.reason.removeprefix("off: ")
    if require_pool:
        where = printable(facts.files[0].path)
        raise SlotpoolError(f"expected something pooled, found nothing: {reason}", where=where, exit_code=REFUSED)
    say(f"pool off: {reason}")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(program, list(command), dict(os.environ))  # nothing to tidy up and nothing to say afterwards


def _judge(code: int, name: str, report: Report, require_pool: bool, say: Say) -> int:
    """The exit code, and a line where the core could not say for itself what became of the pool."""
    if not report.was_loaded and not report.refusals:
        say(f"pool off: {quoted(name)} never loaded the core: it is no llama.cpp program, or its ggml loads no backend from outside")
    elif report.was_loaded and not report.has_ended and code < 128:
        say("the program ended without its exit handlers: what the pool did is not known")
    if require_pool and not report.may_have_pooled:
        return code or REFUSED
    return code


def _find(name: str) -> str:
    found = shutil.which(name)
    if found:
        return os.path.abspath(found)
    if os.sep in name and os.path.exists(name):
        raise SlotpoolError("expected a program, found something that cannot be run", where=printable(name))
    where = "" if os.sep in name else " in PATH"
    raise SlotpoolError(f'expected a program, found none of the name "{quoted(name)}"{where}', where="slotpool exec")


def _check_environment(environment: Mapping[str, str]) -> None:
    for name in (CORE_VARIABLE, PLAN_VARIABLE):
        if name in environment:
            raise SlotpoolError(
                f'expected {name} unset, since slotpool exec sets it, found "{quoted(environment[name])}"',
                where="the environment",
                do=f"Unset it (env -u {name} slotpool exec ...), or run the program without slotpool exec.",
            )


def _read(path: Path) -> Model:
    facts = model.read(path)
    if facts.problems:
        raise SlotpoolError(facts.problems[0], where=printable(path), do="slotpool inspect lists all problems of the file.")
    return facts


def _write_plan(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))


@contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="slotpool-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
