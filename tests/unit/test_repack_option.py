"""Whether a program lets llama.cpp repack weights: its arguments before its environment, the last before others."""

from __future__ import annotations

import pytest

from slotpool.exec.repack_option import repacks


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ("", {}, True),
        ("-m model.gguf --repack", {}, True),
        ("-nr", {}, False),
        ("--no-repack -m model.gguf", {}, False),
        ("--no_repack", {}, False),
        ("--repack --no-repack", {}, False),
        ("-nr --repack", {}, True),
        ("--repack 0", {}, False),  # llama-bench
        ("--repack=0", {}, False),
        ("--repack 1", {}, True),
        ("--repack 0,1", {}, False),
        ("--repack -p 512", {}, True),
        ("", {"LLAMA_ARG_REPACK": "off"}, False),
        ("", {"LLAMA_ARG_REPACK": "1"}, True),
        ("", {"LLAMA_ARG_NO_REPACK": ""}, False),
        ("--repack", {"LLAMA_ARG_REPACK": "0"}, True),
        ("-nr", {"LLAMA_ARG_REPACK": "1"}, False),
    ],
)
def test_what_the_program_will_do(arguments: str, environment: dict[str, str], expected: bool) -> None:
    assert repacks(arguments.split(), environment) is expected
