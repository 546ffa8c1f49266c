"""`slotpool demo`: the bundled model writes text with the pool on, and plain llama.cpp is asked for the same tokens."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import click

from slotpool.cli.output import json_option, print_json, print_line
from slotpool.cli.pool_table import print_pool_table
from slotpool.cli.run import Request, run
from slotpool.errors import REFUSED, SlotpoolError

PROMPT = "And it came to pass in those days, that"
N_TOKENS = 160
SLOTS = 12
TEMPERATURE, SEED = 0.7, 1
"""The small model repeats itself when it is greedy. Logits are bit-equal, so sampled tokens are equal too."""


@click.command("demo")
@click.option("-p", "--prompt", default=PROMPT, help="The beginning of the text.")
@click.option("-n", "n_tokens", type=click.IntRange(2, 400), default=N_TOKENS, show_default=True, help="Tokens to generate.")
@click.option("--slots", type=click.IntRange(4, 24), default=SLOTS, show_default=True, help="Slots per expert tensor.")
@json_option
def command(prompt: str, n_tokens: int, slots: int, as_json: bool) -> int:
    """Let the bundled model write with the pool on, show what the pool did, and check the tokens.

    The same prompt then goes through plain llama.cpp in a process of its own, without slotpool and on the same kernels.
    Exit code 1 when its tokens differ.
    """
    request = _request(prompt, n_tokens, slots)
    if not as_json:
        print_line(f"The bundled model goes on from: {prompt}\n".rstrip())
    document = run(request, stream=not as_json)
    plain = _plain_tokens(request)
    same = plain == document["tokens"]
    if as_json:
        print_json(document | {"plain_tokens": plain, "same_tokens": same})
    else:
        print_line()
        print_pool_table(document["stats"])
        print_line()
        print_line(_verdict(document["tokens"], plain))
    return 0 if same else REFUSED


def model_path() -> Path:
    """The bundled model. Raises SlotpoolError when the installation lacks it."""
    path = Path(str(resources.files("slotpool") / "data" / "demo.gguf"))
    if not path.exists():
        raise SlotpoolError("expected the bundled model, found none", where=str(path), do="Install slotpool again.")
    return path


def _request(prompt: str, n_tokens: int, slots: int) -> Request:
    return Request(
        model=model_path(),
        prompt=prompt,
        n_tokens=n_tokens,
        temperature=TEMPERATURE,
        seed=SEED,
        ctx=None,
        threads=None,
        chat=False,
        repack=False,
        pool={"slots": slots, "device": "CPU", "require_pool": True},
    )


def _plain_tokens(request: Request) -> list[int]:
    """The same request in a fresh process that never loads the core: plain llama.cpp."""
    sampling = ["--temperature", str(request.temperature), "--seed", str(request.seed)]
    arguments = [
        "run",
        str(request.model),
        "-p",
        request.prompt,
        "-n",
        str(request.n_tokens),
        *sampling,
        "--slots",
        "0",
        "--no-repack",
        "--json",
    ]
    done = subprocess.run([sys.executable, "-m", "slotpool.cli", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SlotpoolError(f"expected plain llama.cpp to run, found exit code {done.returncode}: {done.stderr.strip()[:200]}")
    document: dict[str, Any] = json.loads(done.stdout)
    if document["stats"]["lookups"]:
        raise SlotpoolError("expected no lookup in the plain run, found some: the comparison would prove nothing")
    tokens: list[int] = document["tokens"]
    return tokens


def _verdict(tokens: list[int], plain: list[int]) -> str:
    if tokens == plain:
        return f"Checked: plain llama.cpp, run beside it, wrote the same {len(tokens)} tokens."
    first = next((i for i, (a, b) in enumerate(zip(tokens, plain, strict=False)) if a != b), min(len(tokens), len(plain)))
    return f"DIFFERENT: plain llama.cpp wrote other tokens from number {first + 1} on. Please report this with slotpool doctor --json."
