"""Measures the trained net and its exports: losses in PyTorch and llama.cpp, and how the routers choose.

Returns figures; card.py words them. Runs on the CPU, without slotpool.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
import torch

from training.corpus import KINDS, Document, load_corpus, sample_documents, select
from training.net import Net
from training.tokenizer import Tokens, load_tokenizer
from training.train import load_checkpoint, load_net, mean_loss, spread_windows, token_arrays

MAX_EXPORT_ERROR = 0.001  # of the perplexity, between PyTorch and llama.cpp on the F32 export
N_ROWS = 24  # windows per kind on which PyTorch and the files are compared
PROMPTS = {"prose": "And it came to pass", "code": "class Queue:\n    def __init__(self"}
N_SAMPLE_TOKENS = 120


@dataclass(frozen=True)
class KindFigures:
    """Held-out figures of one kind of text. Losses in nats per token; `full_loss` over all of it, the others over N_ROWS windows."""

    n_tokens: int
    n_bytes: int
    full_loss: float
    torch_loss: float
    f32_loss: float
    quantised_loss: float
    sample: str
    held_out: list[str]  # names of the documents
    excerpts: list[str]  # names of those that the sample files quote


@dataclass(frozen=True)
class LayerFigures:
    """Routing of one layer on held-out text: entropy as a share of log(n_expert), divergence in bits (0 to 1), and locality."""

    entropy: dict[str, float]
    js_divergence: float
    n_half: dict[str, int]  # experts that serve half of the lookups
    repeat: dict[str, float]  # share of a token's experts that the token before used too
    lru_hits: dict[str, float]  # hit rate of the last n_expert / 2 experts used


@dataclass(frozen=True)
class Figures:
    kinds: dict[str, KindFigures]
    layers: list[LayerFigures]
    n_rows: int  # windows per kind behind `layers` and the three losses that are compared
    run: dict[str, Any]
    net: dict[str, Any]
    n_params: int
    n_bytes: int
    sha256: str


def measure(work: Path, data: Path) -> Figures:
    net, state = load_net(work), load_checkpoint(work)
    documents = load_corpus(work)
    _, held_out = token_arrays(work, documents)
    f32, quantised = Engine(work / "demo-f32.gguf"), Engine(data / "demo.gguf")
    check_token_ids(work, f32, data)
    kinds = {kind: measure_kind(net, f32, quantised, held_out[kind], documents, kind) for kind in KINDS}
    check_export(kinds)
    return Figures(
        kinds=kinds,
        layers=measure_routing(net, held_out),
        n_rows=N_ROWS,
        run=state["run"],
        net=state["shape"],
        n_params=sum(p.numel() for p in net.parameters()),
        n_bytes=(data / "demo.gguf").stat().st_size,
        sha256=hashlib.sha256((data / "demo.gguf").read_bytes()).hexdigest(),
    )


def measure_kind(net: Net, f32: Engine, quantised: Engine, tokens: Tokens, documents: list[Document], kind: str) -> KindFigures:
    held_out = select(documents, kind, held_out=True)
    return KindFigures(
        n_tokens=len(tokens),
        n_bytes=sum(len(document.text) for document in held_out),
        full_loss=mean_loss(net, tokens),
        torch_loss=mean_loss(net, tokens, N_ROWS),
        f32_loss=f32.mean_loss(tokens, N_ROWS),
        quantised_loss=quantised.mean_loss(tokens, N_ROWS),
        sample=quantised.sample(PROMPTS[kind]),
        held_out=[document.name for document in held_out],
        excerpts=[document.name for document in sample_documents(documents, kind)],
    )


def check_export(kinds: dict[str, KindFigures]) -> None:
    for kind, figures in kinds.items():
        error = abs(math.exp(figures.f32_loss - figures.torch_loss) - 1)
        if error > MAX_EXPORT_ERROR:
            raise SystemExit(
                f"expected llama.cpp's perplexity on {kind} within {MAX_EXPORT_ERROR:.1%} of PyTorch's "
                f"{math.exp(figures.torch_loss):.3f}, found {math.exp(figures.f32_loss):.3f}. Look at export.py and net.py."
            )


def check_token_ids(work: Path, engine: Engine, data: Path) -> None:
    """The sample files must become the same ids in `tokenizers` and in llama.cpp."""
    tokenizer = load_tokenizer(work / "tokenizer.json")
    for kind in KINDS:
        text = (data / f"{kind}.txt").read_text()
        expected, found = tokenizer.encode(text).ids, engine.tokenize(text)
        if expected != found:
            at = next((i for i, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), -1)
            raise SystemExit(f"expected the same token ids of {kind}.txt from llama.cpp, found a difference at token {at}. Look at SPLIT.")


class Engine:
    """A GGUF file in plain llama.cpp."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise SystemExit(f"expected a model at {path}, found nothing. Run: python -m training export --work {path.parent}")
        self.llama = llama_cpp.Llama(str(path), n_ctx=512, n_batch=512, n_ubatch=512, n_threads=1, logits_all=True, verbose=False)

    def tokenize(self, text: str) -> list[int]:
        ids: list[int] = self.llama.tokenize(text.encode(), add_bos=False, special=False)
        return ids

    def mean_loss(self, tokens: Tokens, n_rows: int) -> float:
        """The same windows and targets as train.mean_loss."""
        windows = spread_windows(tokens, self.llama.n_ctx() + 1, n_rows)
        return math.fsum(self.window_loss(window) for window in windows) / len(windows)

    def window_loss(self, window: Tokens) -> float:
        self.llama.reset()
        self.llama.eval(window[:-1].tolist())
        logits = torch.from_numpy(self.logits(len(window) - 1))
        return torch.nn.functional.cross_entropy(logits, torch.from_numpy(window[1:].astype(np.int64))).item()

    def logits(self, n_rows: int) -> npt.NDArray[np.float32]:
        address = llama_cpp.llama_get_logits(self.llama.ctx)
        n_values = n_rows * self.llama.n_vocab()
        values = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (n_values,))
        return np.array(values, dtype=np.float32).reshape(n_rows, -1)

    def sample(self, prompt: str) -> str:
        reply = self.llama.create_completion(
            prompt, max_tokens=N_SAMPLE_TOKENS, temperature=0.7, top_k=40, top_p=0.95, repeat_penalty=1.05, seed=1
        )
        return prompt + str(reply["choices"][0]["text"])


