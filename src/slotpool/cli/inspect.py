"""`slotpool inspect`: what is in a model file. Reads headers only; gathers the facts first, prints them after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from slotpool.cli.output import json_option, print_json, print_line, print_pairs, print_table
from slotpool.errors import REFUSED, printable
from slotpool.model import ROLES, ExpertTensor, Model, read
from slotpool.sizes import format_bytes


@click.command("inspect")
@click.argument("model", type=click.Path(path_type=Path))
@json_option
def command(model: Path, as_json: bool) -> int:
    """Show expert tensors, shards and damage.

    MODEL is a GGUF file; of a sharded model, any one of its shards. For every layer with experts: their types, slab sizes
    and places. Only headers are read, so this takes a moment for a model of any size.

    Exit code 0: nothing found that would keep llama.cpp from loading it. 1: damaged. 2: not readable, or not a GGUF.
    """
    facts = read(model)
    if as_json:
        print_json(_document(facts))
    else:
        _print_report(facts)
    return REFUSED if facts.problems else 0


def _document(model: Model) -> dict[str, Any]:
    return {
        "architecture": model.architecture,
        "n_layer": model.n_layer,
        "n_expert": model.n_expert,
        "n_expert_used": model.n_expert_used,
        "expert_bytes": model.expert_bytes,
        "other_bytes": model.other_bytes,
        "n_shards": model.n_shards,
        "files": [{"shard": file.shard, "path": str(file.path), "size": file.size, "version": file.version} for file in model.files],
        "tensors": [_tensor(tensor, model) for tensor in model.experts],
        "problems": list(model.problems),
    }


def _tensor(tensor: ExpertTensor, model: Model) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "layer": tensor.layer,
        "role": tensor.role,
        "type": tensor.type,
        "ne": list(tensor.ne[:3]),
        "n_expert": tensor.n_expert,
        "slab_bytes": tensor.slab_bytes,
        "bytes": tensor.n_bytes,
        "shard": tensor.shard,
        "file": model.file_of(tensor.shard).path.name,
        "offset": tensor.offset,
    }


def _print_report(model: Model) -> None:
    print_pairs(_header(model))
    if model.experts:
        print_line()
        _print_roles(model.experts)
        print_line()
        _print_layers(model)
    print_line()
    _print_problems(model.problems)


def _header(model: Model) -> list[tuple[str, str]]:
    files = [("file", f"{printable(file.path)} ({format_bytes(file.size)})") for file in model.files]
    layers = model.layers
    experts = f"{model.n_expert}, {model.n_expert_used} used per token" if model.n_expert else "none, a dense model"
    return [
        *files,
        *([("shards", f"{len(model.files)} of {model.n_shards}")] if model.n_shards > 1 else []),
        ("architecture", printable(model.architecture) or "unknown"),
        ("layers", f"{model.n_layer}, {len(layers)} with experts"),
        ("experts", experts),
        ("expert bytes", f"{format_bytes(model.expert_bytes)} in {len(model.experts)} tensors"),
        ("other bytes", format_bytes(model.other_bytes)),
    ]


def _print_roles(experts: Sequence[ExpertTensor]) -> None:
    kinds: dict[tuple[int, str, int, int], list[ExpertTensor]] = {}
    for tensor in experts:
        kinds.setdefault((ROLES.index(tensor.role), tensor.type, tensor.slab_bytes, tensor.n_expert), []).append(tensor)
    rows = [_role_row(kinds[kind]) for kind in sorted(kinds)]
    total = sum(tensor.n_bytes for tensor in experts)
    rows.append(("total", "", "", "", str(len(experts)), format_bytes(total)))
    header = ("role", "type", "experts", "slab", "tensors", "bytes")
    print_table(header, rows, right=("experts", "slab", "tensors", "bytes"))


def _role_row(tensors: Sequence[ExpertTensor]) -> tuple[str, ...]:
    first = tensors[0]
    total = sum(tensor.n_bytes for tensor in tensors)
    return (first.role, first.type, str(first.n_expert), format_bytes(first.slab_bytes), str(len(tensors)), format_bytes(total))


def _print_layers(model: Model) -> None:
    rows = [_layer_row(layer, tensors) for layer, tensors in model.layers.items()]
    rows.append(("total", "", "", "", format_bytes(model.expert_bytes), ""))
    header = ("layer", "tensors", "experts", "bytes per expert", "bytes", "shard")
    print_table(header, rows, right=("layer", "experts", "bytes per expert", "bytes"))


def _layer_row(layer: int, tensors: Sequence[ExpertTensor]) -> tuple[str, ...]:
    ordered = sorted(tensors, key=lambda tensor: ROLES.index(tensor.role))
    shards = sorted({tensor.shard + 1 for tensor in tensors})
    return (
        str(layer),
        ", ".join(f"{tensor.role} {tensor.type}" for tensor in ordered),
        "/".join(dict.fromkeys(str(tensor.n_expert) for tensor in ordered)),
        format_bytes(sum(tensor.slab_bytes for tensor in ordered)),
        format_bytes(sum(tensor.n_bytes for tensor in ordered)),
        ", ".join(map(str, shards)),
    )


def _print_problems(problems: Sequence[str]) -> None:
    print_line(f"problems: {len(problems) or 'none'}")
    for problem in problems:
        print_line(f"  {problem}")
