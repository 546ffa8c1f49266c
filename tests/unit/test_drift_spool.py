"""The schedule of an arm, and an arm that ran alone: what comes back is what was made, in its order."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from slotpool.drift.facts import BLOCK, Chunk, Counts, Hello
from slotpool.drift.numbers import Logits
from slotpool.drift.process import ArmProcess
from slotpool.drift.schedule import Schedule, blocks
from slotpool.drift.spool import SpooledArm
from slotpool.errors import SlotpoolError

N_VOCAB = 11
SCHEDULE = Schedule((tuple(range(20)), tuple(range(50, 53))), ((1, 2, 3, 4), (5, 6, 7, 8, 9)), n_ctx=16)


class Fake:
    """Answers as an arm does; its logits say which token, and how many were decoded since it last forgot."""

    name = "device"
    hello = Hello(1, "engine", N_VOCAB, (), ())

    def __init__(self) -> None:
        self.n_past = 0

    def forget(self) -> None:
        self.n_past = 0

    def decode(self, tokens: Sequence[int]) -> Logits:
        self.n_past += len(tokens)
        return np.array([[100 * self.n_past + token + i / 16 for i in range(N_VOCAB)] for token in tokens], np.float32)

    def chunk(self, tokens: Sequence[int]) -> Chunk:
        return Chunk((float(sum(tokens)),), "digest")

    def counts(self) -> Counts:
        return Counts()

    def has_core(self) -> bool:
        return False


def spooled(told: list[int] | None = None) -> SpooledArm:
    return SpooledArm(cast(ArmProcess, Fake()), SCHEDULE, (told if told is not None else []).append)


def played(arm: Any) -> tuple[list[Chunk], list[Logits]]:
    chunks, rows = [arm.chunk(ids) for ids in SCHEDULE.chunks], []
    for text in range(len(SCHEDULE.texts)):
        for window in SCHEDULE.windows(text):
            arm.forget()
            rows += [arm.decode(block) for block, _ in blocks(window)]
    return chunks, rows


def test_windows_and_blocks_are_all_tokens_once_each_with_its_follower() -> None:
    found = [(list(block), list(after)) for window in SCHEDULE.windows(0) for block, after in blocks(window)]
    assert [token for block, _ in found for token in block] == list(range(20))
    assert [len(block) for block, _ in found] == [BLOCK, BLOCK, 4]
    # the last token of a window predicts nothing: what follows it is in another context
    assert [after for _, after in found] == [list(range(1, 9)), list(range(9, 16)), [17, 18, 19]]


def test_an_arm_that_ran_alone_gives_back_what_it_gave() -> None:
    told: list[int] = []
    with spooled(told) as arm:
        chunks, rows = played(arm)
    expected_chunks, expected_rows = played(Fake())
    assert chunks == expected_chunks
    for ours, theirs in zip(rows, expected_rows, strict=True):
        assert ours.tobytes() == theirs.tobytes()
    assert sum(told) == SCHEDULE.n_prompt_tokens + SCHEDULE.n_text_tokens


def test_more_than_was_made_is_an_error() -> None:
    with spooled() as arm:
        played(arm)
        with pytest.raises(SlotpoolError, match="found its end"):
            arm.decode([1])


def test_the_file_has_no_name_and_is_where_tmpdir_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with spooled():
        assert list(tmp_path.iterdir()) == []


def test_logits_that_do_not_fit_the_disk_are_refused_before_they_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = SCHEDULE.n_text_tokens * N_VOCAB * 4
    for free, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: shutil._ntuple_diskusage(free, 0, free))
        if fits:
            spooled().__exit__(None, None, None)
        else:
            with pytest.raises(SlotpoolError, match=r"the logits of arm device, which runs alone, take 1012 ?B"):
                spooled()
