"""The engine that is installed: llama-cpp-python, the ggml that its libllama loaded, its devices, its log.

Changes nothing in the engine but its log callback, its default model parameters and how it loads, and those only inside a `with`.
"""

from slotpool.engine.about import backend_api, build, build_flags, n_cores, name, version
from slotpool.engine.hardware import Device, devices, offload_devices
from slotpool.engine.library import function_address, ggml_copies, ggml_path, is_core_mapped, is_mapped
from slotpool.engine.log import captured_log, compute_buffers, weight_buffers
from slotpool.engine.outputs import logits_reader
from slotpool.engine.parameters import (
    context_defaults,
    devices_hidden,
    experts_in_host_memory,
    kept_on_host,
    loading_unmapped,
    model_defaults,
)
from slotpool.engine.registration import abi_problem, is_registered, load_backend, register_core
from slotpool.engine.rpc import add_rpc_servers

__all__ = [
    "Device",
    "abi_problem",
    "add_rpc_servers",
    "backend_api",
    "build",
    "build_flags",
    "captured_log",
    "compute_buffers",
    "context_defaults",
    "devices",
    "devices_hidden",
    "experts_in_host_memory",
    "function_address",
    "ggml_copies",
    "ggml_path",
    "is_core_mapped",
    "is_mapped",
    "is_registered",
    "kept_on_host",
    "load_backend",
    "loading_unmapped",
    "logits_reader",
    "model_defaults",
    "n_cores",
    "name",
    "offload_devices",
    "register_core",
    "version",
    "weight_buffers",
]
