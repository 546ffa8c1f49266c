"""Judges what was read: would llama.cpp load it? Each rule adds its problems to the findings.

Does not read files. The rules are those of llama.cpp (gguf.cpp, llama-model-loader.cpp, llama-model.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence

from slotpool.errors import quoted
from slotpool.model.experts import is_single_expert
from slotpool.model.facts import ExpertTensor, GgufFile, Tensor, by_layer
from slotpool.model.findings import Findings


def file_problems(file: GgufFile) -> tuple[str, ...]:
    """Problems of one file by itself: those of its header, then of the places of its tensors."""
    findings = Findings()
    _find_truncated(file, findings)
    overlapping = _find_overlaps(file.tensors, findings)
    _find_misplaced(file, overlapping, findings)
    return (*file.problems, *findings.texts())


def _find_truncated(file: GgufFile, findings: Findings) -> None:
    cut = [tensor for tensor in file.tensors if tensor.offset + tensor.n_bytes > file.size]
    for tensor in cut:
        end = tensor.offset + tensor.n_bytes
        n_missing = min(tensor.n_bytes, end - file.size)
        found = f"the file ends at byte {file.size}, the tensor at {end}"
        text = f"truncated: {quoted(tensor.name)} lacks {n_missing} of its {tensor.n_bytes} bytes ({found}). Download the file again"
        findings.add("truncated", text)


def _find_overlaps(tensors: Sequence[Tensor], findings: Findings) -> set[str]:
    """The names of tensors that share bytes with an earlier one."""
    overlapping: set[str] = set()
    last: Tensor | None = None
    for tensor in sorted((t for t in tensors if t.n_bytes), key=lambda t: t.offset):
        n_shared = last.offset + last.n_bytes - tensor.offset if last else 0
        if last and n_shared > 0:
            overlapping |= {last.name, tensor.name}
            findings.add("overlap", f"{quoted(tensor.name)} and {quoted(last.name)} overlap in {min(n_shared, tensor.n_bytes)} bytes")
        if last is None or tensor.offset + tensor.n_bytes > last.offset + last.n_bytes:
            last = tensor
    return overlapping


def _find_misplaced(file: GgufFile, overlapping: set[str], findings: Findings) -> None:
    # llama.cpp takes tensors only one after the other, padded to the alignment
    expected: int | None = file.data_offset
    for tensor in file.tensors:
        if tensor.offset % file.alignment:
            findings.add("misaligned", f"{quoted(tensor.name)} is misaligned: byte {tensor.offset} is no multiple of {file.alignment}")
        elif expected not in (None, tensor.offset) and tensor.name not in overlapping:
            findings.add("order", f"{quoted(tensor.name)} lies at byte {tensor.offset}, llama.cpp expects it at {expected}")
        end = tensor.offset + tensor.n_bytes
        is_reliable = tensor.is_sized and tensor.name not in overlapping
        expected = end + -end % file.alignment if is_reliable else None


def name_problems(files: Sequence[GgufFile]) -> tuple[str, ...]:
    """Tensor names that are there twice, in one file or in two, and names of the layout of 2023."""
    findings = Findings()
    seen: set[str] = set()
    for name in (tensor.name for file in files for tensor in file.tensors):
        if name in seen:
            findings.add("duplicate", f'the tensor name "{quoted(name)}" is there twice, which llama.cpp refuses')
        seen.add(name)
    return (*findings.texts(), *_legacy(sorted(name for name in seen if is_single_expert(name))))


def _legacy(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    which = f"{len(names)} tensors, {names[0]} the first"
    do = "Convert the original model again with convert_hf_to_gguf.py, or download a file made after April 2024"
    return (f"legacy per-expert layout, current llama.cpp cannot load it ({which}). {do}",)


def expert_problems(experts: Sequence[ExpertTensor], first: GgufFile, architecture: str) -> tuple[str, ...]:
    """Numbers of experts that do not fit each other, or the metadata of `first`, the file that describes the model."""
    findings = Findings()
    for layer, tensors in by_layer(experts).items():
        _find_disagreeing(layer, [t for t in tensors if not t.is_chunk], findings)
        _find_disagreeing(layer, [t for t in tensors if t.is_chunk], findings)
    for tensor in experts:
        if tensor.ne[3] != 1:
            findings.add("shape", f"{tensor.name} has the shape {list(tensor.ne)}, expected three dimensions")
    if first.is_complete and first.shard == 0:
        _find_miscounted(experts, first, architecture, findings)
    return findings.texts()


def _find_disagreeing(layer: int, tensors: Sequence[ExpertTensor], findings: Findings) -> None:
    if len({tensor.n_expert for tensor in tensors}) > 1:
        counts = ", ".join(f"{tensor.role} {tensor.n_expert}" for tensor in tensors)
        findings.add("disagree", f"the expert tensors of layer {layer} disagree about the number of experts ({counts})")


def _find_miscounted(experts: Sequence[ExpertTensor], first: GgufFile, architecture: str, findings: Findings) -> None:
    count_key, used_key, layers_key = (f"{architecture}.{key}" for key in ("expert_count", "expert_used_count", "block_count"))
    count, used = first.number(count_key) or 0, first.number(used_key) or 0
    if used > count:
        findings.add("used", f"{quoted(used_key)} is {used}, more than the {count} of {quoted(count_key)}")
    if not experts:
        return
    # without these llama.cpp refuses the file or stops the process
    for key in (count_key, used_key, layers_key):
        if not first.number(key):
            findings.add("key", f"{experts[0].name} holds experts, but {quoted(key)} is missing or 0")
    for tensor in experts:
        if count and not tensor.is_chunk and tensor.n_expert != count:
            findings.add("count", f"{tensor.name} has {tensor.n_expert} experts, {quoted(count_key)} says {count}")
