"""`slotpool.load`: a llama_cpp.Llama whose experts live in the store and are used from slots.

Everything that is not about the pool is llama-cpp-python's: every other keyword is passed on as it is.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp

from slotpool import engine, model, plan, pool_stats
from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.native import Session
from slotpool.plan import Plan, Slots

_loading = threading.Lock()
"""The core has one session open for loading at a time."""


class PooledLlama(llama_cpp.Llama):
    """A llama_cpp.Llama under a plan. Made by `load`; `slotpool.stats` reads it."""

    def __init__(self, path: str, made: Plan, **llama_options: Any) -> None:
        self.slotpool_plan = made
        self.slotpool_session: Session | None = None
        if not made.groups:
            _construct(self, path, llama_options)
            return
        with _loading:
            self.slotpool_session = Session(plan.to_text(made))
            try:
                engine.register_core()
                _construct(self, path, llama_options)
            except BaseException:
                self.close()
                raise
            finally:
                self.slotpool_session_loaded()

    def slotpool_session_loaded(self) -> None:
        """Ends the time in which buffers and contexts belong to this model."""
        if self.slotpool_session:
            self.slotpool_session.loaded()

    def eval(self, tokens: Sequence[int]) -> None:
        """As llama_cpp.Llama.eval; a failure of the pool is a SlotpoolError in its own words, and the pool survives it."""
        try:
            super().eval(tokens)
        except RuntimeError as error:
            problem = self.slotpool_session.problem() if self.slotpool_session else ""
            if not problem:
                raise
            raise SlotpoolError(problem, exit_code=REFUSED) from error

    def close(self) -> None:
        """Frees context, model and slots."""
        if hasattr(self, "_stack"):
            super().close()
        if getattr(self, "slotpool_session", None):
            self.slotpool_session.close()  # type: ignore[union-attr]
            self.slotpool_session = None


def load(
    path: str | os.PathLike[str],
    slots: Slots = "auto",
    *,
    policy: str = "default",
    require_pool: bool = False,
    poison: bool = False,
    **llama_options: Any,
) -> PooledLlama:
    """Loads a GGUF model with llama-cpp-python and a pool of `slots` slots per expert tensor.

    `slots`: a number, `all`, 0 (off) or `auto`. `policy` is one of `plan.POLICIES`. `require_pool` makes it an error when nothing
    is pooled. `poison` fills free and evicted slots with 0xFF, so that a stale read shows (tests). All other keywords go to
    llama_cpp.Llama; `n_threads` is all cores unless given, `verbose` is off.

    Raises SlotpoolError for a file that cannot be read, slots that one token cannot use, or nothing pooled with `require_pool`.
    """
    facts = model.read(Path(os.fsdecode(os.fspath(path))))
    if facts.problems:
        raise SlotpoolError(facts.problems[0], where=printable(path), do="slotpool inspect lists all problems of the file.")
    made = plan.make(facts, slots, policy=policy, poison=poison)
    if require_pool and not made.groups:
        raise _nothing_pooled(made.reason, path)
    for warning in made.warnings:
        warnings.warn(warning, stacklevel=2)
    llm = PooledLlama(os.fsdecode(os.fspath(path)), made, **_with_defaults(llama_options))
    if require_pool and not read_stats(llm)["pooled_tensors"]:
        llm.close()
        raise _nothing_pooled("the loader put no expert tensor into the store", path)
    return llm


def read_stats(llm: llama_cpp.Llama) -> pool_stats.Stats:
    """What the pool of `llm` has done so far. Raises SlotpoolError for a model that `load` did not make, or that is closed."""
    if not isinstance(llm, PooledLlama):
        raise SlotpoolError(f"expected a model made by slotpool.load, found {type(llm).__name__}")
    session = llm.slotpool_session
    if session is None:
        if llm.slotpool_plan.groups:
            raise SlotpoolError("expected an open model, found a closed one")
        return pool_stats.collect(llm.slotpool_plan, (), {})
    stored = {tensor.name: session.is_stored(tensor.name) for group in llm.slotpool_plan.groups for tensor in group.tensors}
    return pool_stats.collect(llm.slotpool_plan, session.counts(), stored)


def _with_defaults(llama_options: dict[str, Any]) -> dict[str, Any]:
    return {"n_threads": engine.n_cores(), "verbose": False} | llama_options


def _construct(llm: PooledLlama, path: str, llama_options: dict[str, Any]) -> None:
    if llama_options.get("verbose"):
        llama_cpp.Llama.__init__(llm, path, **llama_options)
        return
    with engine.captured_log() as lines:
        try:
            llama_cpp.Llama.__init__(llm, path, **llama_options)
        except (ValueError, RuntimeError) as error:
            raise SlotpoolError(f"the engine could not load the model: {'; '.join(lines[-2:]) or error}", where=printable(path)) from error


def _nothing_pooled(reason: str, path: str | os.PathLike[str]) -> SlotpoolError:
    return SlotpoolError(f"expected something pooled, found nothing: {reason}", where=printable(path), exit_code=REFUSED)
