"""Short storms: a few thousand evictions under each sanitizer. `make storm` has the long ones."""

from __future__ import annotations

import pytest

from . import built
from .runs import VARIANTS, Variant
from .storm import Storm

STEPS = 24


@pytest.fixture(scope="module", params=["address", pytest.param("thread", marks=pytest.mark.slow)])
def storm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Storm:
    sanitizer: str = request.param
    if not built.is_usable(sanitizer):
        pytest.skip(f"no compiler with the {sanitizer} sanitizer that works here")
    if built.engine(sanitizer) is None:
        pytest.skip(f"the engine for the {sanitizer} sanitizer is not built yet: {built.THREAD_ENGINE}")
    return Storm(built.build(sanitizer), tmp_path_factory.mktemp("storm"), STEPS)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_storm_has_no_report_and_plain_logits(storm: Storm, variant: Variant) -> None:
    ran = storm.run(variant)
    assert ran.faults == (), ran.outcome.stderr[:6000]
