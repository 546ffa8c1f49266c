"""The pool on an NVIDIA GPU against plain llama.cpp, on a machine that may have no network: `python -m benchmarks.gpu`."""
