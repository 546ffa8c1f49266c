"""The gradient of a batch, shared out over processes of one thread each that use one set of weights.

Threads inside a matmul wait for each other thousands of times a step; these wait once. On a busy machine that is a third of the time.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from training.net import Net

Report = dict[str, float]
Compute = Callable[[Net, Tensor, Tensor], Report]  # adds to the net's gradients, returns means to log


class Workers:
    """`n` of them, this process being the first. The split of the rows is fixed, so the sum of gradients is the same every time."""

    def __init__(self, net: Net, compute: Compute, n: int) -> None:
        torch.set_num_threads(1)
        self.net = net.share_memory()
        self.compute = compute
        self.n = n
        self.replicas = [Replica(self.net, compute) for _ in range(n - 1)]

    def compute_gradients(self, inputs: Tensor, targets: Tensor) -> Report:
        """Leaves the mean gradient of all rows in the net; the rows must be a multiple of n."""
        for i, replica in enumerate(self.replicas, start=1):
            replica.start(inputs[i :: self.n], targets[i :: self.n])
        reports = [self.compute(self.net, inputs[:: self.n], targets[:: self.n])]
        reports += [replica.finish() for replica in self.replicas]
        for p in self.net.parameters():
            if p.grad is not None:
                p.grad.div_(self.n)
        return {key: sum(report[key] for report in reports) / self.n for key in reports[0]}


class Replica:
    """A forked process that computes the gradient of some rows into shared memory."""

    def __init__(self, net: Net, compute: Compute) -> None:
        self.net = net
        self.gradients = [torch.zeros_like(p).share_memory_() for p in net.parameters()]
        context = multiprocessing.get_context("fork")
        self.pipe, remote = context.Pipe()
        context.Process(target=serve, args=(remote, net, compute, self.gradients), daemon=True).start()
        remote.close()

    def start(self, inputs: Tensor, targets: Tensor) -> None:
        self.pipe.send((inputs.numpy(), targets.numpy()))

    def finish(self) -> Report:
        """Adds this replica's gradients to the net's."""
        report: Report = self.pipe.recv()
        for p, gradient in zip(self.net.parameters(), self.gradients, strict=True):
            p.grad = gradient.clone() if p.grad is None else p.grad.add_(gradient)
        return report


def serve(pipe: Connection, net: Net, compute: Compute, gradients: list[Tensor]) -> None:
    while True:
        try:
            inputs, targets = pipe.recv()
        except EOFError:
            return
        net.zero_grad()
        report = compute(net, torch.from_numpy(inputs), torch.from_numpy(targets))
        for p, gradient in zip(net.parameters(), gradients, strict=True):
            gradient.zero_() if p.grad is None else gradient.copy_(p.grad)
        pipe.send(report)
