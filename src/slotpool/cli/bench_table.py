"""The tables of `slotpool bench`: what was measured, arm by arm, and what is faster than what. Computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slotpool.cli.output import print_line, print_table
from slotpool.sizes import format_bytes

WHATS = {"prompt_tps": "prompt", "generation_tps": "generation", "ttft_ms": "first token"}
"""The measured speeds as they are called in tables."""
_NUMBERS = ("prompt t/s", "generation t/s", "first token ms", "hit rate", "copied/token", "free RAM", "slots take")


def print_tables(document: Mapping[str, Any]) -> None:
    """Arms, then ratios, then what a reader must know."""
    print_line(headline(document))
    print_line()
    header, rows = arm_rows(document)
    print_table(header, rows, right=(*_NUMBERS, "depth"))
    print_line()
    header, rows = ratio_rows(document)
    print_table(header, rows, right=("ratio", "interval", "depth"))
    print_line()
    for line in notes(document):
        print_line(line)


def headline(document: Mapping[str, Any]) -> str:
    """What was measured, in a line."""
    tokens, text = document["tokens"], document["text"]
    state = f"warm after {tokens['prompt']} + {tokens['warm']} tokens" if document["state"] == "warm" else "cold"
    again = ", rounds repeat text" if text["repeats"] else ""
    return (
        f"{document['rounds']} rounds in fresh processes, {tokens['prompt']} tokens of prompt, {tokens['generation']} generated, {state}; "
        f"text {text['name']} ({text['sha256'][:12]}){again}"
    )


def arm_rows(document: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A row an arm: medians, and the lowest and highest round."""
    header = ["arm", "depth", *_NUMBERS]
    return header, [_arm_row(arm) for arm in document["arms"]]


def _arm_row(arm: Mapping[str, Any]) -> list[str]:
    stats = arm["stats"]
    return [
        arm["name"],
        str(arm["depth"]),
        _spread(arm["prompt_tps"]),
        _spread(arm["generation_tps"]),
        _spread(arm["ttft_ms"]),
        f"{arm['hit_rate']['median']:.1%}" if arm["hit_rate"] else "-",
        format_bytes(round(arm["bytes_per_token"]["median"])) if stats["pooled_tensors"] else "-",
        format_bytes(round(arm["free_bytes"]["RAM"]["median"])),
        format_bytes(stats["slot_bytes"]) if stats["slot_bytes"] else "-",
    ]


def ratio_rows(document: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A row for each comparison; ratios are of speeds."""
    header = ["arm", "against", "depth", "what", "ratio", "interval", "verdict"]
    rows = [
        [
            one["arm"],
            one["against"],
            str(one["depth"]),
            WHATS[one["what"]],
            f"{one['median']:.3f}x",
            f"{one['low']:.3f} to {one['high']:.3f}",
            one["verdict"],
        ]
        for one in document["ratios"]
    ]
    return header, rows


def notes(document: Mapping[str, Any]) -> list[str]:
    """Repacking, the page cache, agreement of tokens, and how often verdicts err."""
    lines = [f"{arm['name']}{_at(arm)}: {_repacked(arm)}" for arm in document["arms"] if arm["kind"] == "plain"]
    lines += _cached(document["arms"])
    lines += [f"{arm['name']}{_at(arm)}: {_agrees(arm['agreement'])}" for arm in document["arms"] if arm["agreement"]]
    n, rate = len(document["ratios"]), document["error_rate"]
    lines.append(
        f"{n} verdicts, each wrong at most {rate:.1%} of the times where nothing differs: {n * rate:.1f} of {n} to be expected then"
    )
    return lines


def _at(arm: Mapping[str, Any]) -> str:
    return f" at depth {arm['depth']}" if arm["depth"] else ""


def _repacked(arm: Mapping[str, Any]) -> str:
    found = arm["repacked_bytes"]
    return f"llama.cpp repacked {format_bytes(found)} of its weights" if found else "nothing repacked, all weights as the file has them"


def _cached(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """What of the model was in the page cache before the runs: a line where it was the same for all, else one for each arm."""
    shares = [arm["cached_share"] for arm in arms]
    if None in shares:
        return ["how much of the model was in the page cache before a run, this system does not say"]
    said = [_share(share) for share in shares]
    if len(set(said)) == 1:
        return [f"{said[0]} of the model was in the page cache before every run"]
    return [
        f"{arm['name']}{_at(arm)}: {one} of the model was in the page cache before its runs" for arm, one in zip(arms, said, strict=True)
    ]


def _share(found: Mapping[str, Any]) -> str:
    low, high = (_percent(found[which]) for which in ("low", "high"))
    return low if low == high else f"{low} to {high}"


def _percent(share: float) -> str:
    """All and nothing are said of all and nothing alone."""
    return f"{share if share in (0.0, 1.0) else min(max(share, 0.01), 0.99):.0%}"


def _agrees(found: Mapping[str, Any]) -> str:
    beside = f"{found['tokens']} tokens beside {found['with']}, {found['kernels']} kernels"
    if found["logits_equal"] and not found["different"]:
        return f"equal, logits to the last bit ({beside})"
    return f"{found['different']} of {beside}, differ" if found["different"] else f"equal tokens, other logits ({beside})"


def _spread(found: Mapping[str, Any]) -> str:
    return f"{found['median']:.1f} ({found['low']:.1f}-{found['high']:.1f})"
