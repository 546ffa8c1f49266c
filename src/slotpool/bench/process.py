"""The process of an arm: started with a job, asked once, gone. What it cannot do comes back as its own error.

Its environment is the caller's without what puts plug-ins or plans into llama.cpp programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from slotpool.errors import REFUSED, SlotpoolError, quoted

_NOT_PASSED_ON = ("GGML_BACKEND_PATH", "SLOTPOOL_PLAN", "LD_PRELOAD")
WORKER = (sys.executable, "-m", "slotpool.bench.worker")


def ask(name: str, job: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The id of the process that did the job, and its answer. `name` is the arm's, for errors.

    SlotpoolError for what the worker refused, in its words, and with its last line where it died.
    """
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_PASSED_ON}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as worker:
        try:
            out, errors = worker.communicate(json.dumps(job).encode())
        except BaseException:
            worker.kill()
            raise
    answer = _parsed(out)
    if worker.returncode or answer is None:
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no word"]
        raise SlotpoolError(f'the process of arm "{name}" died (exit code {worker.returncode}): {quoted(last[0])}', exit_code=REFUSED)
    if "error" in answer:
        raise SlotpoolError(
            f'{answer["error"]["message"]} (arm "{name}")', do=answer["error"]["do"], exit_code=answer["error"]["exit_code"]
        )
    return worker.pid, answer


def _parsed(out: bytes) -> dict[str, Any] | None:
    try:
        answer = json.loads(out)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
