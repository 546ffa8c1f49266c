"""Two files against each other, and how texts are cut into chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slotpool.drift.files import compared_files, difference
from slotpool.drift.prompts import chunks_of
from slotpool.model import read
from testkit import syn

SPEC = syn.Spec(n_layer=2, n_expert=8, n_expert_used=2)


def changed(path: Path, to: Path, *offsets: int) -> Path:
    content = bytearray(path.read_bytes())
    for offset in offsets:
        content[offset] ^= 1
    to.write_bytes(content)
    return to


def test_equal_files_do_not_differ(model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    path = model_file(SPEC)
    assert difference(read(path), read(changed(path, tmp_path / "copy.gguf"))) == (0, None)


def test_one_changed_byte_is_found_with_its_tensor_and_expert(model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    path = model_file(SPEC)
    tensor = next(one for one in read(path).experts if one.role == "up" and one.layer == 1)
    offset = tensor.offset + 5 * tensor.slab_bytes + 3
    made = compared_files(read(path), read(changed(path, tmp_path / "b.gguf", offset)))
    assert (made["differ"], made["first"]) == (1, f"byte {offset}, in {tensor.name}, expert 5")
    assert made["model"]["fingerprint"] == made["against"]["fingerprint"]


def test_a_missing_end_differs_byte_by_byte(model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    path, shorter = model_file(SPEC), tmp_path / "short.gguf"
    content = path.read_bytes()
    shorter.write_bytes(content[:-100])
    assert difference(read(path), read(shorter))[0] == 100
    assert difference(read(shorter), read(path))[0] == 100


def test_many_changed_bytes_are_counted(model_file: Callable[[syn.Spec], Path], tmp_path: Path) -> None:
    path = model_file(SPEC)
    size = path.stat().st_size
    assert difference(read(path), read(changed(path, tmp_path / "b.gguf", size - 1, size - 7, size - 5000)))[0] == 3


def test_the_same_file_is_not_read_twice(model_file: Callable[[syn.Spec], Path]) -> None:
    facts = read(model_file(SPEC))
    assert compared_files(facts, facts)["against"] is None


def test_chunks_take_texts_in_turn() -> None:
    texts = [list(range(1200)), list(range(2000, 2600))]
    assert [(chunk[0], len(chunk)) for chunk in chunks_of(texts, 9, 512)] == [(0, 512), (2000, 512), (512, 512), (2512, 88), (1024, 176)]
    assert [chunk[0] for chunk in chunks_of(texts, 2, 512)] == [0, 2000]


def test_chunks_fit_the_context_and_are_long_enough_to_predict() -> None:
    assert [len(chunk) for chunk in chunks_of([list(range(67))], 9, 32)] == [32, 32]
    assert chunks_of([[1, 2, 3]], 5, 512) == []
    assert chunks_of([], 5, 512) == []
