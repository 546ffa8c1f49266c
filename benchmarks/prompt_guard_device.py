"""A prompt in an unmodified program whose slots are on a device, against the same program at the same placement. Reach: >= 0.98x.

llama-bench's pp512 with dense weights on an RPC server of this machine and experts on the CPU: alone with `-ot exps=CPU`, and under
`slotpool exec` with slots on that server, which no prompt fits. Single runs on a shared machine say little, so rounds alternate and the
instructions of both programs are counted as well, by callgrind on a tiny model and a short prompt: that number depends on nobody else.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import decode_resident, record
from benchmarks.cgroup import SkippedError
from testkit import syn

SPEC = replace(decode_resident.SPEC, n_layer=2, n_embd=1024, n_ff_exp=512, n_expert=64, n_head=16)
TINY = syn.Spec(n_layer=3, n_expert=32, n_expert_used=4)
SLOTS = 16
N_TOKENS = 512
N_COUNTED_TOKENS = 128
"""Of the prompt whose instructions are counted: what a prompt pays once weighs more in a short one."""
N_ROUNDS = 8
SCRIPTS = Path(__file__).parents[1] / "scripts" / "programs.py"


def run() -> dict[str, Any]:
    """Measures, writes the record and returns it. SkippedError where llama.cpp's programs are not built."""
    programs = _programs()
    with tempfile.TemporaryDirectory() as folder, _rpc_server(programs) as server:
        model, tiny = syn.write(SPEC, Path(folder) / "shapes.gguf"), syn.write(TINY, Path(folder) / "tiny.gguf")
        arms: dict[str, list[float]] = {"plain": [], "pool": []}
        for number in range(N_ROUNDS):
            for name in sorted(arms, reverse=number % 2 == 1):
                arms[name].append(_tokens_per_second(_command(name, programs, model, server)))
        instructions = {name: _instructions(_command(name, programs, tiny, server, N_COUNTED_TOKENS), name, Path(folder)) for name in arms}
    return record.write(
        "prompt_guard_device",
        model=repr(SPEC),
        tokens=N_TOKENS,
        slots=SLOTS,
        threads=1,
        plain_tps=record.spread(arms["plain"]),
        pool_tps=record.spread(arms["pool"]),
        ratio=record.spread([pool / plain for plain, pool in zip(arms["plain"], arms["pool"], strict=True)]),
        instructions=instructions,
    )


def line(made: dict[str, Any]) -> str:
    """The figure in one line."""
    ratio, counted = made["ratio"], made["instructions"]
    text = f"pp{made['tokens']} with slots on a device: {ratio['median']:.3f}x (rounds {ratio['low']:.3f} to {ratio['high']:.3f})"
    if not counted["plain"]:
        return f"{text}; instructions not counted (no valgrind)"
    return f"{text}; instructions per prompt {counted['pool'] / counted['plain']:.4f}x"


def _command(name: str, programs: Path, model: Path, server: str, n_tokens: int = N_TOKENS) -> list[str]:
    bench = [str(programs / "llama-bench"), "-m", str(model), "-p", str(n_tokens), "-n", "0", "-t", "1", "-o", "json"]
    bench += ["--rpc", server, "--repack", "0"]
    if name == "plain":
        return [*bench, "-ot", "exps=CPU"]
    options = ["--slots", str(SLOTS), "--device", "RPC0", "--miss", "copy", "--require-pool"]
    return [sys.executable, "-m", "slotpool.cli", "exec", *options, "--", *bench]


def _tokens_per_second(command: Sequence[str]) -> float:
    done = _run([*command, "-r", "3"])
    return float(json.loads(done.stdout)[0]["avg_ts"])


def _instructions(command: list[str], name: str, folder: Path) -> int:
    """Instructions of one prompt: the difference between two runs that have one and three. 0 without valgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return 0
    counts = []
    for rounds in ("1", "3"):
        counter = [valgrind, "--tool=callgrind", f"--callgrind-out-file={folder / 'out'}"]
        at = command.index("--") + 1 if name == "pool" else 0
        done = _run([*command[:at], *counter, *command[at:], "-r", rounds, "--no-warmup"])
        counts.append(int(re.findall(r"Collected : (\d+)", done.stderr)[-1]))
    return (counts[1] - counts[0]) // 2


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    is_pooled = "slotpool: pool " in done.stderr
    if is_pooled and not (" of 0 lookups, " in done.stderr and "took the stock path" in done.stderr):
        raise RuntimeError(f"expected every prompt refused, found: {done.stderr[-300:]}")
    if done.returncode:
        raise RuntimeError(f"expected {command[0]} to end well, found exit code {done.returncode}: {done.stderr[-2000:]}")
    return done


def _programs() -> Path:
    done = subprocess.run([sys.executable, str(SCRIPTS), "--find"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SkippedError(done.stdout.strip())
    return Path(done.stdout.strip())


@contextmanager
def _rpc_server(programs: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([programs / "ggml-rpc-server", "-H", "127.0.0.1", "-p", str(port), "-t", "1"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(1)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
