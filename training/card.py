"""Words the figures of check.py as the model's card, in Markdown. It measures nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from training.check import Figures, KindFigures, LayerFigures
from training.corpus import KINDS

T = TypeVar("T")

TEMPLATE = """# slotpool demo: a small mixture-of-experts model

`demo.gguf` exists so that routing is real in demos and tests, perplexity means something, and a switch of topic shows.
It writes plausible King James prose and plausible Python; it knows nothing and is of no other use.
It is made by `python -m training all` ([how](../../../training/README.md)); this card is written by the same script.

| | |
|---|---|
| architecture | {architecture} |
| parameters | {n_params:,} |
| file | {n_bytes:,} bytes; expert gate and up Q4_K, expert down Q6_K, embedding and attention Q8_0, norms and routers F32 |
| SHA-256 | `{sha256}` |
| training | {minutes:.0f} minutes of wall clock, {n_threads} processes of one thread on a CPU, F32, PyTorch {torch}{resumed} |
| steps | {step:,} of {tokens_per_step:,} tokens = {n_seen:.1f} million tokens; seed {seed} |

## Data and licence

| kind | source | licence | tokens trained on | held out |
|---|---|---|---|---|
| prose | King James Bible, Debian `bible-kjv-text` | public domain (see below) | {prose_train:,} | {prose_held:,} tokens |
| code | standard library of CPython {python}, no tests or tables | PSF-2.0 | {code_train:,} | {code_held:,} tokens |

Held out are whole books ({prose_names}) and whole source files ({n_code_names}), chosen by the hash of their names.
SHA-256 of the corpus: `{corpus_sha256}`.

`prose.txt` and `code.txt` are excerpts of the held-out text, for benches and tests:
{prose_sources}; {code_sources}.
The weights and `code.txt` are under the PSF licence 2.0, Copyright (c) 2001 Python Software Foundation; All Rights Reserved:
`LICENSE-python.txt`. Changed from the original: lines not in ASCII or over 400 characters left out, tabs expanded,
trailing blanks removed, excerpts taken.
The King James text is free everywhere but in the United Kingdom, where printing it is a right of the Crown.

## Held-out loss

Nats per token on all held-out text, windows of {n_ctx} tokens, in PyTorch (F32):

| kind | loss | perplexity | bits per byte |
|---|---|---|---|
{loss_rows}

An untrained model has a loss of {untrained:.2f} (perplexity {n_vocab}).

## The export is right

Perplexity of the same {n_rows} windows, spread over the held-out text, in PyTorch and through llama.cpp,
on the F32 export and on the bundled file:

| kind | PyTorch | llama.cpp, F32 | difference | llama.cpp, bundled | against F32 |
|---|---|---|---|---|---|
{export_rows}

The script stops if the F32 perplexity differs by more than 0.1 %, or if llama.cpp splits either sample into other tokens than `tokenizers`.

## Routing is alive

On the same windows. Entropy: of the shares of the {n_expert} experts, 1 = all alike. Half: experts that serve half of all lookups.
Repeat: share of a token's {n_expert_used} experts that the token before used too; {chance:.2f} by chance.
Divergence: Jensen-Shannon, between the two kinds' shares; 0 = the same experts, 1 = none in common.
LRU: hit rate of a pool of the {n_slots} experts used last; 0.50 by chance.

| layer | entropy prose, code | half prose, code | repeat prose, code | LRU prose, code | divergence |
|---|---|---|---|---|---|
{layer_rows}

## What it writes

The bundled file, temperature 0.7, seed 1, after a prompt of a few words:

{samples}
"""


def write_card(figures: Figures, path: Path) -> None:
    path.write_text(TEMPLATE.format(**facts(figures)))


def facts(figures: Figures) -> dict[str, object]:
    run, net, kinds = figures.run, figures.net, figures.kinds
    return {
        **{key: run[key] for key in ("seed", "step", "tokens_per_step", "torch", "n_threads", "corpus_sha256", "python")},
        **{key: net[key] for key in ("n_vocab", "n_ctx", "n_expert", "n_expert_used")},
        "architecture": (
            "qwen3moe, {n_layer} layers, width {n_embd}, {n_head} heads of {n_embd_head} ({n_head_kv} for keys and values), "
            "{n_expert} experts of width {n_ff_exp}, {n_expert_used} used, vocabulary {n_vocab}, context {n_ctx}"
        ).format(**net),
        "n_params": figures.n_params,
        "n_bytes": figures.n_bytes,
        "sha256": figures.sha256,
        "minutes": run["seconds"] / 60,
        "resumed": f"; resumed after steps {', '.join(map(str, run['resumed_at']))}" if run["resumed_at"] else "",
        "n_seen": run["step"] * run["tokens_per_step"] / 1e6,
        **{f"{kind}_train": run["n_train_tokens"][kind] for kind in KINDS},
        **{f"{kind}_held": kinds[kind].n_tokens for kind in KINDS},
        **{f"{kind}_sources": ", ".join(kinds[kind].excerpts) for kind in KINDS},
        "prose_names": ", ".join(kinds["prose"].held_out),
        "n_code_names": len(kinds["code"].held_out),
        "untrained": math.log(net["n_vocab"]),
        "n_rows": figures.n_rows,
        "n_slots": net["n_expert"] // 2,
        "chance": net["n_expert_used"] / net["n_expert"],
        "loss_rows": rows(KINDS, lambda kind: loss_row(kind, kinds[kind])),
        "export_rows": rows(KINDS, lambda kind: export_row(kind, kinds[kind])),
        "layer_rows": rows(range(net["n_layer"]), lambda i: layer_row(i, figures.layers[i])),
        "samples": "\n\n".join(f"```text\n{kinds[kind].sample.rstrip()}\n```" for kind in KINDS),
    }


def rows(items: Iterable[T], row: Callable[[T], str]) -> str:
    return "\n".join(map(row, items))


def loss_row(kind: str, f: KindFigures) -> str:
    bits_per_byte = f.full_loss / math.log(2) * f.n_tokens / f.n_bytes
    return f"| {kind} | {f.full_loss:.3f} | {math.exp(f.full_loss):.2f} | {bits_per_byte:.3f} |"


def export_row(kind: str, f: KindFigures) -> str:
    torch, f32, bundled = (math.exp(loss) for loss in (f.torch_loss, f.f32_loss, f.quantised_loss))
    return f"| {kind} | {torch:.4f} | {f32:.4f} | {f32 / torch - 1:+.4%} | {bundled:.4f} | {bundled / f32 - 1:+.2%} |"


def layer_row(i: int, f: LayerFigures) -> str:
    entropy, n_half, repeat, lru = (
        ", ".join(form.format(cell[kind]) for kind in KINDS)
        for cell, form in ((f.entropy, "{:.2f}"), (f.n_half, "{}"), (f.repeat, "{:.2f}"), (f.lru_hits, "{:.2f}"))
    )
    return f"| {i} | {entropy} | {n_half} | {repeat} | {lru} | {f.js_divergence:.2f} |"
