"""Layouts that mix the blocks of neighbouring rows are learned by asking: any change of places, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from slotpool.native.repack import BLOCKS, ROWS, interleave

Engine = Callable[[bytes], bytes]
BLOCK = 18


def engine_of(group: int, sources: list[int], inverted: bytes) -> Callable[[int, int], Engine]:
    """An engine for rows of any number of blocks: bit i of a group of `group` blocks is bit `sources[i]` of them, then inverted."""

    def sized(n_rows: int, n_blocks: int) -> Engine:
        def repack(rows: bytes) -> bytes:
            made = bytearray()
            for first in range(0, n_rows, group):
                for block in range(n_blocks):
                    places = [((first + row) * n_blocks + block) * BLOCK for row in range(group)]
                    bits = int.from_bytes(b"".join(rows[place : place + BLOCK] for place in places), "little")
                    moved = sum((bits >> source & 1) << to for to, source in enumerate(sources))
                    made += (moved ^ int.from_bytes(inverted, "little")).to_bytes(group * BLOCK, "little")
            return bytes(made)

        return repack

    return sized


def by_bytes(order: list[int]) -> list[int]:
    return [8 * byte + bit for byte in order for bit in range(8)]


def layouts(group: int, draw: random.Random) -> list[list[int]]:
    """Changes of places: none, of runs of eight bytes, of single bytes, of bits."""
    n_bytes = group * BLOCK
    runs = [list(range(at, min(at + 8, n_bytes))) for at in range(0, n_bytes, 8)]
    draw.shuffle(runs)
    singles, bits = list(range(n_bytes)), list(range(8 * n_bytes))
    draw.shuffle(singles)
    draw.shuffle(bits)
    return [by_bytes(list(range(n_bytes))), by_bytes([byte for run in runs for byte in run]), by_bytes(singles), bits]


@pytest.mark.parametrize("group", [1, 2, 4, 8, 16])
def test_any_change_of_places_is_learned_and_done_to_any_number_of_rows(group: int) -> None:
    draw = random.Random(group)
    for sources in layouts(group, draw):
        for inverted in (bytes(group * BLOCK), draw.randbytes(group * BLOCK)):
            sized = engine_of(group, sources, inverted)
            rows = draw.randbytes(2 * group * 3 * BLOCK)
            found, made = interleave(sized(ROWS, BLOCKS), BLOCK, rows, 2 * group, 3)
            # fewer rows may belong together than we thought: never more
            assert found
            assert group % found == 0
            assert made == sized(2 * group, 3)(rows)


def test_rows_that_are_no_whole_groups_are_refused() -> None:
    sized = engine_of(8, by_bytes(list(reversed(range(8 * BLOCK)))), bytes(8 * BLOCK))
    assert interleave(sized(ROWS, BLOCKS), BLOCK, bytes(12 * BLOCK), 12, 1) == (0, b"")


def summed(rows: bytes) -> bytes:
    """Every byte depends on its neighbour."""
    return bytes((one + other) % 256 for one, other in zip(rows, rows[1:] + rows[:1], strict=True))


def doubled(rows: bytes) -> bytes:
    """The second half is lost."""
    return rows[: len(rows) // 2] * 2


def rotated(rows: bytes) -> bytes:
    """Places change, but across all blocks and rows."""
    return rows[1:] + rows[:1]


def one_in_many(rows: bytes) -> bytes:
    """As it was, unless a byte has one value: what patterns alone would not show."""
    return bytes(0 if byte == 201 else byte for byte in rows)


def scrambled_once(rows: bytes) -> bytes:
    """The last group is treated in its own way."""
    return rows[:-2] + rows[:-3:-1]


@pytest.mark.parametrize("engine", [summed, doubled, rotated, one_in_many, scrambled_once], ids=lambda one: one.__name__)
def test_anything_else_is_not_learned(engine: Engine) -> None:
    assert interleave(engine, BLOCK, bytes(ROWS * BLOCK), ROWS, 1) == (0, b"")
