"""What the runs of disk_tier say: every arm's numbers, the pool's share of its bounds, the table. Measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks import record

_IN_LAYOUT = ("plain",)
"""The resident arm whose experts are as the file has them."""
_POOLS = ("pool", "pool, not repacked")


def speeds(sample: dict[str, Any]) -> dict[str, float]:
    """What one run says, of its last pass; `ttft_seconds` and `cold_tps` of its first. Steady is after the warm tokens, per token."""
    cold, last = sample["passes"][0], sample["passes"][-1]
    n_steady, steady = len(last["times"]) - last["n_warm"], last["steady"]
    seconds = sum(last["times"][last["n_warm"] :])
    return {
        "steady_tps": n_steady / seconds if n_steady else 0.0,
        "n_steady": n_steady,
        "cold_tps": len(cold["times"]) / sum(cold["times"]),
        "prompt_tps": last["n_prompt"] / last["prompt"]["seconds"],
        "ttft_seconds": sample["load"]["seconds"] + cold["prompt"]["seconds"],
        "load_seconds": sample["load"]["seconds"],
        "load_read_bytes": sample["load"]["read_bytes"],
        "peak_bytes": sample["peak_bytes"],
        "hit_rate": steady["hits"] / steady["lookups"] if steady["lookups"] else 0.0,
        "miss_bytes": steady["bytes_copied"] / max(1, n_steady),
        "wait_ms": steady["wait_ms"] / max(1, n_steady),
        "read_bytes": steady["read_bytes"] / max(1, n_steady),
        "major_faults": steady["major_faults"] / max(1, n_steady),
    }


def figures(samples: Sequence[dict[str, Any]], caps: Sequence[int], file_bytes: int) -> dict[str, Any]:
    """Per cap: every arm's numbers, the pool's share of its bounds by round, and the pool over the best plain arm."""
    found: dict[str, Any] = {}
    tables = {cap: _table([one for one in samples if one["cap"] == cap]) for cap in (0, *caps)}
    for cap, table in tables.items():
        pools = [one for one in samples if one["cap"] == cap and one["arm"] == "pool" and not one["failed"]]
        bounds = [_bounds(one, tables[0], file_bytes) for one in pools] if cap else []
        plain_tps = _best(table, "steady_tps", [name for name in table if name not in _POOLS])
        found[str(cap)] = {"arms": table, "plain_tps": plain_tps if plain_tps < float("inf") else None, "bounds": bounds}
        found[str(cap)] |= {"over_plain": _over_plain(table), "over_plain_in_layout": _over_plain(table, _IN_LAYOUT)}
    return found


def _table(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By arm: a spread of every number, or why there is none."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(one["arm"] for one in samples):
        mine = [one for one in samples if one["arm"] == name]
        good = [speeds(one) for one in mine if not one["failed"]]
        found[name] = {key: record.spread([one[key] for one in good]) for key in (good[0] if good else ())}
        found[name]["failed"] = [one["failed"] for one in mine if one["failed"]]
    return found


def _bounds(sample: dict[str, Any], resident: dict[str, Any], file_bytes: int) -> dict[str, Any]:
    """The most that this run's disk and the resident arms allow, in tokens/s, and the share of it that was reached."""
    mine, disk = speeds(sample), disk_of(sample)
    disk_tps = disk / mine["miss_bytes"] if mine["miss_bytes"] else float("inf")
    compute, in_layout = (_best(resident, "steady_tps", names) for names in (tuple(resident), _IN_LAYOUT))
    once = sample["passes"][0]["n_prompt"] * disk / file_bytes
    prompt, prompt_in_layout = (min(once, _best(resident, "prompt_tps", names)) for names in (tuple(resident), _IN_LAYOUT))
    return {
        "disk": disk,
        "tps": min(compute, disk_tps),
        "by": "compute" if compute < disk_tps else "disk",
        "share": mine["steady_tps"] / min(compute, disk_tps),
        "share_in_layout": mine["steady_tps"] / min(in_layout, disk_tps),
        "prompt_tps": prompt,
        "prompt_share": mine["prompt_tps"] / prompt,
        "prompt_share_in_layout": mine["prompt_tps"] / prompt_in_layout,
    }


def _over_plain(table: dict[str, Any], names: Sequence[str] = ()) -> dict[str, float]:
    """The pool's medians over those of the plain arm (all, or `names`) that is best at each; above one is better, for ttft too."""
    plain, pool = [name for name in names or table if name not in _POOLS], ("pool",)
    found = {key: (_best(table, key, pool), _best(table, key, plain)) for key in ("steady_tps", "cold_tps", "prompt_tps")}
    waits = [[table[one]["ttft_seconds"]["median"] for one in names if "ttft_seconds" in table.get(one, {})] for names in (pool, plain)]
    ratios = {key: mine / theirs for key, (mine, theirs) in found.items() if 0 < theirs < float("inf") and mine < float("inf")}
    return ratios | ({"ttft": min(waits[1]) / min(waits[0])} if all(waits) else {})


