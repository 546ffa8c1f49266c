"""slotpool: a persistent pool of expert slots beside unmodified llama.cpp.

`load` returns a llama_cpp.Llama, `stats` says what its pool did, `save_profile` keeps it for
the next session. The engine is imported on first use, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slotpool.errors import SlotpoolError

if TYPE_CHECKING:
    from slotpool.loading import load, save_profile
    from slotpool.loading import read_stats as stats

__all__ = ["SlotpoolError", "load", "save_profile", "stats"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in ("load", "save_profile", "stats"):
        raise AttributeError(f"module 'slotpool' has no attribute {name!r}")
    from slotpool import loading

    return {"load": loading.load, "save_profile": loading.save_profile, "stats": loading.read_stats}[name]
