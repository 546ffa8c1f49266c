"""Generates text from a prompt and measures it: tokens, speeds, time to first token.

Knows nothing of pools: it drives any llama_cpp.Llama.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

import llama_cpp

from slotpool.errors import SlotpoolError, quoted

STEADY_AFTER = 64
"""`steady_tps` counts the tokens after this one: by then the pool has seen the text's experts."""


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. Temperature 0 is greedy; `seed` then plays no part."""

    temperature: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Generation:
    """What came out. `tokens` are the generated ids only; speeds are tokens per second, None where there were too few tokens.

    `prompt_tps` is the prompt's tokens over the time to the first token. `generation_tps` counts everything after the first
    generated token, cold misses included; `steady_tps` the tokens after the 64th. `ttft_ms` starts when the model is loaded.
    """

    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    prompt_tps: float | None
    generation_tps: float | None
    steady_tps: float | None
    ttft_ms: float | None


def tokenize(llm: llama_cpp.Llama, prompt: str) -> list[int]:
    """The prompt's ids, as it is: no chat template; a leading BOS where the model asks for one."""
    return _ids(llm, prompt, add_bos=True)


def apply_chat(llm: llama_cpp.Llama, prompt: str) -> list[int]:
    """The ids of one user turn under the model's own chat template. Raises SlotpoolError when the file has none."""
    template = llm.metadata.get("tokenizer.chat_template")
    if not template:
        raise SlotpoolError("expected a chat template in the model, found none", where="--chat", do="Leave --chat out.")
    eos, bos = (_token_text(llm, token) for token in (llm.token_eos(), llm.token_bos()))
    try:
        formatter = llama_cpp.llama_chat_format.Jinja2ChatFormatter(template=template, eos_token=eos, bos_token=bos)
        made = formatter(messages=[{"role": "user", "content": prompt}])
    except Exception as error:  # a template is a program from the file: it may fail in any way
        raise SlotpoolError(f"the model's chat template failed: {quoted(str(error))}", where="--chat", do="Leave --chat out.") from error
    return _ids(llm, made.prompt, add_bos=not made.added_special)


def _ids(llm: llama_cpp.Llama, text: str, add_bos: bool) -> list[int]:
    ids: list[int] = llm.tokenize(text.encode("utf-8", "surrogateescape"), add_bos=add_bos, special=True)
    if not ids:
        raise SlotpoolError("expected a prompt of at least one token, found an empty one")
    return ids


def generate(
    llm: llama_cpp.Llama,
    prompt: list[int],
    n_tokens: int,
    sampling: Sampling = Sampling(),
    on_text: Callable[[str], None] = lambda _: None,
) -> Generation:
    """At most `n_tokens` tokens after `prompt`, fewer when the model ends its text. `on_text` gets the text as it comes.

    Raises SlotpoolError when prompt and tokens do not fit the context.
    """
    n_ctx = len(llm.input_ids)  # as asked for; the engine's own number is rounded up
    if len(prompt) + n_tokens > n_ctx:
        raise SlotpoolError(
            f"expected prompt and tokens to fit a context of {n_ctx}, found {len(prompt)} + {n_tokens}",
            where="--ctx",
            do=f"Try --ctx {len(prompt) + n_tokens}.",
        )
    tokens: list[int] = []
    times = [time.perf_counter()]
    pieces: list[str] = []
    decode = codecs.getincrementaldecoder("utf-8")("replace")
    for token in _sampled(llm, prompt, n_tokens, sampling):
        times.append(time.perf_counter())
        piece = decode.decode(llm.detokenize([token], prev_tokens=prompt + tokens, special=False))
        tokens.append(token)
        pieces.append(piece)
        on_text(piece)
    pieces.append(decode.decode(b"", final=True))
    on_text(pieces[-1])
    return _measured("".join(pieces), tokens, len(prompt), times)


def _sampled(llm: llama_cpp.Llama, prompt: list[int], n_tokens: int, sampling: Sampling) -> Iterator[int]:
    if n_tokens == 0:
        return
    llm.set_seed(sampling.seed)
    vocab = llm._model.vocab
    for count, token in enumerate(llm.generate(prompt, temp=sampling.temperature), 1):
        if llama_cpp.llama_vocab_is_eog(vocab, token):
            return
        yield token
        if count == n_tokens:
            return


def _measured(text: str, tokens: list[int], n_prompt: int, times: list[float]) -> Generation:
    ttft = times[1] - times[0] if tokens else None
    return Generation(
        text=text,
        tokens=tuple(tokens),
        prompt_tokens=n_prompt,
        prompt_tps=n_prompt / ttft if ttft else None,
        generation_tps=_speed(times, 1),
        steady_tps=_speed(times, STEADY_AFTER),
        ttft_ms=1000 * ttft if ttft else None,
    )


def _speed(times: list[float], after: int) -> float | None:
    """Tokens per second of the tokens after number `after`; times[0] is the start, times[i] when token i was there."""
    steps = [later - earlier for earlier, later in zip(times[after:], times[after + 1 :], strict=False)]
    return 1.0 / fmean(steps) if steps and fmean(steps) > 0 else None


def _token_text(llm: llama_cpp.Llama, token: int) -> str:
    return llm.detokenize([token], special=True).decode("utf-8", "replace") if token >= 0 else ""
