"""Trains the net within a budget of wall-clock minutes and keeps a checkpoint and a record of the run.

Needs the corpus and the tokenizer; it exports nothing.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import json
import math
import platform
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from training.batches import Batches
from training.corpus import KINDS, Document, corpus_digest, load_corpus
from training.net import Net, NetShape
from training.optimiser import build_optimiser
from training.schedule import Schedule
from training.tokenizer import Tokens, encode_kind, load_tokenizer
from training.workers import Report, Workers

SEED = 20261129
N_ROWS, N_PROSE = 8, 3
LEARNING_RATE = 4e-3
BALANCE, Z = 0.01, 1e-4  # weights of the routers' losses; small, so that experts may prefer a kind of text
N_EVAL_ROWS = 16
CHECKPOINT_SECONDS = 240.0


@dataclass
class Run:
    """The record of a training run, as `run.json` keeps it."""

    seed: int = SEED
    corpus_sha256: str = ""
    n_train_tokens: dict[str, int] = field(default_factory=dict)
    tokens_per_step: int = 0
    learning_rate: float = LEARNING_RATE
    step: int = 0
    seconds: float = 0.0
    schedule: dict[str, Any] = field(default_factory=dict)
    torch: str = str(torch.__version__)
    python: str = platform.python_version()
    n_threads: int = 0
    resumed_at: list[int] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)


class Trainer:
    """One run: `train()` steps until the schedule says stop; `save()` may be called at any time."""

    def __init__(self, folder: Path, schedule: Schedule, n_threads: int) -> None:
        torch.manual_seed(SEED)
        self.folder = folder
        self.schedule = schedule
        self.shape = NetShape()
        self.net = Net(self.shape)
        self.workers = Workers(self.net, compute_gradients, n_threads)
        self.optimiser = build_optimiser(self.net, LEARNING_RATE)
        documents = load_corpus(folder)
        training, self.held_out = token_arrays(folder, documents)
        self.batches = Batches(training["prose"], training["code"], self.shape.n_ctx, N_ROWS, N_PROSE, SEED)
        self.run = Run(
            corpus_sha256=corpus_digest(documents),
            n_train_tokens={kind: len(tokens) for kind, tokens in training.items()},
            tokens_per_step=N_ROWS * self.shape.n_ctx,
            n_threads=n_threads,
        )

    def train(self) -> None:
        started = time.monotonic() - self.run.seconds
        saved = self.run.seconds
        while self.schedule.progress(self.run.step, self.run.seconds) < 1.0:
            report = self.step()
            self.run.seconds = time.monotonic() - started
            if self.run.step % 20 == 0:
                self.log(report)
            if self.run.seconds - saved >= CHECKPOINT_SECONDS:
                saved = self.run.seconds
                self.save()
        self.save()

    def step(self) -> Report:
        rate = self.schedule.rate(self.run.step, self.run.seconds)
        for group in self.optimiser.param_groups:
            group["lr"] = LEARNING_RATE * rate
        report = self.workers.compute_gradients(*next(self.batches))
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.run.step += 1
        return {**report, "norm": norm.item(), "rate": rate}

    def log(self, report: Report) -> None:
        line = {"step": float(self.run.step), "seconds": self.run.seconds, **report}
        self.run.history.append({key: round(value, 4) for key, value in line.items()})
        print(" ".join(f"{key} {value:.6g}" for key, value in line.items()), flush=True)

    def save(self) -> None:
        losses = {f"held_out_{kind}": mean_loss(self.net, self.held_out[kind], N_EVAL_ROWS) for kind in KINDS}
        self.log(losses)
        self.run.schedule = asdict(self.schedule)
        state = {
            "net": self.net.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "shape": asdict(self.shape),
            "run": asdict(self.run),
        }
        torch.save(state, self.folder / "model.pt.new")
        (self.folder / "model.pt.new").replace(self.folder / "model.pt")
        (self.folder / "run.json").write_text(json.dumps(asdict(self.run), indent=1))

    def resume(self) -> None:
        """Goes on from the last checkpoint, under the schedule that this trainer was given."""
        state = load_checkpoint(self.folder)
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.run = Run(**state["run"])
        self.run.resumed_at.append(self.run.step)
        self.batches.skip(self.run.step)


def compute_gradients(net: Net, inputs: Tensor, targets: Tensor) -> Report:
    logits, routing = net(inputs)
    loss = token_loss(logits, targets)
    balance, z = (torch.stack(losses).mean() for losses in (routing.balance, routing.z))
    (loss + BALANCE * balance + Z * z).backward()
    return {"loss": loss.item(), "balance": balance.item(), "z": z.item()}


def token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean nats per token; (rows, n_ctx, n_vocab) and (rows, n_ctx)."""
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def token_arrays(folder: Path, documents: list[Document]) -> tuple[dict[str, Tokens], dict[str, Tokens]]:
    """(training, held out), each kind -> tokens."""
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    training, held_out = ({kind: encode_kind(tokenizer, documents, kind, is_held_out) for kind in KINDS} for is_held_out in (False, True))
    return training, held_out


@torch.inference_mode()
def mean_loss(net: Net, tokens: Tokens, n_rows: int | None = None) -> float:
    """Nats per token over `n_rows` windows spread over the tokens; over all windows for None."""
    rows = torch.from_numpy(spread_windows(tokens, net.shape.n_ctx + 1, n_rows).astype(np.int64))
    losses = [token_loss(net(part[:, :-1])[0], part[:, 1:]).item() * len(part) for part in rows.split(8)]
    return math.fsum(losses) / len(rows)


def spread_windows(tokens: Tokens, length: int, n_rows: int | None = None) -> Tokens:
    """(n_rows, length): windows that do not overlap, at even distances; as many as there are for None."""
    n_windows = len(tokens) // length
    windows = tokens[: n_windows * length].reshape(n_windows, length)
    return windows if n_rows is None else windows[np.linspace(0, n_windows - 1, min(n_rows, n_windows)).astype(int)]


def load_checkpoint(folder: Path) -> dict[str, Any]:
    path = folder / "model.pt"
    if not path.exists():
        raise SystemExit(f"expected a checkpoint at {path}, found nothing. Run: python -m training train --work {folder}")
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state


def load_net(folder: Path) -> Net:
    state = load_checkpoint(folder)
    net = Net(NetShape(**state["shape"]))
    net.load_state_dict(state["net"])
    return net.eval()
