"""Runs the arms in lockstep over the texts: a block of tokens each in turn, whose logits are compared and forgotten.

Memory holds one block of logits an arm. What the numbers mean is `verdict`'s to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from slotpool import engine, model
from slotpool.drift.compare import Comparison
from slotpool.drift.facts import BLOCK, CPU, DEVICE, POOL, Arm, ArmSpec, Chunk, Difference, Report, Settings, Text
from slotpool.drift.files import compared_files
from slotpool.drift.numbers import Logits
from slotpool.drift.process import ArmProcess
from slotpool.drift.prompts import chunks_of, judged_prompts
from slotpool.errors import REFUSED, SlotpoolError, printable
from slotpool.model import Model

Progress = Callable[[int, int, str], None]
"""Tokens done by all arms, all of them, and what is going on."""


def measure(
    path: str | os.PathLike[str], texts: Sequence[Text], settings: Settings, on_progress: Progress = lambda done, total, what: None
) -> Report:
    """Runs MODEL plain and pooled over `texts` and returns what differs.

    Raises SlotpoolError for a model or a text that cannot be used, an arm that fails, nothing pooled, a pool without a single lookup
    and a reference with the core in it.
    """
    facts = _readable(path)
    _check(facts, path, texts, settings)
    with ExitStack() as stack:
        arms = _Arms(stack, facts, settings)
        return _Run(arms, facts, texts, settings, on_progress).report()


def _readable(path: str | os.PathLike[str]) -> Model:
    facts = model.read(Path(os.fsdecode(path)))
    if facts.problems:
        raise SlotpoolError(facts.problems[0], where=printable(path), do="slotpool inspect lists all problems of the file.")
    return facts


def _check(facts: Model, path: str | os.PathLike[str], texts: Sequence[Text], settings: Settings) -> None:
    if not facts.experts:
        raise SlotpoolError("expected a model with experts, found a dense one", where=printable(path))
    if not texts:
        raise SlotpoolError("expected a text, found none", where="--file")
    if settings.pool.get("slots") == 0:
        raise SlotpoolError("expected a pool to compare with plain llama.cpp, found it off", where="--slots")


class _Arms:
    """The arms that there are, started one after the other: plain on the CPU, the pool, and plain on the devices where slots are."""

    def __init__(self, stack: ExitStack, facts: Model, settings: Settings) -> None:
        self._facts, self._settings = facts, settings
        reference = facts if settings.against is None else _readable(settings.against)
        self.reference = reference
        self.running: dict[str, ArmProcess] = {}
        self.why_no_device = ""
        # servers of RPC take one client at a time: not this one, which does not need them
        self.running[CPU] = stack.enter_context(ArmProcess(self._spec(CPU, reference)))
        self.running[POOL] = stack.enter_context(ArmProcess(self._spec(POOL, facts)))
        self.devices = tuple(name for name in self.pool.hello.pooled_on if name not in ("", "CPU"))
        if self.devices:
            self._start_device(stack, reference)
        self.running = {name: self.running[name] for name in (CPU, DEVICE, POOL) if name in self.running}

    @property
    def cpu(self) -> ArmProcess:
        return self.running[CPU]

    @property
    def pool(self) -> ArmProcess:
        return self.running[POOL]

    def _start_device(self, stack: ExitStack, reference: Model) -> None:
        if self._settings.pool.get("rpc"):
            self.why_no_device = "a server of ggml's RPC serves one process at a time, and the pool's is there"
            return
        try:
            self.running[DEVICE] = stack.enter_context(ArmProcess(self._spec(DEVICE, reference)))
        except SlotpoolError as error:
            self.why_no_device = error.message

    def _spec(self, name: str, facts: Model) -> ArmSpec:
        settings = self._settings
        is_plain_cpu = name == CPU
        options = {key: value for key, value in settings.pool.items() if key != "rpc"} | {"require_pool": True}
        return ArmSpec(
            name=name,
            # the engine takes the first shard only, whichever was named
            model=str(min(facts.files, key=lambda file: file.shard).path),
            n_ctx=settings.n_ctx,
            n_threads=settings.n_threads or engine.n_cores(),
            n_gpu_layers=0 if is_plain_cpu or not self._is_on_devices() else -1,
            tensor_split=() if is_plain_cpu else self._split(),
            pool=options if name == POOL else None,
            rpc=() if is_plain_cpu else tuple(settings.pool.get("rpc") or ()),
            backends=settings.backends,
        )

    def _is_on_devices(self) -> bool:
        """Whether the pool's layers are on devices: `load` would say so itself, but its reference has to do the same."""
        device = self._settings.pool.get("device")
        names = [device] if isinstance(device, str) else list(device or ())
        if names and names != ["auto"]:
            return names != ["CPU"]
        if self._settings.pool.get("rpc"):
            return True
        return self._settings.pool.get("ram_budget") is None and bool(self._offload())

    def _offload(self) -> list[int]:
        """Free bytes of the devices that the engine gives layers to."""
        return [free for _, kind, free in self.running[CPU].hello.devices if kind in ("GPU", "IGPU")]

    def _split(self) -> tuple[float, ...]:
        """Layers by free memory, as the engine splits them, but the same for both arms: the second would find less free."""
        free = self._offload()
        total = float(sum(free))
        return tuple(one / total for one in free) if len(free) > 1 and total and not self._settings.pool.get("rpc") else ()


