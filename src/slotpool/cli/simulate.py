"""`slotpool simulate`: hit rates of policies x slots over a recorded trace, beside the offline optimum."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from slotpool import profile as profiles
from slotpool import trace
from slotpool.cli.output import json_option, print_json, print_line, print_table
from slotpool.cli.parameters import OneOf
from slotpool.errors import SlotpoolError, printable
from slotpool.profile import Pin, Profile
from slotpool.simulate import ADMISSIONS, POLICIES, STORES, Result, Settings, Slots, simulate


@click.command("simulate")
@click.argument("path", metavar="TRACE", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policies",
    default="default,lru,decay,belady",
    show_default=True,
    metavar="NAMES",
    help=f"Separated by commas: {', '.join(POLICIES)}.",
)
@click.option(
    "--slots",
    default="25%,37.5%,50%",
    show_default=True,
    metavar="SLOTS",
    help="For each layer, separated by commas: 8, or 25% of its experts.",
)
@click.option("--global", "is_global", is_flag=True, help="One pool over the experts of all layers, with as many slots in total.")
@click.option(
    "--store",
    type=OneOf("store", STORES),
    default="memory",
    show_default=True,
    help="Where the experts lie: in memory, events too large for the slots are not seen by the pool; on disk they pass through it.",
)
@click.option(
    "--admit",
    "admission",
    type=OneOf("admission", ADMISSIONS),
    default="wanted",
    show_default=True,
    help="wanted: misses can be served without a slot, so a policy may refuse them; all: every miss is admitted.",
)
@click.option(
    "--train", type=float, default=0.0, metavar="SHARE", help="Judge only what comes after this share; policy static learns from it."
)
@click.option(
    "--phase", type=OneOf("phase", trace.PHASES), default=None, help="Count prompts or generation only; the other is replayed too."
)
@click.option(
    "--profile", type=click.Path(path_type=Path), metavar="FILE", help="Pools of online policies begin with what this says is hot."
)
@click.option(
    "--pin", metavar="SHARE|N", help="Never evict the profile's hottest experts: a share of the slots (25%), or a number of them."
)
@json_option
def command(
    path: Path,
    policies: str,
    slots: str,
    is_global: bool,
    store: str,
    admission: str,
    train: float,
    phase: str | None,
    profile: Path | None,
    pin: str | None,
    as_json: bool,
) -> None:
    """Replay a trace through pools of any size.

    TRACE is what `slotpool trace` writes, an npz with ids, or CSV rows layer,expert. Event by event: all experts of a layer and ubatch
    are looked up together, and none is evicted by it. Hits are counted in distinct experts, before the event's own admissions.
    Belady knows the future: belady may refuse to admit and is the bound of all, belady-admit may not.
    """
    found = trace.load(path)
    if isinstance(found, trace.Heat):
        raise SlotpoolError("expected a trace, found counts without the order of tokens", where=printable(path))
    hot, limits = _profile(found, profile, pin)
    settings = Settings(is_global=is_global, store=store, admission=admission, train=train, phase=phase or "", profile=hot, pin=limits)
    asked = [Slots.parse(word, where="slotpool simulate --slots") for word in slots.split(",")]
    result = simulate(found, [name.strip() for name in policies.split(",")], asked, settings)
    if as_json:
        print_json({"rows": [asdict(row) for row in result.rows], "lookups_per_second": result.lookups_per_second})
    else:
        _print(result)


def _profile(found: trace.Trace, path: Path | None, pin: str | None) -> tuple[Profile | None, Pin | None]:
    """The profile, which must be of the trace's model where both say whose they are, and the limits of its pins."""
    limits = profiles.pin_of(pin, max((group.n_expert_used for group in found.groups), default=1))
    if path is None:
        if limits:
            raise SlotpoolError("expected a profile that says who is pinned, found none", where="--pin", do="Add --profile FILE.")
        return None, None
    hot = profiles.read(path)
    known = {(group.layer, group.pass_): group.n_expert for group in found.groups}
    is_other = "" not in (hot.facts.fingerprint, found.facts.fingerprint) and hot.facts.fingerprint != found.facts.fingerprint
    if is_other or any(known.get((group.layer, group.pass_), group.n_expert) < group.n_expert for group in hot.groups):
        raise SlotpoolError("expected a profile of the trace's model, found one of another", where=printable(path))
    return hot, limits


def _print(result: Result) -> None:
    header = ("policy", "slots", "lookups", "hit rate", "of belady", "million lookups/s")
    rows = [
        (
            row.policy,
            f"{row.slots:g}",
            str(row.lookups),
            f"{row.hit_rate:.4f}",
            f"{row.share_of_belady:.4f}",
            f"{row.lookups_per_second / 1e6:.1f}",
        )
        for row in result.rows
    ]
    print_table(header, rows, right=header[1:])
    print_line()
    print_line(f"fastest online policy: {result.lookups_per_second / 1e6:.1f} million lookups/s")
