"""The optimiser: AdamW, with weight decay on matrices alone.

Steps and their sizes only; when the sizes change is decided by the schedule.
"""

from __future__ import annotations

from torch.optim import AdamW

from training.net import Net

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.1


def build_optimiser(net: Net, learning_rate: float) -> AdamW:
    matrices = [p for p in net.parameters() if p.ndim >= 2]
    vectors = [p for p in net.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return AdamW(groups, lr=learning_rate, betas=BETAS, fused=True)
