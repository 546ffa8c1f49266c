"""slotpool.load and slotpool.stats: what a caller gets, and what is refused in which words."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from pathlib import Path

import llama_cpp
import psutil
import pytest

import slotpool
from slotpool import engine, plan
from slotpool.errors import SlotpoolError
from testkit import syn

SMALL = syn.Spec(n_layer=2, n_expert=16, n_expert_used=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return syn.write(SMALL, tmp_path_factory.mktemp("models") / "small.gguf")


def test_load_returns_a_llama_whose_experts_are_pooled(model: Path) -> None:
    llm = slotpool.load(model, slots=8, n_ctx=64)
    assert isinstance(llm, llama_cpp.Llama)
    llm.eval([1])
    stats = slotpool.stats(llm)
    assert stats["pooled_tensors"] == stats["expert_tensors"] == 6
    assert stats["lookups"] == stats["misses"] == 2 * 4
    assert [tensor["state"] for tensor in stats["tensors"]] == ["pooled 8/16"] * 6
    llm.close()


def test_a_completion_works_as_in_llama_cpp_python(model: Path) -> None:
    llm = slotpool.load(model, slots="all", n_ctx=64)
    assert llm("ab", max_tokens=4, temperature=0)["usage"]["completion_tokens"] == 4
    assert slotpool.stats(llm)["lookups"] > 0
    llm.close()


def test_auto_is_off_with_a_reason_and_registers_nothing(model: Path) -> None:
    llm = slotpool.load(model, n_ctx=64)
    stats = slotpool.stats(llm)
    assert stats["pooled_tensors"] == stats["lookups"] == 0
    assert "no device" in stats["tensors"][0]["reason"]
    llm.close()


def test_fewer_slots_than_a_token_uses_is_an_error(model: Path) -> None:
    with pytest.raises(SlotpoolError, match=r"at least 4 slots.*found 3.*Try --slots 8"):
        slotpool.load(model, slots=3)


def test_fewer_slots_than_twice_a_token_is_a_warning(model: Path) -> None:
    with pytest.warns(UserWarning, match="5 slots are fewer than twice the 4"):
        slotpool.load(model, slots=5, n_ctx=64).close()


@pytest.mark.parametrize("slots", [-1, "some", 1.5, True, None])
def test_slots_that_are_no_slots_are_refused(model: Path, slots: object) -> None:
    with pytest.raises(SlotpoolError, match="expected slots as a number, all, auto or 0"):
        slotpool.load(model, slots=slots)  # type: ignore[arg-type]


def test_an_unknown_keyword_is_refused_with_the_nearest(model: Path) -> None:
    with pytest.raises(SlotpoolError, match=r"unknown keyword .n_contex.*Did you mean n_ctx"):
        slotpool.load(model, n_contex=64)


def test_an_unknown_policy_is_refused(model: Path) -> None:
    with pytest.raises(SlotpoolError, match=r"unknown policy .lruk."):
        slotpool.load(model, slots=8, policy="lruk")


def test_require_pool_fails_when_nothing_is_pooled(model: Path) -> None:
    with pytest.raises(SlotpoolError, match="found nothing: off: no device") as caught:
        slotpool.load(model, require_pool=True)
    assert caught.value.exit_code == 1


def test_every_keyword_of_llama_reaches_it(model: Path) -> None:
    llm = slotpool.load(model, slots=8, n_ctx=512, n_batch=32, n_ubatch=16, n_threads=1, logits_all=True, seed=7)
    assert (llm.n_ctx(), llm.n_batch, llm.context_params.n_ubatch, llm.n_threads) == (512, 32, 16, 1)
    llm.close()


def test_all_cores_by_default(model: Path) -> None:
    llm = slotpool.load(model, n_ctx=64)
    assert llm.n_threads == len(os.sched_getaffinity(0))
    llm.close()


@pytest.mark.parametrize("name", [b"caf\xe9.gguf", "gr\u00fc\u00dfe \u3000.gguf".encode(), b"a\nb.gguf"])
def test_odd_paths_open(model: Path, tmp_path: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    shutil.copy(model, path)
    llm = slotpool.load(os.fsdecode(path), slots=8, n_ctx=64)
    llm.eval([1])
    assert slotpool.stats(llm)["lookups"] == 8
    llm.close()


def test_shards_load_from_any_folder_name(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    shards = syn.write_shards(SMALL, folder / "m", 3)
    llm = slotpool.load(shards[0], slots=8, n_ctx=64)
    llm.eval([1])
    assert slotpool.stats(llm)["pooled_tensors"] == 6
    llm.close()


def test_a_damaged_file_is_refused_before_the_engine_sees_it(model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:-1000])
    with pytest.raises(SlotpoolError, match=r"slotpool inspect lists"):
        slotpool.load(cut, slots=8)


def test_what_the_engine_says_is_not_lost(tmp_path: Path) -> None:
    # a file that is sound but that no architecture of the engine can load
    path = syn.write(SMALL, tmp_path / "odd.gguf")
    data = path.read_bytes().replace(b"qwen3moe", b"qwen9moe")
    path.write_bytes(data)
    with pytest.raises(SlotpoolError, match=r"the engine could not load the model: .*unknown model architecture"):
        slotpool.load(path, slots=8)


def test_reset_counts_zeroes_the_counters_and_keeps_what_the_pool_holds(model: Path) -> None:
    llm = slotpool.load(model, slots=8, n_ctx=64)
    llm.eval([1])
    assert llm.slotpool_session is not None
    llm.slotpool_session.reset_counts()
    assert slotpool.stats(llm)["lookups"] == 0
    llm.reset()
    llm.eval([1])
    assert (slotpool.stats(llm)["hits"], slotpool.stats(llm)["misses"]) == (2 * 4, 0)
    llm.close()


def test_stats_want_a_model_of_load(model: Path) -> None:
    plain = llama_cpp.Llama(str(model), n_ctx=64, verbose=False)
    with pytest.raises(SlotpoolError, match=r"expected a model made by slotpool.load, found Llama"):
        slotpool.stats(plain)
    plain.close()


def test_stats_want_an_open_model(model: Path) -> None:
    llm = slotpool.load(model, slots=8, n_ctx=64)
    llm.close()
    with pytest.raises(SlotpoolError, match="found a closed one"):
        slotpool.stats(llm)


def test_closing_frees_the_slots(tmp_path: Path) -> None:
    spec = syn.Spec(n_layer=2, n_embd=512, n_ff_exp=512, n_expert=64, n_expert_used=8, types={"*": "F16"})
    path = syn.write(spec, tmp_path / "wide.gguf")  # 192 MiB of experts
    resident = psutil.Process().memory_info

    def used_and_freed() -> tuple[int, int]:
        before = resident().rss
        llm = slotpool.load(path, slots="all", n_ctx=128, use_mmap=False)
        llm.eval(list(range(96)))
        used = resident().rss - before
        assert slotpool.stats(llm)["misses"] > 50
        llm.close()
        del llm
        gc.collect()
        return used, resident().rss - before

    used, left = used_and_freed()
    assert used > 240 << 20  # the store and the slots that were filled
    assert left < 64 << 20


def test_two_models_keep_apart_and_one_may_close(model: Path, tmp_path: Path) -> None:
    other = syn.write(syn.Spec(n_layer=3, n_expert=8, n_expert_used=2, seed=5), tmp_path / "other.gguf")
    first, second = slotpool.load(model, slots=8, n_ctx=64), slotpool.load(other, slots=4, n_ctx=64)
    first.eval([1])
    second.eval([1, 2])
    assert slotpool.stats(first)["lookups"] == 2 * 4
    second.close()
    first.eval([3])
    assert slotpool.stats(first)["lookups"] == 2 * 8
    first.close()


def test_the_plan_of_a_dense_model_says_so() -> None:
    assert "dense" in plan.Plan().reason


def test_a_captured_log_is_not_kept_for_good() -> None:
    """A long session captures the engine's log many times; what was collected, and what collected it, goes."""
    collected = []
    for _ in range(200):
        with engine.captured_log() as lines:
            collected.append(lines)
    del lines
    kept = [one for one in collected if sys.getrefcount(one) > 3]  # the list, the loop's name, the question
    assert len(kept) <= 64
