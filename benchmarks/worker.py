"""One contestant in its own process: loads a model once, then decodes on command, so that arms can be interleaved.

Speaks JSON lines on stdin and stdout: {"prompt": ids} evaluates a prompt, {"decode": ids} decodes them one at a time.
Answers {"seconds", "hash" (of the last logits' bits), "stats"}.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import warnings
from typing import Any

import llama_cpp
import numpy as np

from slotpool import loading


def main(model: str, options: dict[str, Any]) -> None:
    """Serves commands until stdin ends."""
    warnings.simplefilter("ignore")
    answers = sys.stdout
    sys.stdout = sys.stderr
    llm = loading.load(model, **options)
    for line in sys.stdin:
        command = json.loads(line)
        answer = {"seconds": _evaluate(llm, **command), "hash": _hash(llm), "stats": loading.read_stats(llm)}
        print(json.dumps(answer), file=answers, flush=True)
    llm.close()


def _evaluate(llm: Any, prompt: list[int] | None = None, decode: list[int] | None = None) -> float:
    if prompt:
        llm.reset()
    started = time.perf_counter()
    if prompt:
        llm.eval(prompt)
    for token in decode or ():
        llm.eval([token])
    return time.perf_counter() - started


def _hash(llm: Any) -> str:
    logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llm.ctx, -1), shape=(llm.n_vocab(),))
    return hashlib.sha256(logits.tobytes()).hexdigest()[:16]


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
