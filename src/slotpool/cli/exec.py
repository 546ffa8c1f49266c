"""`slotpool exec`: an unmodified llama.cpp program with a pool for the model that its own arguments name."""

from __future__ import annotations

from typing import Any

import click

from slotpool.cli.output import print_note
from slotpool.cli.pool_options import planned, pool_options


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM ARGS...")
@pool_options("auto")
@click.option("-v", "--verbose", is_flag=True, help="Show every variable that is set for the program, on stderr.")
def command(program: tuple[str, ...], verbose: bool, **options: Any) -> int:
    """Run PROGRAM, any llama.cpp program that loads backends, with a pool for the model that its ARGS name (-m).

    Its stdin, stdout, stderr, environment, signals and exit code stay its own; GGML_BACKEND_PATH and SLOTPOOL_PLAN are added, and
    LD_PRELOAD for a program that has its backends linked in. When it exits, one line on stderr says what the pool did.
    --device names devices as the program lists them; without it slots are in RAM. A program that fits itself into its devices
    (--fit) is told to leave the slots free, by LLAMA_ARG_FIT_TARGET, unless it has a target of yours.
    """
    from slotpool import exec, native, plan

    require_pool = options["require_pool"]
    pool = planned(options)
    return exec.run(
        program,
        lambda facts: plan.make(facts, available=native.available_memory().smallest, **pool),
        require_pool=require_pool,
        say=lambda line: print_note(f"slotpool: {line}"),
        say_more=lambda line: print_note(f"slotpool: {line}") if verbose else None,
    )
