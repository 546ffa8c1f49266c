"""The bundled model, in plain llama.cpp: it loads, it fits, it says its licence, and it has learned both kinds of text."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import numpy as np
import pytest

DATA = Path(__file__).parents[2] / "src" / "slotpool" / "data"
MODEL = DATA / "demo.gguf"
KINDS = ("prose", "code")
N_TOKENS = 384
N_EXPERT = 24

# Measured 48.9 and 58.0 on these tokens; half as much again leaves room for other CPUs' kernels. A guess among all tokens has 4096.
MAX_PERPLEXITY = {"prose": 75.0, "code": 90.0}


@pytest.fixture(scope="module")
def llama() -> Iterator[llama_cpp.Llama]:
    model = llama_cpp.Llama(str(MODEL), n_ctx=512, n_batch=512, n_threads=1, logits_all=True, verbose=False)
    yield model
    model.close()


def sample(kind: str) -> str:
    return (DATA / f"{kind}.txt").read_text()


def perplexity(llama: llama_cpp.Llama, ids: list[int]) -> float:
    llama.reset()
    llama.eval(ids[:-1])
    n_values = (len(ids) - 1) * llama.n_vocab()
    address = ctypes.cast(llama_cpp.llama_get_logits(llama.ctx), ctypes.POINTER(ctypes.c_float))
    logits = np.ctypeslib.as_array(address, (n_values,)).reshape(len(ids) - 1, -1).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(np.exp(-log_probabilities[np.arange(len(ids) - 1), ids[1:]].mean()))


def test_file_is_at_most_16_megabytes() -> None:
    assert MODEL.stat().st_size <= 16_000_000


def test_metadata_names_model_architecture_and_licence(llama: llama_cpp.Llama) -> None:
    assert llama.metadata["general.name"] == "slotpool demo"
    assert llama.metadata["general.architecture"] == "qwen3moe"
    assert llama.metadata["general.license"] == "PSF-2.0"
    assert llama.metadata["qwen3moe.expert_count"] == str(N_EXPERT)
    assert llama.metadata["qwen3moe.expert_used_count"] == "4"


def test_file_holds_no_path_of_the_machine_that_made_it() -> None:
    header = MODEL.read_bytes()[:400_000]
    assert not [path for path in (b"/root", b"/home/", b"/work", b"/tmp/") if path in header.split(b"tokenizer.ggml.tokens")[0]]


def test_experts_are_k_quants() -> None:
    gguf = pytest.importorskip("gguf")
    kinds = {t.name: t.tensor_type.name for t in gguf.GGUFReader(MODEL).tensors if "_exps" in t.name}
    assert len(kinds) == 12
    assert set(kinds.values()) == {"Q4_K", "Q6_K"}


@pytest.mark.parametrize("kind", KINDS)
def test_sample_has_8_to_16_kilobytes_of_ascii(kind: str) -> None:
    assert 8_000 <= len(sample(kind)) <= 16_384
    assert sample(kind).isascii()


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_sample_round_trip(llama: llama_cpp.Llama, kind: str) -> None:
    text = sample(kind).encode()
    ids = llama.tokenize(text, add_bos=False, special=False)
    assert llama.detokenize(ids) == text
    assert len(ids) < len(text) / 2.5, "the vocabulary should know both kinds of text"


@pytest.mark.parametrize("kind", KINDS)
def test_perplexity_of_held_out_sample_is_far_below_a_guess(llama: llama_cpp.Llama, kind: str) -> None:
    ids = llama.tokenize(sample(kind).encode(), add_bos=False, special=False)[:N_TOKENS]
    assert perplexity(llama, ids) < MAX_PERPLEXITY[kind]


def test_shuffled_text_is_harder_than_text(llama: llama_cpp.Llama) -> None:
    """The bound above is not met by letter counts alone: order matters to the model."""
    ids = llama.tokenize(sample("prose").encode(), add_bos=False, special=False)[:N_TOKENS]
    shuffled = [int(i) for i in np.random.default_rng(0).permutation(ids)]
    assert perplexity(llama, shuffled) > 10 * perplexity(llama, ids)


def test_card_describes_this_very_file() -> None:
    assert hashlib.sha256(MODEL.read_bytes()).hexdigest() in (DATA / "demo-card.md").read_text()


def test_licence_of_the_code_sample_lies_beside_it() -> None:
    assert "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2" in (DATA / "LICENSE-python.txt").read_text()
    assert "PSF-2.0" in (DATA / "demo-card.md").read_text()
