"""What a report comes to: exact, equivalent or different, why, and whether that is what was expected.

Pure. The bounds of `equivalent` and where they come from stand here and in docs/design/drift.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from slotpool.drift.facts import Report, Share

EXACT, EQUIVALENT, DIFFERENT = "exact", "equivalent", "different"
EXPECTATIONS = (EXACT, EQUIVALENT)

KLD_MEAN = 1.4e-3
"""nats: what Q8_0, which is used as if it were lossless, does to a model of F16 (0.001355 for an 8B model: llama.cpp,
tools/perplexity/README.md). Rows of another kernel differ in their last bits, and a router's near ties may then fall the other way."""
KLD_P99 = 1.4e-2
"""nats: ten times the mean, the ratio that mere rounding has (BF16 against FP16: 0.000025 and 0.00022, same source)."""
TOP1_SHARE = 0.023
"""Of the tokens, those whose most likely successor changed: Q8_0 changes 2.3 % (same source)."""
OWN_SHARE = 2.0
"""Times the placement's own mean: computing some rows on the CPU should not move more than computing all of them there does."""


@dataclass(frozen=True)
class Verdict:
    """`verdict` is exact, equivalent or different, and `reason` a sentence. `expected` is what was asked for, or what the pool promises."""

    verdict: str
    reason: str
    expected: str

    @property
    def is_met(self) -> bool:
        """Whether it is at least as good as what was expected."""
        return self.verdict == EXACT or (self.verdict == EQUIVALENT and self.expected == EQUIVALENT)


def judge(report: Report, expected: str | None = None) -> Verdict:
    """The verdict; without `expected` it is what the pool's stats promise of this run."""
    promised = EXACT if report.stats["exact"] else EQUIVALENT
    verdict, reason = _verdict(report, promised)
    return Verdict(verdict, reason, expected or promised)


def _verdict(report: Report, promised: str) -> tuple[str, str]:
    share = report.pool or report.total
    is_promised = promised == EXACT and report.pool is not None
    if share.n_not_finite:
        return DIFFERENT, f"{share.n_not_finite} tokens have logits that are no numbers"
    if is_promised and share.first_difference:
        return DIFFERENT, f"the same kernels computed every row, and the bits differ {share.first_difference.place}"
    return _of_prompts(report) or _measured(report, share)


def _of_prompts(report: Report) -> tuple[str, str] | None:
    """What is wrong with the prompts. On a device they may be computed elsewhere than plain llama.cpp does, so that it is no measure."""
    prompts = report.prompts
    if prompts and not prompts.is_same_after:
        return DIFFERENT, f"chunk {prompts.first_different_chunk} of the prompts is not the same after the pool was filled"
    if prompts and not prompts.is_plain and report.placement is None and report.pool:
        return DIFFERENT, "prompts are not those of plain llama.cpp on the same kernels"
    return None


def _measured(report: Report, share: Share) -> tuple[str, str]:
    if share.is_exact:
        return EXACT, f"all logits of {share.n_tokens} tokens are those of plain llama.cpp, bit by bit"
    broken = bounds_broken(share, report.placement)
    if broken:
        return DIFFERENT, "; ".join(broken)
    whose = "the pool's share" if report.pool else "pool and placement together"
    return EQUIVALENT, f"{whose} is within the bounds of other kernels' rounding"


def bounds_broken(share: Share, placement: Share | None) -> list[str]:
    """The bounds of `equivalent` that a share breaks, in words. The mean's grows with a placement that moves more by itself."""
    mean = max(KLD_MEAN, OWN_SHARE * placement.kld.mean if placement else 0.0)
    p99 = max(KLD_P99, OWN_SHARE * placement.kld.p99 if placement else 0.0)
    flips = max(TOP1_SHARE * share.n_tokens, OWN_SHARE * placement.top1_flips if placement else 0.0, 1.0)
    found = []
    if share.kld.mean > mean:
        found.append(f"mean KL divergence {share.kld.mean:.2g}, at most {mean:.2g}")
    if share.kld.p99 > p99:
        found.append(f"p99 of the KL divergence {share.kld.p99:.2g}, at most {p99:.2g}")
    if share.top1_flips > flips:
        found.append(f"{share.top1_flips} top-1 flips of {share.n_tokens} tokens, at most {flips:.0f}")
    return found
