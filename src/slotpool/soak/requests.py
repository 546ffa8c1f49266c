"""What is asked of a model, and the asking: requests whose answers must never change, and churn that is another every time.

Texts are the bundled ones, prose and code. Does not judge an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from random import Random

from slotpool.errors import REFUSED, SlotpoolError
from slotpool.soak.driver import Driver
from slotpool.soak.facts import Output, Reply, Request, Settings

TOPICS = ("prose", "code")
_N_ANCHOR = 32
_N_PARALLEL_PROMPT, _N_PARALLEL = (12, 20), 16
_N_STRETCH = 64
"""Tokens after which the long prompt changes its topic."""


@dataclass(frozen=True)
class Texts:
    """The bundled texts as a model's tokens, taken in a circle."""

    tokens: dict[str, tuple[int, ...]]

    def window(self, topic: str, at: int, n_tokens: int) -> tuple[int, ...]:
        """`n_tokens` tokens of a topic from place `at` on."""
        known = self.tokens[topic]
        return tuple(known[(at + index) % len(known)] for index in range(n_tokens))


def read_texts(tokenize: Callable[[bytes], list[int]]) -> Texts:
    """The bundled texts. Raises SlotpoolError where a model makes no tokens of them."""
    data = resources.files("slotpool") / "data"
    tokens = {topic: tuple(tokenize((data / f"{topic}.txt").read_bytes())) for topic in TOPICS}
    if not all(tokens.values()):
        raise SlotpoolError("expected a model that makes tokens of text, found none in the bundled ones", exit_code=REFUSED)
    return Texts(tokens)


def fixed_requests(texts: Texts, settings: Settings) -> dict[str, Request]:
    """The requests that are asked again and again, by name: the same for everybody with the same settings."""
    anchors = [Request(topic, (texts.window(topic, 100, _N_ANCHOR),), settings.n_generate) for topic in TOPICS]
    chats = [_chat(f"chat {topic}", topic, texts, settings) for topic in TOPICS]
    stretches = range(0, settings.n_ctx - 2, _N_STRETCH)
    long = [token for number, at in enumerate(stretches) for token in texts.window(TOPICS[number % 2], at, _N_STRETCH)]
    parallel = tuple(texts.window(TOPICS[seq % 2], 50 * seq, _N_PARALLEL_PROMPT[seq % 2]) for seq in range(settings.n_parallel))
    others = [Request("parallel", parallel, _N_PARALLEL), Request("long prompt", (tuple(long[: settings.n_ctx - 2]),), 2)]
    return {request.name: request for request in (*anchors, *chats, *others)}


def churn(topic: str, texts: Texts, settings: Settings, random: Random) -> Request:
    """A request like no other before: a random stretch of a topic."""
    prompt = texts.window(topic, random.randrange(len(texts.tokens[topic])), random.randint(8, 64))
    return Request(f"churn {topic}", (prompt,), settings.n_churn)


def ask(driver: Driver, request: Request) -> Reply:
    """Asks in an empty cache. Raises what Driver.decode raises."""
    driver.forget()
    return _ask_chat(driver, request) if request.is_chat else _ask_together(driver, request)


def _chat(name: str, topic: str, texts: Texts, settings: Settings) -> Request:
    """Turns of n_turn tokens of text and n_turn of answer, until the context is full."""
    n_turns = settings.n_ctx // (2 * settings.n_turn)
    turns = tuple(texts.window(topic, 70 * turn, settings.n_turn) for turn in range(n_turns))
    return Request(name, turns, settings.n_turn, is_chat=True)


def _ask_together(driver: Driver, request: Request) -> Reply:
    """All prompts in one batch, then a token of every sequence at a time."""
    started = time.perf_counter()
    given = [(token, seq) for seq, prompt in enumerate(request.prompts) for token in prompt]
    ends = [index == len(prompt) - 1 for prompt in request.prompts for index in range(len(prompt))]
    outputs = driver.decode(given, ends)
    answered = time.perf_counter()
    for _ in range(request.n_tokens - 1):
        outputs += driver.decode(
            [(one.token, seq) for seq, one in enumerate(outputs[-len(request.prompts) :])], [True] * len(request.prompts)
        )
    return Reply(tuple(outputs), len(given), answered - started, time.perf_counter() - answered)


def _ask_chat(driver: Driver, request: Request) -> Reply:
    """Turn by turn; what was said before is kept in the cache and not given again. The last token goes in as well: the context is full."""
    outputs: list[Output] = []
    n_given, times = 0, [0.0, 0.0]
    for prompt in request.prompts:
        started = time.perf_counter()
        turn = [*([outputs[-1].token] if outputs else []), *prompt]
        outputs += _go_on(driver, turn)
        answered = time.perf_counter()
        for _ in range(request.n_tokens - 1):
            outputs += _go_on(driver, [outputs[-1].token])
        n_given += len(turn) + request.n_tokens - 1
        _check_kept(driver, n_given)
        times[0] += answered - started
        times[1] += time.perf_counter() - answered
    outputs += _go_on(driver, [outputs[-1].token])
    return Reply(tuple(outputs), sum(map(len, request.prompts)), *times)


def _go_on(driver: Driver, tokens: Sequence[int]) -> list[Output]:
    return driver.decode([(token, 0) for token in tokens], [False] * (len(tokens) - 1) + [True])


def _check_kept(driver: Driver, n_given: int) -> None:
    if driver.n_kept(0) != n_given:
        raise SlotpoolError(f"expected {n_given} tokens of the chat in the cache, found {driver.n_kept(0)}", exit_code=REFUSED)


def n_reused(request: Request) -> int:
    """Tokens of a chat's earlier turns that its later ones did not evaluate again, summed over the turns."""
    return sum(turn * (len(prompt) + request.n_tokens) - 1 for turn, prompt in enumerate(request.prompts) if turn) if request.is_chat else 0