@torch.inference_mode()
def measure_routing(net: Net, held_out: dict[str, Tokens], n_rows: int = N_ROWS) -> list[LayerFigures]:
    choices = {kind: routed_ids(net, tokens, n_rows) for kind, tokens in held_out.items()}
    n_expert = net.shape.n_expert
    layers = []
    for i in range(net.shape.n_layer):
        ids = {kind: choices[kind][i] for kind in KINDS}
        shares = {kind: np.bincount(ids[kind].ravel(), minlength=n_expert) / ids[kind].size for kind in KINDS}
        prose, code = shares["prose"], shares["code"]
        layers.append(
            LayerFigures(
                entropy={kind: entropy_bits(share) / math.log2(n_expert) for kind, share in shares.items()},
                js_divergence=entropy_bits((prose + code) / 2) - (entropy_bits(prose) + entropy_bits(code)) / 2,
                n_half={kind: int(np.searchsorted(np.sort(share)[::-1].cumsum(), 0.5)) + 1 for kind, share in shares.items()},
                repeat={kind: repeat_share(ids[kind]) for kind in KINDS},
                lru_hits={kind: lru_hit_rate(ids[kind], n_expert // 2) for kind in KINDS},
            )
        )
    return layers


def routed_ids(net: Net, tokens: Tokens, n_rows: int) -> list[npt.NDArray[np.int64]]:
    """Per layer, (rows, n_ctx, k): the experts that the routers chose in windows of held-out text."""
    windows = spread_windows(tokens, net.shape.n_ctx + 1, n_rows)[:, :-1]
    _, routing = net(torch.from_numpy(windows.astype(np.int64)))
    return [ids.view(*windows.shape, -1).numpy() for ids in routing.ids]


def entropy_bits(share: npt.NDArray[np.float64]) -> float:
    used = share[share > 0]
    return float(-(used * np.log2(used)).sum())


def repeat_share(ids: npt.NDArray[np.int64]) -> float:
    return float((ids[:, 1:, :, None] == ids[:, :-1, None, :]).any(axis=-1).mean())


def lru_hit_rate(ids: npt.NDArray[np.int64], n_slots: int) -> float:
    """Lookups that find their expert among the `n_slots` used last, in windows that follow each other."""
    recent: OrderedDict[int, None] = OrderedDict()
    n_hits = 0
    for expert in ids.ravel().tolist():
        n_hits += expert in recent
        recent[expert] = None
        recent.move_to_end(expert)
        if len(recent) > n_slots:
            recent.popitem(last=False)
    return n_hits / ids.size
