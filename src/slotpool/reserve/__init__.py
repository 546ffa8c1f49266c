"""What llama.cpp itself reserves for a model: weights, KV cache and compute buffers by device, asked of it in a process of its own.

No formula: hybrid, sliding-window, latent and recurrent models all differ. Loads no weight and decides nothing.
"""

from slotpool.reserve.ask import reserve
from slotpool.reserve.facts import HOST, KV_TYPES, DeviceBytes, Reservation, Wanted

__all__ = ["HOST", "KV_TYPES", "DeviceBytes", "Reservation", "Wanted", "reserve"]
