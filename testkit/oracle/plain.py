"""The oracle: what unmodified llama.cpp gives for the same file, tokens and shapes.

It runs in a process of its own that never loads slotpool's core, so no bug of ours can reach it. Every case runs once: results
are kept by (file, setup, steps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, TypeVar

from testkit.chaos import Counters
from testkit.chaos.process import here, process

from .engine import Bits, Context, EngineError, Watch, loaded, running
from .routing import Observer, Ubatch
from .script import Setup, Steps

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_CPU_BUFFERS = frozenset({"CPU", "CPU_Mapped"})


@dataclass
class Oracle:
    """Plain llama.cpp, to be used in a with block. `chaos` puts chaos devices into its process: knobs by name, see testkit.chaos."""

    chaos: Mapping[str, float] | None = None
    _logits: dict[tuple[Path, Setup, Steps], list[Bits]] = field(default_factory=dict)
    _routing: dict[tuple[Path, Setup, Steps], list[Ubatch]] = field(default_factory=dict)
    n_runs: int = 0

    def __post_init__(self) -> None:
        self._process = process(self.chaos)

    def logits(self, path: Path, setup: Setup, steps: Steps) -> list[Bits]:
        """Bits of one array per batch."""
        case = (path, _as_plain(setup), steps)
        if case not in self._logits:
            self.n_runs += 1
            self._logits[case] = self._process.submit(run, *case).result()
        return self._logits[case]

    def routing(self, path: Path, setup: Setup, steps: Steps) -> list[Ubatch]:
        """The experts that every ubatch asked for."""
        case = (path, _as_plain(setup), steps)
        if case not in self._routing:
            self._routing[case] = self._process.submit(observe, *case).result()
        return self._routing[case]

    def greedy(self, path: Path, setup: Setup, prompt: tuple[int, ...], n_tokens: int) -> list[int]:
        """The most likely tokens after a prompt."""
        return self._process.submit(generate, path, setup, prompt, n_tokens).result()

    def call(self, function: Callable[_Arguments, _Result], *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        """A function of an importable module, in the oracle's process."""
        return self._process.submit(function, *arguments, **named).result()

    def chaos_counters(self, device: int = 0) -> Counters:
        """What the chaos device counted since the oracle's process began."""
        return self._process.submit(chaos_counters, device).result()

    def forget(self, path: Path) -> None:
        """Drops what is known of a file that is about to go."""
        self._logits = {case: bits for case, bits in self._logits.items() if case[0] != path}
        self._routing = {case: seen for case, seen in self._routing.items() if case[0] != path}

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.shutdown()


def chaos_counters(device: int) -> Counters:
    """In the oracle's process: the counters of a chaos device."""
    devices = here()
    if devices is None:
        raise EngineError("expected an oracle with chaos devices, got a plain one")
    return devices.counters(device)


def run(path: Path, setup: Setup, steps: Steps) -> list[Bits]:
    """In the oracle's process: the logits."""
    with _plain_context(path, setup) as context:
        return context.run(steps)


def observe(path: Path, setup: Setup, steps: Steps) -> list[Ubatch]:
    """In the oracle's process: the routing."""
    observer = Observer()
    with _plain_context(path, setup, observer) as context:
        context.run(steps)
    return observer.ubatches()


def generate(path: Path, setup: Setup, prompt: tuple[int, ...], n_tokens: int) -> list[int]:
    """In the oracle's process: greedy tokens."""
    with _plain_context(path, setup) as context:
        return context.greedy(prompt, n_tokens)


@contextmanager
def _plain_context(path: Path, setup: Setup, watch: Watch | None = None) -> Iterator[Context]:
    """A context of the file. EngineError unless this is plain llama.cpp with its weights as the file has them (trap 16)."""
    with loaded(path, setup) as model:
        allowed = _CPU_BUFFERS | {name for name in model.buffers if here() and name.startswith("CHAOS")}
        if not setup.repack and not model.buffers <= allowed:
            raise EngineError(f"expected the oracle's weights in {sorted(allowed)}, got {sorted(model.buffers)}")
        with running(model, setup, watch) as context:
            if "libslotpool" in Path("/proc/self/maps").read_text(errors="replace"):
                raise EngineError("expected the oracle's process to be plain llama.cpp, found slotpool's core in it")
            yield context


def _as_plain(setup: Setup) -> Setup:
    """What cannot change a plain run's logits is not part of its name: the graphs are the same, reused or not, split or not."""
    return replace(setup, reuse_graphs=True, one_node_at_a_time=False, keeps_log=False)
