"""How many experts the first tokens of a session find in slots: cold, and warm from a profile of an earlier session.

Counters and nothing else: the bundled model reads text token by token, and what it reads is no part of what the profile was made from.
The same kernels give the same numbers. `other` is the profile of a session about something else (code), to see what a wrong one costs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import slotpool
from benchmarks import record
from slotpool import loading, profile
from slotpool.profile import Profile
from slotpool.trace import Facts

DATA = Path(slotpool.__file__).parent / "data"
SLOTS = (8, 12)
N_SESSION = 256
"""Tokens of the session that the profile is made from."""
N_FIRST = (4, 16, 64)


def run() -> dict[str, Any]:
    """Counts, writes the record and returns it."""
    prose, code = _tokens("prose.txt"), _tokens("code.txt")
    earlier, later = prose[:N_SESSION], prose[4 * N_SESSION : 4 * N_SESSION + max(N_FIRST)]
    own, other = _profile_of(earlier), _profile_of(code[:N_SESSION])
    arms: list[tuple[str, dict[str, Any]]] = [
        ("cold", {}),
        ("warm", {"profile": own}),
        ("warm, 25% pinned", {"profile": own, "pin": "25%"}),
        ("warm from another topic", {"profile": other}),
    ]
    cases = [{"arm": name, "slots": slots, "first": _first(later, slots, options)} for slots in SLOTS for name, options in arms]
    return record.write("warm_start", model_file=DATA / "demo.gguf", tokens=N_SESSION, slots=SLOTS, cases=cases)


def line(made: dict[str, Any]) -> str:
    """The figures in one line."""
    return "hits of the first tokens: " + "; ".join(
        f"{one['slots']} slots {one['arm']} " + " / ".join(f"{found['hits']} of {found['lookups']}" for found in one["first"])
        for one in made["cases"]
    )


def _tokens(name: str) -> list[int]:
    llm = loading.load(DATA / "demo.gguf", 0, n_ctx=64, vocab_only=True)
    tokens = llm.tokenize((DATA / name).read_bytes(), add_bos=False, special=False)
    llm.close()
    return list(tokens)


def _profile_of(tokens: list[int]) -> Profile:
    llm = _load("all", {})
    for token in tokens:
        llm.eval([token])
    counts = {(one.layer, one.pass_): llm.slotpool_session.heat(n) for n, one in enumerate(llm.slotpool_plan.groups)}  # type: ignore[union-attr]
    llm.close()
    return profile.of_heat(Facts(), counts)


def _first(tokens: list[int], slots: int, options: dict[str, Any]) -> list[dict[str, int]]:
    """Lookups, hits and experts that slots began with, after so many tokens each."""
    llm = _load(slots, options)
    found = []
    for number, token in enumerate(tokens, 1):
        llm.eval([token])
        if number in N_FIRST:
            stats = loading.read_stats(llm)
            found.append({"tokens": number, **{name: int(stats[name]) for name in ("lookups", "hits", "warmed", "pinned")}})  # type: ignore[literal-required]
    llm.close()
    return found


def _load(slots: int | str, options: dict[str, Any]) -> loading.PooledLlama:
    return loading.load(DATA / "demo.gguf", slots, n_ctx=1024, repack=False, device="CPU", **options)
