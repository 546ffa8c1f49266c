"""Perplexity of the bundled model in chunks of 512: streamed prompts against llama.cpp's own path, chunk by chunk, on the same device.

The device signs its rows with its name and the shape of the call: equal logits mean the same device and the same shapes everywhere.
Sixteen chunks, of both kinds of text.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from llama_cpp import Llama

from testkit.oracle import DeviceProcess, Oracle, Setup, plan_on, total
from testkit.oracle.chunks import Chunk, plain_chunks, pooled_chunks

N_CHUNKS, N_BATCH, N_LAYER_CHUNKS = 16, 512, 8
DATA = Path(str(resources.files("slotpool") / "data"))
MODEL = DATA / "demo.gguf"
STOCK = Setup(n_gpu_layers=99, n_ctx=N_BATCH, n_ubatch=N_BATCH, placed=(("ffn_.*_exps", "CPU"),))
STREAMED = Setup(n_gpu_layers=99, n_ctx=N_BATCH, n_ubatch=N_BATCH)


@pytest.fixture(scope="module")
def chunks() -> list[tuple[int, ...]]:
    """Half prose, half code, in turns."""
    vocabulary = Llama(str(MODEL), vocab_only=True, verbose=False)
    texts = [vocabulary.tokenize((DATA / name).read_bytes(), add_bos=False) for name in ("prose.txt", "code.txt")]
    found = []
    for index in range(N_CHUNKS):
        text = texts[index % 2]
        first = (index // 2) * (len(text) - N_BATCH) // (N_CHUNKS // 2)
        found.append(tuple(text[first : first + N_BATCH]))
    assert {len(chunk) for chunk in found} == {N_BATCH}
    return found


@pytest.fixture(scope="module")
def stock(signed_oracle: Oracle, chunks: list[tuple[int, ...]]) -> list[Chunk]:
    """llama.cpp's own path, which really computes experts on the device."""
    found = signed_oracle.call(plain_chunks, MODEL, STOCK, chunks)
    counters = signed_oracle.chaos_counters()
    assert counters.expert_rows > 0
    assert counters.to_device_weights_async_bytes + counters.to_device_other_async_bytes > 0
    return found


@pytest.mark.parametrize("n_slots", [8, 16])
def test_perplexity_is_equal_chunk_by_chunk(n_slots: int, chunks: list[tuple[int, ...]], stock: list[Chunk], signed: DeviceProcess) -> None:
    found, run = signed.call(pooled_chunks, MODEL, plan_on(MODEL, n_slots, prefill="stream"), STREAMED, chunks)
    assert found == stock
    assert np.isfinite([chunk.perplexity for chunk in found]).all()
    _, prompted, refused = total(run.counts)
    assert (prompted.events, refused, prompted.rows_cpu) == (N_CHUNKS * len(run.counts), 0, 0)
    assert prompted.hits >= (N_CHUNKS - 1) * len(run.counts)  # residents of the first chunk are found in all others
    assert (run.hazard, run.counters[0].failures) == ("", 0)


def test_perplexity_is_equal_after_decoding_has_churned_the_pool(
    chunks: list[tuple[int, ...]], stock: list[Chunk], signed: DeviceProcess
) -> None:
    """Tokens of another text before every chunk, misses copied: slots change hands all the time, poisoned in between."""
    decoded = chunks[-1][:24]
    found, run = signed.call(pooled_chunks, MODEL, plan_on(MODEL, 8, prefill="stream"), STREAMED, chunks, decoded)
    assert found == stock
    generated, prompted, refused = total(run.counts)
    assert sum(group.evicted for group in run.counts) > 0
    assert generated.lookups > 0
    assert (prompted.events, refused) == (N_CHUNKS * len(run.counts), 0)


def test_auto_streams_what_llama_cpp_offloads(chunks: list[tuple[int, ...]], stock: list[Chunk], signed: DeviceProcess) -> None:
    found, run = signed.call(pooled_chunks, MODEL, plan_on(MODEL, 8, prefill="auto"), STREAMED, chunks[:3])
    assert found == stock[:3]
    assert total(run.counts)[1].events == 3 * len(run.counts)


def test_a_shape_that_is_not_kept_would_show(chunks: list[tuple[int, ...]], stock: list[Chunk], signed_oracle: Oracle) -> None:
    """The same chunk in ubatches of 256: the same sums, another signature."""
    half = Setup(n_gpu_layers=99, n_ctx=N_BATCH, n_ubatch=N_BATCH // 2, placed=STOCK.placed)
    (found,) = signed_oracle.call(plain_chunks, MODEL, half, chunks[:1])
    assert found.digest != stock[0].digest
