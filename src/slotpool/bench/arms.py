"""The arms of a bench: what the process of each loads, and what its name promises. Decides nothing from measurements.

Plain llama.cpp is always one: without any plug-in, as a user gets it, its experts repacked where the engine does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from slotpool.bench.settings import Settings
from slotpool.errors import SlotpoolError, unknown
from slotpool.model import Model
from slotpool.plan import Slots

PLAIN, POOL, BYPASS, STATIC = "plain", "pool", "bypass", "static"
EXTRA_ARMS = ("unpacked", BYPASS, STATIC)
"""unpacked: plain llama.cpp with everything in the file's layout. bypass: slots are allocated, and generation takes the stock path
beside them. static: what the slots hold when generation is measured (a profile's hottest, or what warmed the pool up) stays in them."""
_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


@dataclass(frozen=True)
class Arm:
    """`kind` is what it must prove to be. `options` are keywords of `slotpool.load`.

    `on_host` is a pattern of tensors to keep in host memory.
    """

    name: str
    kind: str
    depth: int
    slots: Slots
    options: dict[str, Any] = field(default_factory=dict)
    on_host: str = ""

    @property
    def has_pool(self) -> bool:
        """Whether the core must be in its process."""
        return self.kind != PLAIN


def arms(settings: Settings, depth: int) -> list[Arm]:
    """The arms of one depth that are known before anything ran: plain first."""
    _check(settings)
    common = _context(settings, depth)
    pool = {"repack": settings.repack, **settings.pool, **common}
    return [
        *_plain(settings, depth, {"repack": settings.repack, **common}),
        *(_pool(settings, depth, slots, pool) for slots in settings.slots if slots != 0),
        *_extras(settings, depth, pool),
    ]


def placement(settings: Settings, model: Model, depth: int, slot_bytes: int) -> Arm | None:
    """Plain llama.cpp's best use of `slot_bytes` of a device: the experts of as many last layers as fit, as --n-cpu-moe places them.

    None without a device, where not one layer fits, and where all fit (that is a plain arm of its own: nothing is left on the host).
    """
    if not _devices(settings):
        return None
    layers = model.layers
    n_fit, n_bytes = 0, 0
    for layer in sorted(layers, reverse=True):
        n_bytes += sum(tensor.n_bytes for tensor in layers[layer])
        if n_bytes > slot_bytes:
            break
        n_fit += 1
    if not n_fit:
        return None
    on_host = sorted(layers)[: len(layers) - n_fit]
    pattern = rf"blk\.({'|'.join(map(str, on_host))}){_EXPERTS}" if on_host else ""
    options = {"repack": settings.repack, "n_gpu_layers": -1, **_context(settings, depth)}
    return Arm(f"plain, experts of {n_fit} of {len(layers)} layers on the device", PLAIN, depth, 0, _with_rpc(settings, options), pattern)


def _plain(settings: Settings, depth: int, options: dict[str, Any]) -> Iterator[Arm]:
    if _devices(settings):
        on_device = _with_rpc(settings, options | {"n_gpu_layers": -1})
        yield Arm("plain, experts on the CPU", PLAIN, depth, 0, on_device, _EXPERTS)
        return
    yield Arm(PLAIN, PLAIN, depth, 0, options)
    if "unpacked" in settings.extra and settings.repack:
        yield Arm("plain, unpacked", PLAIN, depth, 0, options | {"repack": False})


def _pool(settings: Settings, depth: int, slots: Slots, options: dict[str, Any]) -> Arm:
    return Arm(f"{POOL} {slots}", POOL, depth, slots, options | {"slots": slots})


def _extras(settings: Settings, depth: int, options: dict[str, Any]) -> Iterator[Arm]:
    slots = next((one for one in settings.slots if one != 0), "auto")
    if BYPASS in settings.extra:
        yield Arm(f"{BYPASS} {slots}", BYPASS, depth, slots, options | {"slots": slots, "bypass": True})
    if STATIC in settings.extra:
        yield Arm(f"{STATIC} {slots}", STATIC, depth, slots, options | {"slots": slots} | _static(settings))


def _static(settings: Settings) -> dict[str, Any]:
    """What keeps the slots as they are once they are full: of experts on disk, that the profile's hottest are never evicted."""
    return {"pin": "100%"} if settings.pool.get("ram_budget") is not None else {"miss": "frozen"}


def _context(settings: Settings, depth: int) -> dict[str, Any]:
    return {"n_ctx": settings.n_ctx(depth), "n_threads": settings.threads, "n_threads_batch": settings.threads}


def _devices(settings: Settings) -> list[str]:
    return [name for name in settings.pool.get("device") or () if name != "CPU"]


def _with_rpc(settings: Settings, options: dict[str, Any]) -> dict[str, Any]:
    return options | {"rpc": settings.pool["rpc"]} if settings.pool.get("rpc") else options


def _check(settings: Settings) -> None:
    for name in settings.extra:
        if name not in EXTRA_ARMS:
            raise unknown("arm", name, EXTRA_ARMS, where="--arm")
    is_on_disk = settings.pool.get("ram_budget") is not None
    if BYPASS in settings.extra and is_on_disk:
        why = "nobody else can read what stays on disk"
        raise SlotpoolError(f"expected experts in host memory for the bypass arm, found --ram-budget: {why}", where="--arm")
    if STATIC in settings.extra and is_on_disk and not settings.pool.get("profile"):
        why = "every miss is read into a slot there"
        raise SlotpoolError(f"expected a --profile for a static arm of experts on disk, found none: {why}", where="--arm")
    if (BYPASS in settings.extra or STATIC in settings.extra) and not any(one != 0 for one in settings.slots):
        raise SlotpoolError("expected slots for the bypass and static arms, found 0", where="--slots")
    if STATIC in settings.extra and not settings.is_warm:
        raise SlotpoolError("expected text that fills the slots of the static arm, found --warm 0", where="--arm", do="Leave --warm out.")
