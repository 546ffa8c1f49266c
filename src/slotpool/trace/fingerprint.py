"""The fingerprint of a model: a hash over its headers, metadata and tensor directory, never over its weights.

Equal fingerprints mean the same architecture, vocabulary, tensors, types and places; a requantised or renamed model has another one.
"""

from __future__ import annotations

import hashlib

from slotpool.errors import SlotpoolError, printable
from slotpool.model import Model
from slotpool.trace.facts import Facts

_CHUNK = 1 << 20


def fingerprint(model: Model) -> str:
    """SHA-256 over the headers of the model's files in the order of their shards, hexadecimal. Reads megabytes at most.

    Raises SlotpoolError when a file cannot be read any more.
    """
    made = hashlib.sha256()
    for file in sorted(model.files, key=lambda file: file.shard):
        made.update(file.data_offset.to_bytes(8, "little"))
        try:
            with file.path.open("rb") as opened:
                n_left = min(file.data_offset, file.size)
                while n_left > 0 and (chunk := opened.read(min(n_left, _CHUNK))):
                    made.update(chunk)
                    n_left -= len(chunk)
        except OSError as error:
            raise SlotpoolError(f"cannot read the model file: {error.strerror}", where=printable(file.path)) from error
    return made.hexdigest()


def facts_of(model: Model, engine: str, source: str) -> Facts:
    """What a trace says about the model it was recorded from, the engine that ran it, and who recorded it."""
    return Facts(
        architecture=model.architecture,
        n_layer=model.n_layer,
        n_expert=model.n_expert,
        n_expert_used=model.n_expert_used,
        fingerprint=fingerprint(model),
        engine=engine,
        source=source,
    )
