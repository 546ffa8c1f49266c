"""Benchmarks: figures with their records. `python -m benchmarks` runs them all; speed is never tested, only shown."""
