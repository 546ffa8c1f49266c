"""What a program is linked with, asked of the system's own loader, which lists the libraries and runs nothing.

Linux only, as the core is; a program in another format, a script or one without libraries has none.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
"""Of a 64-bit little-endian ELF file; the table of segments is what is needed of it."""
_SEGMENT = struct.Struct("<IIQQQQQQ")
_INTERPRETER = 3
_LISTS_WITHIN_S = 20


def has_linked_backends(program: str) -> bool:
    """Whether `program` uses a shared libllama whose ggml has its CPU backend linked in: it looks for no others by itself."""
    names = {name.split(".so")[0] for name in linked_libraries(program)}
    return {"libllama", "libggml-cpu"} <= names


def linked_libraries(program: str) -> list[str]:
    """File names of all libraries that the system would load for `program`; empty where it has none or that cannot be told."""
    loader = _loader(Path(program))
    if not loader:
        return []
    try:
        done = subprocess.run(
            [loader, "--list", program], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_LISTS_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [line.split()[0].rsplit("/", 1)[-1] for line in lines if line.strip()]


def _loader(program: Path) -> str:
    """The loader that an ELF program names; empty for anything else."""
    try:
        with program.open("rb") as file:
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size or head[:6] != b"\x7fELF\x02\x01":
                return ""
            _, _, _, _, _, table, _, _, _, entry_bytes, n_entries, *_ = _HEADER.unpack(head)
            for index in range(min(n_entries, 256)):
                file.seek(table + index * entry_bytes)
                kind, _, offset, _, _, n_bytes, *_ = _SEGMENT.unpack(file.read(_SEGMENT.size))
                if kind == _INTERPRETER:
                    file.seek(offset)
                    return file.read(min(n_bytes, 4096)).rstrip(b"\0").decode()
    except (OSError, struct.error, ValueError, OverflowError):
        pass
    return ""
