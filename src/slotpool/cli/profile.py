"""`slotpool profile`: what a profile, a trace, heat maps or an imatrix say of how hot experts are; and the one as the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from slotpool import profile
from slotpool.cli.output import json_option, print_json, print_line, print_note, print_table
from slotpool.errors import SlotpoolError, printable
from slotpool.profile import Profile, ProfiledGroup

_SHOWN = 8
_FILE = click.Path(path_type=Path)


@click.command("profile")
@click.argument("path", metavar="FILE", type=_FILE)
@click.option("--model", type=_FILE, help="Check that it is of this model; a written profile then has its fingerprint.")
@click.option("-o", "--output", type=_FILE, help="Write it as a profile.")
@click.option("--all", "is_whole", is_flag=True, help=f"Show all experts of a layer, not the {_SHOWN} hottest.")
@json_option
def command(path: Path, model: Path | None, output: Path | None, is_whole: bool, as_json: bool) -> None:
    """Show which experts FILE says are hot, layer by layer, the hottest first, with the rows that asked for each.

    FILE is what --save-profile or slotpool trace wrote, a heat map of another tool (CSV, JSON, npz), or an imatrix (GGUF) of llama-imatrix:
    whatever --profile takes.
    """
    found = profile.read(path)
    if model is not None:
        found = _of_model(found, model, printable(path))
    if output is not None:
        _write(found, output)
    if as_json:
        print_json(_document(found))
    else:
        _print(found, is_whole)


def _of_model(found: Profile, path: Path, where: str) -> Profile:
    from dataclasses import replace

    from slotpool import model
    from slotpool.trace.fingerprint import facts_of

    facts = model.read(path)
    profile.check(found, facts, where)
    experts = {(one.layer, "chexps" if one.is_chunk else "exps"): one.n_expert for one in facts.experts}
    groups = tuple(replace(group, n_expert=experts[group.layer, group.pass_]) for group in found.groups)
    return Profile(facts_of(facts, found.facts.engine, found.facts.source), groups)


def _write(found: Profile, output: Path) -> None:
    if not found.facts.fingerprint:
        raise SlotpoolError(
            "expected a profile that knows its model, found one without a fingerprint", where=printable(output), do="Add --model FILE."
        )
    profile.write(output, found)
    print_note(f"slotpool: a profile of {len(found.groups)} layers in {printable(output)}")


def _document(found: Profile) -> dict[str, Any]:
    facts = found.facts
    return {
        "fingerprint": facts.fingerprint,
        "architecture": facts.architecture,
        "source": facts.source,
        "layers": [
            {"layer": one.layer, "pass": one.pass_, "n_expert": one.n_expert, "experts": list(one.experts), "rows": list(one.rows)}
            for one in found.groups
        ],
    }


def _print(found: Profile, is_whole: bool) -> None:
    facts = found.facts
    of = f"{printable(facts.architecture)} {facts.fingerprint[:12]}" if facts.fingerprint else "a model without a fingerprint"
    print_line(f"profile of {printable(of)}, from {printable(facts.source) or 'nobody says where'}")
    header = ("layer", "experts", "rows", "hottest")
    print_table(header, [_row(group, is_whole) for group in found.groups], right=header[:3])


def _row(group: ProfiledGroup, is_whole: bool) -> tuple[str, ...]:
    n = len(group.experts) if is_whole else _SHOWN
    hottest = " ".join(f"{expert}:{rows}" for expert, rows in zip(group.experts[:n], group.rows[:n], strict=True))
    name = str(group.layer) if group.pass_ == "exps" else f"{group.layer} {group.pass_}"
    more = " ..." if len(group.experts) > n else ""
    return name, f"{len(group.experts)}/{group.n_expert}", str(sum(group.rows)), hottest + more
