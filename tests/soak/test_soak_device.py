"""Soaks with slots on a device that is stricter than a GPU: equal to plain llama.cpp, aborts and freed contexts included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slotpool import soak
from slotpool.soak.reference import Replies
from testkit.oracle import DeviceProcess
from testkit.oracle.devices import chaos
from tests.soak.conftest import SETTINGS

ON_DEVICE: dict[str, Any] = {"slots": 6, "device": ["CHAOS0"], "rail": 0, "require_pool": True}
SLOW_LINK = 2e8


@pytest.fixture(scope="module", params=[0, 1], ids=["lazy", "threaded"])
def process(request: pytest.FixtureRequest) -> Iterator[DeviceProcess]:
    with DeviceProcess({"devices": 1, "threaded": request.param}) as made:
        yield made


def soaked(path: Path, pool: dict[str, Any], plain: Replies) -> tuple[dict[str, Any], str, int]:
    """In the process of the device: the document, what the device objects to, and the bytes it has left."""
    chaos().set(0, link_bytes_per_second=SLOW_LINK)
    made = soak.document(soak.run(path, SETTINGS, pool, soak.Limit(rounds=1), plain))
    return made, chaos().first_hazard(), chaos().counters(0).bytes_now


@pytest.mark.filterwarnings("ignore:.*")
def test_aborted_work_of_a_device_without_slots_is_waited_for(demo: Path, plain: Replies) -> None:
    """A layer lives on a second device, without slots: what an abort left running there ends before the cache is cleared."""
    with DeviceProcess({"devices": 2}) as two:
        made, hazard, n_bytes = two.call(soaked, demo, ON_DEVICE | {"ram_budget": 6 * 2**20}, plain)
    assert (made["differences"], made["failure"], made["ok"]) == ([], "", True)
    assert (hazard, n_bytes) == ("", 0)


@pytest.mark.parametrize(
    "pool",
    [{"miss": "copy"}, {"miss": "cpu"}, {"miss": "auto", "device_budget": 2_800_000}, {"ram_budget": 6 * 2**20}],
    ids=["copy", "cpu", "auto-small-budget", "two-tiers"],
)
@pytest.mark.filterwarnings("ignore:.*")
def test_a_session_on_a_device_is_plain_llama_cpp_s(pool: dict[str, Any], demo: Path, plain: Replies, process: DeviceProcess) -> None:
    made, hazard, n_bytes = process.call(soaked, demo, ON_DEVICE | pool, plain)
    assert (made["differences"], made["failure"], made["ok"]) == ([], "", True)
    assert made["exact"] == (pool.get("miss") == "copy")
    assert all(one["equals_plain"] for one in made["anchors"])
    assert made["aborted"] > 0
    assert made["stats"]["evicted"] > 50
    assert set(made["samples"][-1]["device_bytes"]) == {"CHAOS0"}
    assert made["verdicts"]["memory"]["CHAOS0"]["verdict"] == "too few rounds"
    assert (hazard, n_bytes) == ("", 0)
