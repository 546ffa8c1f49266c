"""Records of `slotpool drift`: what the pool moves in a model's logits. Reads them, judges nothing."""

from __future__ import annotations

from collections.abc import Iterator

from slotpool.report import words
from slotpool.report.facts import LOWER, Content, Figure, Headline, Table
from slotpool.report.fields import Field
from slotpool.report.kinds.kind import Kind

_KLD = ("mean", "median", "p99", "max")


def content(results: Field, flags: Field) -> Content:
    """Texts with their perplexities and divergences, the shares of placement and pool, the prompts, and the verdict as it was given."""
    texts = results["texts"].each()
    figures = tuple(figure for text in texts for figure in _figures(text))
    verdict = results["verdict"].text()
    note = f"Verdict: {verdict}: {results['reason'].text()}. Expected: {results['expected'].text()}."
    n_evicting, n_steps, n_evicted = (results[name].count() for name in ("steps_with_evictions", "steps", "evictions"))
    counts = f"{n_evicting} of {n_steps} steps evicted, {n_evicted} evictions"
    headline = Headline(
        f"drift of {results['tokens'].count()} tokens from plain llama.cpp, largest KL divergence",
        words.number(results["kld"]["max"].number()),
        f"{verdict}, {results['top1_flips'].count()} top-1 flips, {counts}",
    )
    return Content(figures, tables=(_texts(texts), *_shares(results), *_prompts(results)), notes=(note, counts), headlines=(headline,))


def _figures(text: Field) -> Iterator[Figure]:
    name = text["name"].text()
    for part in _KLD:
        yield Figure("pool", f"KL divergence, {part}", "nats", text["kld"][part].spread(), name, LOWER, is_counted=True)
    yield Figure("pool", "top-1 flips", "tokens", text["top1_flips"].spread(), name, LOWER, is_counted=True)
    for arm, found in text["ppl"].items():
        if "ppl" in found:
            yield Figure(arm, "perplexity", "", found["ppl"].spread(), name, LOWER, is_counted=True)


def _texts(texts: list[Field]) -> Table:
    arms = [arm for arm, _ in texts[0]["ppl"].items()] if texts else []
    header = ("text", "tokens", *(f"perplexity, {arm}" for arm in arms), *(f"KLD {part}" for part in _KLD), "top-1 flips")
    return Table("Texts, pool against plain llama.cpp on the CPU", header, tuple(_text(text, arms) for text in texts))


def _text(text: Field, arms: list[str]) -> tuple[str, ...]:
    perplexities = (_perplexity(text["ppl"][arm]) for arm in arms)
    klds = (words.number(text["kld"][part].number()) for part in _KLD)
    return (text["name"].text(), str(text["tokens"].count()), *perplexities, *klds, str(text["top1_flips"].count()))


def _perplexity(found: Field) -> str:
    error = f" +- {found['error'].number():.2g}" if "error" in found else ""
    return f"{found['ppl'].number():.4g}{error}" if "ppl" in found else ""


def _shares(results: Field) -> Iterator[Table]:
    parts = [(name, results[key]) for name, key in (("placement", "placement"), ("pool", "pool_share")) if key in results]
    rows = tuple((name, *_share(found)) for name, found in parts if "kld" in found)
    if rows:
        yield Table("What moved it", ("share", "KLD max", "top-1 flips", "tokens that differ", "first difference"), rows)


def _share(found: Field) -> tuple[str, ...]:
    place = "none"
    if "first_difference" in found:
        first = found["first_difference"]
        place = f"{first['text'].text()}, token {first['index'].count()}"
    return (
        words.number(found["kld"]["max"].number()),
        str(found["top1_flips"].count()),
        str(found["tokens_that_differ"].count()),
        place,
    )


def _prompts(results: Field) -> Iterator[Table]:
    if "prompts" not in results:
        return
    found = results["prompts"]
    row = (
        f"{found['chunks'].count()} of {found['chunk_tokens'].count()} tokens",
        _yes(found["same_after"]),
        _yes(found["same_as_plain"]),
    )
    yield Table("Prompts", ("chunks", "the same after decoding", "the same as plain"), (row,))


def _yes(found: Field) -> str:
    return "yes" if found.value is True else "no"


KIND = Kind(
    "Drift",
    "Texts token by token through plain llama.cpp, in a process without slotpool, and through the pool: what the pool changes in the "
    "logits. Zero is bit-equal.",
    content,
    apart=None,
)
