"""What a token costs on the wire to an RPC server, with the pool and without, counted by a proxy between the two.

The layers of a SYN model are on a server on loopback (the last arm: on two) and replay a skewed routing. With a pool the experts are in
this process' memory: expected are the core's own count of copied bytes and the activations, from shapes. What plain llama.cpp sends
for the same layers (inputs, logits) is measured, not computed: the arm with all experts on the server sends nothing else.
Headers and serialised graphs come on top and are stated apart: ggml's RPC sends with a graph every tensor that it depends on, back to the
first layer, so a model that is cut anywhere pays that, with our pool or with experts on the CPU. Every arm has a server and a proxy of
its own and decodes the same tokens. Reach: what is sent for the pool, headers included, within 2 % of slabs plus activations wherever
slabs are copied; logits of `copy` equal to plain on the server.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.device_grid import trace_of
from benchmarks.record import write
from benchmarks.rpc_proxy import Proxy, Traffic
from testkit import syn
from testkit.rpc_server import process, served

SPEC = syn.Spec(
    arch="qwen3moe",
    n_layer=8,
    n_embd=2048,
    n_ff_exp=768,
    n_expert=32,
    n_expert_used=4,
    n_vocab=256,
    n_head=16,
    n_head_kv=4,
    n_ctx=1024,
    types={"*": "Q4_K"},
    dense_type="Q8_0",
)
"""The expert shapes of a 30B-A3B: a slab of gate, up and down is 2.65 MB."""
N_FILL, N_MEASURED = 48, 64
"""Tokens: the first fill the pool, the others are measured."""
SLOTS = 16
MOST_NODES = 4
"""Of a graph of the pool: gate, up, activation and down. The engine's own have far more."""
POSITION_BYTES = 4 + 8 + 8 + 512
"""Of a token's position, its places in the cache and the mask over 256 of them."""


@dataclass(frozen=True)
class Arm:
    """One contestant: a pool with `misses` and `slots`, or plain llama.cpp with experts `placed` as its -ot says."""

    name: str
    misses: str = ""
    slots: int = SLOTS
    placed: Sequence[Sequence[str]] = ()
    n_servers: int = 1


STOCK, STOCK_CPU = "plain, experts on the server", "plain, experts on the CPU"
ARMS = (
    Arm(STOCK),
    Arm(STOCK_CPU, placed=(("ffn_.*_exps", "CPU"),)),
    Arm("copy", "copy"),
    Arm("cpu", "cpu"),
    Arm("auto", "auto"),
    Arm("copy, every expert in a slot", "copy", slots=SPEC.n_expert),
    Arm("copy, two servers", "copy", n_servers=2),
)


def run() -> dict[str, Any]:
    """Measures every arm and writes the record. RuntimeError where an arm's tokens differ from those of plain llama.cpp on the server."""
    n_tokens = N_FILL + N_MEASURED
    with tempfile.TemporaryDirectory(prefix="slotpool-rpc-") as folder:
        path = syn.replay(
            trace_of("skewed", n_tokens, SPEC.n_layer), replace(SPEC, n_vocab=max(SPEC.n_vocab, n_tokens)), Path(folder) / "rpc.gguf"
        )
        found = {arm.name: measure(path, arm) for arm in ARMS}
    _check(found)
    stock = found[STOCK]["traffic"]
    arms = [stated(arm, found[arm.name], stock, found[STOCK]) for arm in ARMS]
    return write("rpc_wire", spec=vars(SPEC) | {"types": dict(SPEC.types), "types_per_layer": {}}, tokens=[N_FILL, N_MEASURED], arms=arms)


def line(record: dict[str, Any]) -> str:
    """The figures of a record: a row an arm, kilobytes per token."""
    head = ("kB per token", "slabs", "activations", "headers", "pool's graphs", "engine's graphs", "all", "expected", "over")
    rows = [head, *(_row(arm) for arm in record["arms"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    text = "\n".join(
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))) for row in rows
    )
    return f"rpc_wire: bytes on the wire, {record['spec']['n_layer']} layers\n{text}\n"


def _row(arm: dict[str, Any]) -> tuple[str, ...]:
    def kilo(n: float) -> str:
        return f"{n / 1000:.1f}"

    per = arm["bytes_per_token"]
    over = f"{arm['over_expected']:+.2%}" if arm["copied_per_token"] else "-"
    return (
        arm["name"],
        *(kilo(per[key]) for key in ("slabs", "activations", "headers", "own_graphs", "engine_graphs", "all", "expected")),
        over,
    )


# ---- one arm ----


