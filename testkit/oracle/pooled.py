"""The model under test: loaded with the core beside it, under any plan.

Goes through slotpool's own doors (`native.Session`, `engine.register_core`) and the same engine calls as the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from slotpool import engine as installed
from slotpool import model as files
from slotpool import plan as plans
from slotpool.native import GroupCounts, Session
from slotpool.plan import Plan, Slots

from .engine import Bits, Context, EngineError, Model
from .script import Setup, Step

STORE, DISK = "slotpool-store", "slotpool-disk"
"""The buffer types of experts in host memory and of experts that stay on disk."""


class Pooled:
    """A model under a plan, with one context to begin with; use `pooled` to open it."""

    def __init__(self, path: Path, plan: Plan, setup: Setup) -> None:
        self.plan, self.setup = plan, setup
        self._contexts: list[Context] = []
        self._model: Model | None = None
        self.session = Session(plans.to_text(plan))
        try:
            installed.register_core()
            self._model = Model(path, setup)
            self._check_store(self._model)
            self.first = self.context()
        except BaseException:
            self.close()
            raise
        finally:
            self.session.loaded()

    def _check_store(self, model: Model) -> None:
        repacked = [name for name in model.buffers if "REPACK" in name]
        store = DISK if self.plan.files else STORE
        if store not in model.buffers or repacked:
            raise EngineError(f"expected experts in {store} and none repacked, got weights in {sorted(model.buffers)}")

    def context(self, setup: Setup | None = None) -> Context:
        """One more context of the model, closed with it or before."""
        assert self._model
        self._contexts.append(Context(self._model, setup or self.setup))
        return self._contexts[-1]

    def run(self, steps: Sequence[Step]) -> list[Bits]:
        """The steps in the first context."""
        return self.first.run(steps)

    def counts(self) -> list[GroupCounts]:
        """The counters of every group, over all contexts."""
        failure = self.session.take_failure()
        if failure:
            raise EngineError(f"expected a session without a failure, got: {failure}")
        return self.session.counts()

    def close_contexts(self) -> None:
        for context in self._contexts:
            context.close()

    def close(self) -> None:
        """Contexts, then the model, then the session: the order of `PooledLlama`."""
        self.close_contexts()
        if self._model:
            self._model.close()
        self.session.close()


@contextmanager
def pooled(path: Path, plan: Plan, setup: Setup | None = None) -> Iterator[Pooled]:
    """A pooled model for the length of a with block."""
    model = Pooled(path, plan, setup or Setup())
    try:
        yield model
    finally:
        with suppress(AttributeError):
            model.close()


def plan_of(path: Path, slots: Slots, *, policy: str = "decay", on_disk: bool = False, without: Sequence[str] = ()) -> Plan:
    """The plan for a file, poisoned always. `on_disk` leaves experts there; `without` names roles whose tensors stay out of it."""
    made = plans.make(files.read(path), slots, policy=policy, poison=True, ram_budget="auto" if on_disk else None)
    kept = (
        plans.Group(g.layer, g.pass_, g.device, g.slots, g.n_expert, tuple(t for t in g.tensors if t.role not in without))
        for g in made.groups
    )
    return replace(made, groups=tuple(group for group in kept if group.tensors))
