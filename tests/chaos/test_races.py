"""The library under ThreadSanitizer: streams, links, counters and hazards used from many threads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testkit import chaos

from .conftest import compiled, started

TSAN = ["-fsanitize=thread", "-g"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The program and the library, watched. ggml itself is not: what it does between our calls is invisible."""
    folder = tmp_path_factory.mktemp("tsan")
    empty = folder / "empty.cpp"
    empty.write_text("int main() { return 0; }")
    made = subprocess.run(["c++", str(empty), *TSAN, "-o", str(folder / "empty")], capture_output=True)
    if made.returncode or subprocess.run([str(folder / "empty")], capture_output=True).returncode:
        pytest.skip("no ThreadSanitizer here")
    return compiled(folder / "scenarios", *TSAN), chaos.library(*TSAN)


@pytest.mark.slow
@pytest.mark.parametrize("threaded", [0, 1])
@pytest.mark.parametrize("name", ["many_threads", "several_wait_for_one"])
def test_no_data_race(built: tuple[Path, Path], name: str, threaded: int) -> None:
    done = started(*built, name, threaded=threaded, devices=2)
    assert (done.returncode, "data race" in done.stderr) == (0, False), done.stderr[:4000]
    assert "wrong 0" in done.stdout
