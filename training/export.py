"""Writes the trained net as GGUF: an F32 file for checks, and the quantised file that is bundled.

Knows llama.cpp's names of keys and tensors; quantises with llama.cpp's own ggml. It trains and measures nothing.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

from training.net import Net, NetShape
from training.tokenizer import END_OF_TEXT, PRE_TOKENIZER
from training.train import load_net

ARCHITECTURE = "qwen3moe"
MAX_BYTES = 16_000_000
NAME = "slotpool demo"
LICENCE = "PSF-2.0"
DESCRIPTION = "Small mixture-of-experts model of King James prose and Python code, trained by slotpool's own script."

TENSOR_NAMES = {
    "attn_norm.weight": "attn_norm.weight",
    "attn.q.weight": "attn_q.weight",
    "attn.k.weight": "attn_k.weight",
    "attn.v.weight": "attn_v.weight",
    "attn.out.weight": "attn_output.weight",
    "attn.q_norm.weight": "attn_q_norm.weight",
    "attn.k_norm.weight": "attn_k_norm.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "experts.router.weight": "ffn_gate_inp.weight",
    "experts.gate": "ffn_gate_exps.weight",
    "experts.up": "ffn_up_exps.weight",
    "experts.down": "ffn_down_exps.weight",
}

Array = npt.NDArray[np.float32]


def write_f32(work: Path) -> Path:
    path = work / "demo-f32.gguf"
    net = load_net(work)
    writer = described_writer(path, net.shape, work / "tokenizer.json", gguf.LlamaFileType.ALL_F32)
    for name, values in named_tensors(net):
        writer.add_tensor(name, values)
    finish(writer)
    return path


def write_quantised(work: Path, path: Path) -> None:
    net = load_net(work)
    writer = described_writer(path, net.shape, work / "tokenizer.json", gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, values in named_tensors(net):
        kind = quantised_type(name)
        data = values if kind == Type.F32 else quantise(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    finish(writer)
    n_bytes = path.stat().st_size
    if n_bytes > MAX_BYTES:
        raise SystemExit(f"expected at most {MAX_BYTES} bytes in {path}, found {n_bytes}. Choose smaller types in quantised_type().")


def quantised_type(name: str) -> Type:
    """Norms and routers stay exact; the experts carry most of the bytes."""
    if "norm" in name or "ffn_gate_inp" in name:
        return Type.F32
    if "ffn_gate_exps" in name or "ffn_up_exps" in name:
        return Type.Q4_K
    return Type.Q6_K if "exps" in name else Type.Q8_0


def named_tensors(net: Net) -> Iterator[tuple[str, Array]]:
    """(llama.cpp's name, values); the output head is left out: llama.cpp takes the embedding for it."""
    yield "token_embd.weight", net.embedding.weight.detach().numpy()
    yield "output_norm.weight", net.norm.weight.detach().numpy()
    for i, block in enumerate(net.blocks):
        for name, values in block.named_parameters():
            yield f"blk.{i}.{TENSOR_NAMES[name]}", values.detach().numpy()


def described_writer(path: Path, shape: NetShape, tokenizer: Path, file_type: gguf.LlamaFileType) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    writer.add_name(NAME)
    writer.add_description(DESCRIPTION)
    writer.add_license(LICENCE)
    writer.add_license_name("PSF-2.0 (weights and code sample); the King James text is in the public domain. See demo-card.md.")
    writer.add_author("the slotpool project")
    writer.add_languages(["en"])
    writer.add_file_type(file_type)
    add_shape(writer, shape)
    add_vocabulary(writer, tokenizer)
    return writer


def add_shape(writer: gguf.GGUFWriter, shape: NetShape) -> None:
    writer.add_context_length(shape.n_ctx)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff_exp * shape.n_expert_used)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_key_length(shape.n_embd_head)
    writer.add_value_length(shape.n_embd_head)
    writer.add_rope_freq_base(shape.rope_freq_base)
    writer.add_layer_norm_rms_eps(shape.rms_eps)
    writer.add_expert_count(shape.n_expert)
    writer.add_expert_used_count(shape.n_expert_used)
    writer.add_expert_feed_forward_length(shape.n_ff_exp)


def add_vocabulary(writer: gguf.GGUFWriter, tokenizer: Path) -> None:
    model = json.loads(tokenizer.read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    end = model["vocab"][END_OF_TEXT]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if token == END_OF_TEXT else gguf.TokenType.NORMAL for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)


def finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantise(values: Array, kind: Type) -> npt.NDArray[np.uint8]:
    """Rows of `values` as blocks of `kind`, by the ggml that llama-cpp-python brings: (..., bytes of a row)."""
    n_row, n_per_row = int(np.prod(values.shape[:-1])), values.shape[-1]
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if n_per_row % block_size:
        raise SystemExit(f"expected rows of a multiple of {block_size} values for {kind.name}, found {n_per_row}. Choose another width.")
    out = np.empty((*values.shape[:-1], n_per_row // block_size * block_bytes), dtype=np.uint8)
    source = np.ascontiguousarray(values, dtype=np.float32)
    n_bytes = ggml_quantize_chunk()(kind.value, source.ctypes.data, out.ctypes.data, 0, n_row, n_per_row, None)
    if n_bytes != out.nbytes:
        raise SystemExit(f"expected {out.nbytes} bytes of {kind.name} from ggml_quantize_chunk, found {n_bytes}. Check its version.")
    return out


def ggml_quantize_chunk() -> Callable[..., int]:
    """size_t ggml_quantize_chunk(type, const float *, void *, int64 start, int64 n_row, int64 n_per_row, const float * imatrix)"""
    import llama_cpp

    library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    function: Any = library.ggml_quantize_chunk
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    function.restype = ctypes.c_size_t
    quantize_chunk: Callable[..., int] = function
    return quantize_chunk
