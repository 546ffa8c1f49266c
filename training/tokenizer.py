"""A byte-level BPE vocabulary that llama.cpp reads as type "gpt2" with the pre-tokenizer "qwen2".

Trains and loads it, and turns documents into one array of token ids per kind. It does not decide what is held out.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from training.corpus import Document, select

N_VOCAB = 4096
END_OF_TEXT = "<|endoftext|>"
PRE_TOKENIZER = "qwen2"  # the name in the GGUF; the expression below is the one llama.cpp documents for it
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

Tokens = npt.NDArray[np.uint16]


def train_tokenizer(documents: Iterable[Document], path: Path) -> Tokenizer:
    """Learns N_VOCAB tokens from the documents that are not held out; every byte is a token, so nothing is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=N_VOCAB,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=16,
        show_progress=False,
    )
    texts = (d.text for d in documents if not d.is_held_out)
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != N_VOCAB:
        raise SystemExit(f"expected {N_VOCAB} tokens, found {tokenizer.get_vocab_size()}. Give it more text, or lower N_VOCAB.")
    tokenizer.save(str(path))
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    if not path.exists():
        raise SystemExit(f"expected the tokenizer at {path}, found nothing. Run: python -m training corpus --work {path.parent}")
    return Tokenizer.from_file(str(path))


def encode_kind(tokenizer: Tokenizer, documents: Iterable[Document], kind: str, held_out: bool) -> Tokens:
    """The documents' tokens one after the other, END_OF_TEXT after each."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    encodings = tokenizer.encode_batch([d.text for d in select(documents, kind, held_out)])
    return np.concatenate([np.array([*encoding.ids, end], dtype=np.uint16) for encoding in encodings])
