"""The phases of a round, each a function of the session's tools: what is done between two looks at the anchors.

A phase says what it asked and what came; whether that is right is the session's to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from slotpool import engine
from slotpool.loading import PooledLlama
from slotpool.soak.driver import AbortedError, Driver
from slotpool.soak.facts import Reply, Request, Settings
from slotpool.soak.loaded import second_driver
from slotpool.soak.requests import Texts, ask, churn, n_reused

Answer = tuple[Request, Reply]


@dataclass
class Tools:
    """What phases work with, and what they count."""

    llm: PooledLlama
    driver: Driver
    texts: Texts
    settings: Settings
    requests: Mapping[str, Request]
    random: Random
    n_aborted: int = 0
    n_contexts: int = 0
    n_reused: int = 0
    questions: dict[str, int] = field(default_factory=dict)


def phase(name: str, tools: Tools, number: int) -> Iterator[Answer]:
    """Does a phase in round `number`; yields fixed requests with their replies, and churn. A chat whose turn it is not yields nothing."""
    if name.startswith("chat ") and number % 2 != (name == "chat code"):
        return
    yield from _PHASES.get(name, _fixed)(name, tools)


def anchor_of(number: int) -> str:
    """The anchor that is replayed after phase `number` of a session."""
    return ("prose", "code")[number % 2]


def _fixed(name: str, tools: Tools) -> Iterator[Answer]:
    request = tools.requests[name]
    yield request, ask(tools.driver, request)
    tools.n_reused += n_reused(request)


def _churn(name: str, tools: Tools) -> Iterator[Answer]:
    request = churn(name.split()[1], tools.texts, tools.settings, tools.random)
    yield request, ask(tools.driver, request)


def _abort_in_generation(_: str, tools: Tools) -> Iterator[Answer]:
    """Between two layers of a token, somewhere in the answer; the same request right after it must not know."""
    request = tools.requests[tools.random.choice(("prose", "code"))]
    first = _n_questions(tools, Request(f"{request.name}, prompt", request.prompts, 1))
    _abort(tools, request, tools.random.randint(first + 1, max(first + 1, _n_questions(tools, request))))
    yield request, ask(tools.driver, request)


def _abort_in_prompt(_: str, tools: Tools) -> Iterator[Answer]:
    """Somewhere in a prompt of several ubatches, the first of which is in the cache then."""
    request = Request("long prompt, begun", tools.requests["long prompt"].prompts, 1)
    _abort(tools, request, tools.random.randint(1, _n_questions(tools, request)))
    return iter(())


def _second_context(_: str, tools: Tools) -> Iterator[Answer]:
    """A context of its own answers between two answers of the first, and is freed right after its last token."""
    request = tools.requests[tools.random.choice(("prose", "code"))]
    with second_driver(tools.llm) as other:
        tools.n_contexts += 1
        yield request, ask(other, request)
        beside = churn(tools.random.choice(("prose", "code")), tools.texts, tools.settings, tools.random)
        yield beside, ask(tools.driver, beside)
        yield request, ask(other, request)


def _n_questions(tools: Tools, request: Request) -> int:
    """How often the engine asks whether to stop, learned once for each request."""
    if request.name not in tools.questions:
        with tools.driver.aborted_after(None):
            ask(tools.driver, request)
        tools.questions[request.name] = max(1, tools.driver.n_questions)
    return tools.questions[request.name]


def _abort(tools: Tools, request: Request, n_questions: int) -> None:
    try:
        # the engine says what it removes from its cache
        with engine.captured_log(), tools.driver.aborted_after(n_questions):
            ask(tools.driver, request)
    except AbortedError:
        tools.n_aborted += 1


_PHASES: dict[str, Callable[[str, Tools], Iterator[Answer]]] = {
    "churn prose": _churn,
    "churn code": _churn,
    "abort in generation": _abort_in_generation,
    "abort in prompt": _abort_in_prompt,
    "second context": _second_context,
}