def measure(path: Path, arm: Arm) -> dict[str, Any]:
    """Traffic of the measured tokens, and the worker's answer to them."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(proxied()) for _ in range(arm.n_servers)]
        options = {"endpoints": [f"127.0.0.1:{one.port}" for one in proxies], **{k: getattr(arm, k) for k in ("misses", "slots", "placed")}}
        worker = stack.enter_context(process([sys.executable, "-m", "benchmarks.rpc_worker", str(path), json.dumps(options)]))
        _ask(worker, arm, range(N_FILL))
        before = _sum(proxy.settled() for proxy in proxies)
        answer = _ask(worker, arm, range(N_FILL, N_FILL + N_MEASURED))
        return answer | {"traffic": _sum(proxy.settled() for proxy in proxies) - before}


@contextmanager
def proxied() -> Iterator[Proxy]:
    """A server on a free port of loopback, and a proxy before it."""
    with served() as port:
        proxy = Proxy(port)
        try:
            yield proxy
        finally:
            proxy.close()


def _ask(worker: subprocess.Popen[str], arm: Arm, tokens: Sequence[int]) -> dict[str, Any]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps({"tokens": list(tokens)}) + "\n")
    worker.stdin.flush()
    answer = worker.stdout.readline()
    if not answer:
        raise RuntimeError(f"expected arm {arm.name} to decode, found it dead (exit code {worker.wait()})")
    return dict(json.loads(answer))


def _sum(traffic: Iterator[Traffic]) -> Traffic:
    return sum(traffic, Traffic())


def _check(found: dict[str, dict[str, Any]]) -> None:
    stock = found[STOCK]
    for arm in ARMS:
        mine = found[arm.name]
        if mine["argmax"] != stock["argmax"] or (arm.misses == "copy" and mine["bits"] != stock["bits"]):
            raise RuntimeError(f'expected the tokens of plain llama.cpp on the server, found others (at arm "{arm.name}")')
        if arm.misses and not mine["counts"]["lookups"]:
            raise RuntimeError(f'expected lookups in the pool, found none (at arm "{arm.name}")')
        if arm.n_servers > len(mine["devices"]) > 0:
            raise RuntimeError(f'expected slots on {arm.n_servers} devices, found {mine["devices"]} (at arm "{arm.name}")')


# ---- what was expected ----


def stated(arm: Arm, mine: dict[str, Any], stock: Traffic, stock_answer: dict[str, Any]) -> dict[str, Any]:
    """Bytes per measured token by what they are, beside what shapes and the core's counters expect."""
    traffic: Traffic = mine["traffic"]
    counts = mine["counts"]
    own = own_activations(counts, traffic) if arm.misses else {}
    slabs = traffic.data["expert weights"]
    activations = traffic.data["sent"] + traffic.data["received"]
    own_graphs = sum(n for nodes, n in traffic.graphs.items() if nodes <= MOST_NODES) if arm.misses else 0
    engine_graphs = traffic.bytes["graph_compute"] + traffic.bytes["graph_recompute"] - own_graphs
    engine = stock.data["sent"] + stock.data["received"] + N_MEASURED * crossing(arm)
    expected = counts["bytes_copied"] + sum(own.values()) + engine
    per_token = {
        "slabs": slabs,
        "activations": activations,
        "own_graphs": own_graphs,
        "engine_graphs": engine_graphs,
        "headers": traffic.total - slabs - activations - own_graphs - engine_graphs,
        "all": traffic.total,
        "expected": expected if arm.misses else activations,
    }
    return {
        "name": arm.name,
        "slots": arm.slots if arm.misses else 0,
        "bytes_per_token": {key: value / N_MEASURED for key, value in per_token.items()},
        "over_expected": (traffic.total - engine_graphs) / per_token["expected"] - 1,
        "copied_per_token": counts["bytes_copied"] / N_MEASURED,
        "own_activations": {key: value / N_MEASURED for key, value in own.items()},
        "hit_rate": counts["hits"] / counts["lookups"] if counts["lookups"] else None,
        "rows": {key: counts[key] for key in ("rows_hit", "rows_copy", "rows_cpu")},
        "has_bits_of_plain": mine["bits"] == stock_answer["bits"],
        "devices": mine["devices"],
        "tokens_per_second": N_MEASURED / mine["seconds"],
        "messages_per_token": {key: value / N_MEASURED for key, value in traffic.messages.items()},
        "bytes_by_command": {key: value / N_MEASURED for key, value in traffic.bytes.items()},
        "sent": {key: value / N_MEASURED for key, value in traffic.sent_by_name.items()},
        "received": {key: value / N_MEASURED for key, value in traffic.received_by_name.items()},
    }


def own_activations(counts: dict[str, int], traffic: Traffic) -> dict[str, int]:
    """From shapes: ids come here and slot ids go there once an event; rows of the CPU come as inputs and go as results.

    An event has one input row for all its experts. How many events had rows of the device, and how many of the CPU, is in no counter:
    it is counted here, in whole events.
    """
    ids = SPEC.n_expert_used * 4
    row = SPEC.n_embd * 4
    n_device = traffic.sent_by_name["(no name)"] // ids
    n_host = traffic.received_by_name["ffn_norm (reshaped)"] // row
    return {"ids": counts["events"] * ids, "slot ids": n_device * ids, "inputs": n_host * row, "results": counts["rows_cpu"] * row}


def crossing(arm: Arm) -> int:
    """Bytes a token that go from one server to the next through this process: a layer's expert rows, their weights and the residual,
    down and up, and the inputs that every server has. Plain llama.cpp sends the same where experts are on the CPU."""
    if arm.n_servers == 1:
        return 0
    boundary = (SPEC.n_expert_used * SPEC.n_embd + SPEC.n_embd + SPEC.n_expert_used) * 4
    return (arm.n_servers - 1) * (2 * boundary + POSITION_BYTES)


if __name__ == "__main__":
    print(line(run()))
