"""LoRA adapters of experts that lie on disk: the adapter's tensors are held in memory, and the logits are plain's with the adapter."""

from __future__ import annotations

from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import pytest

from slotpool import loading, model
from tests.disk.conftest import CONTEXT, SMALL, Plain
from tests.disk.watch import PROMPT, STEPS, digest, logits

RANK = 4


@pytest.fixture(scope="module")
def adapter(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of rank 4 on every expert tensor, each expert with factors of its own."""
    path = tmp_path_factory.mktemp("adapter") / "lora.gguf"
    random = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, SMALL.arch)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    for tensor in model.read(small).experts:
        n_in, n_out = (SMALL.n_ff_exp, SMALL.n_embd) if tensor.role == "down" else (SMALL.n_embd, SMALL.n_ff_exp)
        factors = {"lora_a": (SMALL.n_expert, RANK, n_in), "lora_b": (SMALL.n_expert, n_out, RANK)}
        for name, shape in factors.items():
            writer.add_tensor(f"{tensor.name}.{name}", random.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("slots", [5, 8, "all"])
@pytest.mark.filterwarnings("ignore:.*fewer than twice.*:UserWarning")
def test_an_adapter_on_experts_gives_the_logits_of_plain_with_it(small: Path, adapter: Path, plain: Plain, slots: int | str) -> None:
    steps = (*STEPS, (9,), PROMPT[::-1], (8,))
    options = CONTEXT | {"lora_path": str(adapter), "lora_scale": 0.5}
    whole = loading.load(small, 0, **options)
    expected = digest(logits(whole, steps))
    whole.close()
    assert expected != plain(small, steps), "the adapter does nothing"
    llm = loading.load(small, slots, ram_budget="auto", poison=True, **options)
    for _ in range(2):
        assert digest(logits(llm, steps)) == expected
    assert llama_cpp.llama_set_adapters_lora(llm.ctx, None, 0, None) == 0
    assert digest(logits(llm, steps)) == plain(small, steps)
    stats = loading.read_stats(llm)
    llm.close()
    assert stats["pooled_tensors"] == 3 * SMALL.n_layer
    assert stats["lookups"] > 0
    assert stats["store"] == "disk"