class _Run:
    """One measurement in progress."""

    def __init__(self, arms: _Arms, facts: Model, texts: Sequence[Text], settings: Settings, on_progress: Progress) -> None:
        self._arms, self._facts, self._settings = arms, facts, settings
        self._texts = [text.name for text in texts]
        ids = [_tokenized(arms.cpu, text) for text in texts]
        self._lengths = [len(one) for one in ids]
        self._ids = [one[: settings.limit or None] for one in ids]
        self._chunks = chunks_of(ids, settings.n_chunks, settings.n_ctx)
        self._damaged = ""
        self._n_done = 0
        n_prompts = 2 * sum(len(ids) for ids in self._chunks)
        n_tokens = sum(len(ids) for ids in self._ids)
        self._n_total = (n_tokens + n_prompts) * len(arms.running)
        self._on_progress = on_progress
        self._comparison = Comparison(list(arms.running), self._texts, self._token)

    def report(self) -> Report:
        """Prompts, all texts token by token, the prompts again; then everything that was found."""
        before = self._prompts("prompts, before")
        for number, ids in enumerate(self._ids):
            self._decode(number, ids)
        after = self._prompts("prompts, after")
        counts, arms = self._arms.pool.counts(), tuple(self._proven())
        _check_used(counts.lookups, [arm for arm in arms if arm.name != POOL])
        found = self._comparison
        total = found.share("total")
        return Report(
            engine=self._arms.cpu.hello.engine,
            n_tokens=total.n_tokens,
            total=total,
            placement=found.share("placement") if found.has_placement else None,
            pool=found.share("pool") if found.has_placement or not self._arms.devices else None,
            why_no_device=self._arms.why_no_device,
            texts=found.texts(self._lengths),
            prompts=judged_prompts(before, after, [len(ids) for ids in self._chunks]),
            arms=arms,
            counts=counts,
            stats=self._arms.pool.ask("stats"),
            n_threads=self._settings.n_threads or engine.n_cores(),
            n_ctx=self._settings.n_ctx,
            damaged=self._damaged,
            files=compared_files(self._facts, self._arms.reference),
        )

    def _decode(self, number: int, ids: Sequence[int]) -> None:
        for window in _parts(ids, self._settings.n_ctx):
            for arm in self._arms.running.values():
                arm.ask("forget")
            for block, following in _blocks(window):
                self._comparison.add(number, {name: self._turn(name, block, number) for name in self._arms.running}, following)
                if self._settings.damage and not self._damaged:
                    self._damaged = self._arms.pool.ask("damage", self._settings.damage)

    def _turn(self, name: str, block: Sequence[int], number: int) -> Logits:
        rows = self._arms.running[name].decode(block)
        self._advance(len(block), self._texts[number])
        return rows

    def _prompts(self, what: str) -> dict[str, list[Chunk]]:
        """The chunks of every arm, from an empty context each."""
        found: dict[str, list[Chunk]] = {name: [] for name in self._arms.running}
        for ids in self._chunks:
            for name, arm in self._arms.running.items():
                found[name].append(arm.chunk(ids))
                self._advance(len(ids), what)
        return found

    def _advance(self, n_tokens: int, what: str) -> None:
        self._n_done += n_tokens
        self._on_progress(self._n_done, self._n_total, what)

    def _token(self, number: int, index: int) -> Difference:
        token = self._ids[number][index]
        return Difference(self._texts[number], index, token, self._arms.cpu.ask("piece", token).decode("utf-8", "replace"))

    def _proven(self) -> Iterator[Arm]:
        where = {CPU: "CPU", DEVICE: ",".join(self._arms.devices), POOL: ",".join(self._arms.devices) or "CPU"}
        for name, arm in self._arms.running.items():
            yield Arm(name, arm.hello.pid, where[name], arm.ask("has_core"), arm.counts().lookups)


def _tokenized(arm: ArmProcess, text: Text) -> list[int]:
    ids = arm.tokenize(text.text)
    if not ids:
        raise SlotpoolError("expected a text of at least one token, found an empty one", where=printable(text.name))
    return ids


def _check_used(pool: int, plain: Sequence[Arm]) -> None:
    if not pool:
        raise SlotpoolError("expected lookups in the pool, found none: nothing was compared", exit_code=REFUSED)
    for arm in plain:
        if arm.lookups or arm.has_core:
            raise SlotpoolError(f"expected arm {arm.name} to be plain llama.cpp, found slotpool's core in it", exit_code=REFUSED)


def _parts(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return (ids[first : first + size] for first in range(0, len(ids), size))


def _blocks(window: Sequence[int]) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Blocks of a window, each with the tokens that follow its own: one less at the window's end."""
    for first in range(0, len(window), BLOCK):
        yield window[first : first + BLOCK], window[first + 1 : first + 1 + BLOCK]
