"""`slotpool exec`: an unmodified llama.cpp program with a pool for the model that its own arguments name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slotpool.cli.output import print_note
from slotpool.cli.pool_options import plan_option, planned, pool_options, save_profile_option

if TYPE_CHECKING:
    from slotpool import plan
    from slotpool.model import Model


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM ARGS...")
@save_profile_option
@pool_options("auto")
@plan_option
@click.option("-v", "--verbose", is_flag=True, help="Show every variable that is set for the program, on stderr.")
def command(program: tuple[str, ...], verbose: bool, save_profile: Path | None, **options: Any) -> int:
    """Run PROGRAM, any llama.cpp program that loads backends, with a pool for the model that its ARGS name (-m).

    Its stdin, stdout, stderr, environment, signals and exit code stay its own; GGML_BACKEND_PATH and SLOTPOOL_PLAN are added, and
    LD_PRELOAD for a program that has its backends linked in. When it exits, one line on stderr says what the pool did.
    --device names devices as the program lists them; without it slots are in RAM. --plan takes a plan that slotpool plan wrote, for devices
    of the same names. A program that fits itself into its devices (--fit) is told to leave the slots free, by LLAMA_ARG_FIT_TARGET,
    unless it has a target of yours.
    """
    from slotpool import exec, native, plan, profile
    from slotpool.errors import printable
    from slotpool.plan.bind import check_alone

    require_pool, plan_file = options["require_pool"], options.pop("plan_file")
    hot, pin = options.pop("profile"), options.pop("pin")
    found = profile.read(hot) if hot else None
    if plan_file is not None:
        check_alone(options)
    pool = planned(options)

    def make(facts: Model) -> plan.Plan:
        if plan_file is None:
            return plan.make(facts, available=native.available_memory().smallest, **pool)
        return plan.bind(plan.read_plan(plan_file).plan, facts, printable(plan_file))

    return exec.run(
        program,
        lambda facts: plan.with_profile(make(facts), facts, found, pin, printable(hot or "--profile")),
        require_pool=require_pool,
        save_profile=save_profile,
        say=lambda line: print_note(f"slotpool: {line}"),
        say_more=lambda line: print_note(f"slotpool: {line}") if verbose else None,
    )