def _best(table: dict[str, Any], key: str, names: Sequence[str]) -> float:
    """The highest median of some arms; infinite, so that it bounds nothing, where none of them has one."""
    medians: list[float] = [table[name][key]["median"] for name in names if key in table.get(name, {})]
    return max(medians, default=float("inf"))


def disk_of(sample: dict[str, Any]) -> float:
    """Bytes per second of the disk, before and after a run."""
    return float(sum(sample["disk"]) / len(sample["disk"]))


def unequal_logits(samples: Sequence[dict[str, Any]]) -> list[str]:
    """Where arms on the same kernels, repacked or not, equally far in the same round, have other logits than each other: nowhere, or all is
    void."""
    found: dict[tuple[int, int, bool], set[str]] = {}
    for one in (one for one in samples if not one["failed"]):
        cold = one["passes"][0]
        for n_tokens, value in zip((0, cold["n_warm"], len(cold["times"])), cold["hashes"], strict=True):
            found.setdefault((one["round"], n_tokens, bool(one["repacked_bytes"])), set()).add(value)
    return [f"round {round_ + 1} after {n} tokens: {len(values)} different" for (round_, n, _), values in found.items() if len(values) > 1]


# ---- the table ----

_COLUMNS = (
    ("tokens/s", "steady_tps", 1, "{:.2f}"),
    ("from cold", "cold_tps", 1, "{:.2f}"),
    ("prompt", "prompt_tps", 1, "{:.1f}"),
    ("first, s", "ttft_seconds", 1, "{:.1f}"),
    ("peak GB", "peak_bytes", 1e9, "{:.2f}"),
    ("MB read", "read_bytes", 1e6, "{:.1f}"),
    ("faults", "major_faults", 1, "{:.0f}"),
    ("hits", "hit_rate", 1, "{:.3f}"),
)
"""Title, number, unit, format. MB read and faults are per token, after the warm ones."""


_SHARES = (
    ("its bound", "share"),
    ("its bound, compute in the file's layout", "share_in_layout"),
    ("its bound for the prompt", "prompt_share"),
    ("its bound for the prompt, compute in the file's layout", "prompt_share_in_layout"),
)


def line(made: dict[str, Any]) -> str:
    """The figures in one screen."""
    disks = [disk_of(one) / 1e9 for one in made["samples"]]
    out = [f"experts on disk: a model of {made['file_bytes'] / 1e9:.1f} GB, disk {min(disks):.2f} to {max(disks):.2f} GB/s, medians"]
    for cap, found in made["figures"].items():
        out.append(f"{cap_name(int(cap)):26}" + "".join(f"{title:>10}" for title, *_ in _COLUMNS))
        out.extend(f"  {name:24}{_row(numbers)}" for name, numbers in found["arms"].items())
        for what, key in (("the best of plain", "over_plain"), ("plain, not repacked", "over_plain_in_layout")):
            out.append(f"  pool over {what}: " + ", ".join(f"{name} {ratio:.2f}x" for name, ratio in found[key].items()))
        out.extend(_shares(found))
    out.append("VOID, logits differ: " + "; ".join(made["unequal_logits"]) if made["unequal_logits"] else "logits equal in all exact arms")
    return "\n".join(out)


def _row(numbers: dict[str, Any]) -> str:
    if len(numbers) == 1:
        return f"  {numbers['failed'][0]}"
    cells = [form.format(numbers[key]["median"] / unit) for _, key, unit, form in _COLUMNS]
    return "".join(f"{cell:>10}" for cell in cells) + (f"  ({numbers['failed'][0]})" if numbers["failed"] else "")


def _shares(found: dict[str, Any]) -> list[str]:
    bounds, texts = found["bounds"], []
    for what, key in _SHARES if bounds else ():
        values = [one[key] for one in bounds]
        texts.append(f"  pool: {median(values):.2f} ({min(values):.2f} to {max(values):.2f}) of {what}")
    if bounds:
        tps, plain = median(one["tps"] for one in bounds), found["plain_tps"]
        n_disk = sum(one["by"] == "disk" for one in bounds)
        over = f", {tps / plain:.1f}x of plain" if plain else ""
        texts.append(f"  its bound: {tps:.2f} tokens/s{over}; the disk's in {n_disk} of {len(bounds)} rounds")
    return texts


def cap_name(cap: int) -> str:
    """How a cap is called."""
    return f"memory 1/{cap} of the file" if cap else "no cap"
