"""The tokeniser in every file: bytes as tokens, so that any text is an input. It knows no model.

From 256 tokens on: GPT-2's byte-level BPE without merges. The printable ASCII bytes come first, "!" is token 0; the last
two tokens are BOS and EOS (the bytes 0xFE and 0xFF, which no UTF-8 text contains, when there are exactly 256).
Below 256: llama.cpp's "test" tokeniser, which hashes every five bytes of text to a token and prints tokens in hex.
"""

from __future__ import annotations

from .archs import Keys
from .spec import Spec

PRINTABLE = range(33, 127)
BYTE_ORDER = [*PRINTABLE, *(b for b in range(256) if b not in PRINTABLE)]
NORMAL, CONTROL = 1, 3  # llama.cpp's token types


def tokenizer_keys(spec: Spec) -> Keys:
    """The tokenizer.ggml.* metadata."""
    if spec.n_vocab < 256:
        return {"tokenizer.ggml.model": "test", "tokenizer.ggml.tokens": [f"tok_{i}" for i in range(spec.n_vocab)]}
    specials = min(2, spec.n_vocab - 256)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": _byte_tokens() + _further_tokens(spec.n_vocab),
        "tokenizer.ggml.token_type": [NORMAL] * (spec.n_vocab - specials) + [CONTROL] * specials,
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": spec.n_vocab - 2,
        "tokenizer.ggml.eos_token_id": spec.n_vocab - 1,
        "tokenizer.ggml.add_bos_token": False,
    }


def token_of(byte: int) -> int:
    """The token id of a byte of text (vocabularies of 256 tokens and more)."""
    return BYTE_ORDER.index(byte)


def _byte_tokens() -> list[str]:
    """GPT-2's spelling: bytes without a printable Latin-1 character of their own are spelt from U+0100 on, in order of value."""
    own = {*PRINTABLE, *range(161, 173), *range(174, 256)}
    foreign = [b for b in range(256) if b not in own]
    return [chr(b) if b in own else chr(256 + foreign.index(b)) for b in BYTE_ORDER]


def _further_tokens(n_vocab: int) -> list[str]:
    words = [f"[{i}]" for i in range(256, n_vocab)]
    words[-2:] = ["<|bos|>", "<|eos|>"][-len(words) :] if words else []
    return words
