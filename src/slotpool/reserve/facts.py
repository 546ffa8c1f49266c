"""What is asked of llama.cpp and what it answers, frozen. Asks nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HOST = "CPU"
"""The name of all host memory, of whatever kind."""
KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2, "q4_1": 3, "iq4_nl": 20, "q5_0": 6, "q5_1": 7}
"""Types of the KV cache by the names of llama.cpp's own options, with ggml's numbers."""
FLASH = {"auto": -1, "off": 0, "on": 1}


@dataclass(frozen=True)
class Wanted:
    """The context that is asked for, in llama.cpp's own words. `experts_on_host` is its --cpu-moe; else they go where their layers go."""

    n_ctx: int = 4096
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seq: int = 1
    kv_type: str = "f16"
    flash: str = "auto"
    experts_on_host: bool = True
    n_gpu_layers: int = -1
    tensor_split: Sequence[float] = ()


@dataclass(frozen=True)
class DeviceBytes:
    """Bytes on a device, or in host memory (`HOST`): weights, KV cache with other states, the worst compute buffers."""

    name: str
    weights: int
    kv: int
    compute: int


@dataclass(frozen=True)
class Reservation:
    """What llama.cpp would reserve. `n_nodes` and `n_splits` are of the graph of one token; 0 where its log did not say."""

    devices: tuple[DeviceBytes, ...]
    n_nodes: int = 0
    n_splits: int = 0

    def of(self, name: str) -> DeviceBytes:
        """The bytes on a device; none where the engine puts nothing."""
        return next((one for one in self.devices if one.name == name), DeviceBytes(name, 0, 0, 0))
