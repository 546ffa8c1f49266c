"""A report and its verdict as the JSON document of `slotpool drift --json` (docs/design/drift.md).

Only names things; every number is the report's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from slotpool.drift.facts import CHUNK, Prompts, Report, Share, TextDrift
from slotpool.drift.numbers import Ppl
from slotpool.drift.verdict import Verdict

KERNELS = "the file's own layout in every arm (CPU_REPACK off): the same kernels, token by token"


def document(report: Report, verdict: Verdict) -> dict[str, Any]:
    """`tokens`, `kld` and `top1_flips` are those of the pool against plain llama.cpp on the CPU, all texts together."""
    return {
        "tokens": report.n_tokens,
        "kld": asdict(report.total.kld),
        "top1_flips": report.total.top1_flips,
        "pool_share": _pool_share(report),
        "placement": _share(report.placement) if report.placement else None,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "expected": verdict.expected,
        "is_met": verdict.is_met,
        "texts": [_text(text) for text in report.texts],
        "prompts": _prompts(report.prompts) if report.prompts else None,
        "arms": [asdict(arm) for arm in report.arms],
        "evictions": report.counts.evicted,
        "steps": report.counts.n_steps,
        "steps_with_evictions": report.counts.n_steps_evicting,
        "damaged": report.damaged,
        "kernels": KERNELS,
        "engine": report.engine,
        "threads": report.n_threads,
        "ctx": report.n_ctx,
        "files": dict(report.files),
        "stats": dict(report.stats),
    }


def _pool_share(report: Report) -> dict[str, Any]:
    """Nulls with a reason where plain llama.cpp did not run on the device."""
    if report.pool is None:
        return {"kld_max": None, "first_difference": None, "reason": report.why_no_device}
    return {"kld_max": report.pool.kld.max, **_share(report.pool)}


def _share(share: Share) -> dict[str, Any]:
    return {
        "kld": asdict(share.kld),
        "top1_flips": share.top1_flips,
        "tokens_that_differ": share.n_different,
        "tokens_not_finite": share.n_not_finite,
        "largest_logit_difference": share.largest,
        "first_difference": asdict(share.first_difference) if share.first_difference else None,
    }


def _text(text: TextDrift) -> dict[str, Any]:
    return {
        "name": text.name,
        "tokens": text.n_tokens,
        "tokens_of_text": text.n_tokens_of_text,
        "ppl": _perplexities(text.ppl),
        "kld": asdict(text.total.kld),
        "top1_flips": text.total.top1_flips,
        "pool_share": {"kld_max": text.pool.kld.max, "first_difference": _share(text.pool)["first_difference"]},
    }


def _prompts(prompts: Prompts) -> dict[str, Any]:
    return {
        "chunks": prompts.n_chunks,
        "chunk_tokens": CHUNK,
        "tokens": prompts.n_tokens,
        "ppl": _perplexities(prompts.before),
        "same_after": prompts.is_same_after,
        "same_as_plain": prompts.is_plain,
        "first_different_chunk": prompts.first_different_chunk,
    }


def _perplexities(found: Mapping[str, Ppl]) -> dict[str, Any]:
    return {arm: asdict(ppl) for arm, ppl in found.items()}
