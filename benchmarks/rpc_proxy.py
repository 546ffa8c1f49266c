"""A proxy on loopback between a client and a server of ggml's RPC that counts every byte, by message and by what it carries.

A request is | command, 1 byte | size, 8 bytes | payload |, an answer | size, 8 bytes | payload |, and a client waits for an answer before
it asks again. Bytes are counted before they are passed on: whoever has an answer finds all that led to it counted.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

COMMANDS = (
    *("alloc_buffer", "get_alignment", "get_max_size", "buffer_get_base", "free_buffer", "buffer_clear", "set_tensor"),
    *("set_tensor_hash", "get_tensor", "copy_tensor", "graph_compute", "get_device_memory", "init_tensor", "get_alloc_size"),
    *("hello", "device_count", "graph_recompute", "memset_tensor"),
)
TENSOR_BYTES = 296
"""Of a tensor as it is sent; its name is the 64 bytes before the last 4."""
_REQUEST_HEADER, _ANSWER_HEADER = 9, 8
_SET_HEADER = TENSOR_BYTES + 1 + 8  # and a flag, and an offset
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Traffic:
    """Bytes and messages by kind. `data` is what tensors carry: slabs (`expert weights`), other `sent` and `received` tensors.

    `bytes` are all bytes on the wire of each command, both ways, headers included. `graphs` are those of graph_compute by the nodes that
    are asked for: a message carries all tensors that these depend on, and those that those depend on.
    """

    data: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    received_by_name: Counter[str] = field(default_factory=Counter)
    sent_by_name: Counter[str] = field(default_factory=Counter)
    graphs: Counter[int] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All bytes, both ways."""
        return self.bytes.total()

    def __sub__(self, before: Traffic) -> Traffic:
        return Traffic(*(_less(mine, theirs) for mine, theirs in zip(vars(self).values(), vars(before).values(), strict=True)))

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def copy(self) -> Traffic:
        return Traffic(*(Counter(counter) for counter in vars(self).values()))


def _less(mine: Counter[Any], theirs: Counter[Any]) -> Counter[Any]:
    return Counter({key: mine[key] - theirs[key] for key in mine if mine[key] != theirs[key]})


class Proxy:
    """Listens on a port of its own and passes everything on to `port` of this machine. `traffic` grows until it is closed."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._traffic = Traffic()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def traffic(self) -> Traffic:
        """What has passed until now."""
        with self._lock:
            return self._traffic.copy()

    def settled(self, quiet: float = 0.5, most: float = 120.0) -> Traffic:
        """What has passed once nothing has for `quiet` seconds. TimeoutError when something still does after `most`."""
        begin, before = time.monotonic(), -1
        while time.monotonic() - begin < most:
            now = self.traffic()
            if now.total == before:
                return now
            before = now.total
            time.sleep(quiet)
        raise TimeoutError(f"expected the wire to become quiet within {most:g} s, found it busy")

    def close(self) -> None:
        """Takes no more connections; those there are end with their sides."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._accepting.join(timeout=10)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._upstream))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._connect, args=(client, server), daemon=True).start()

    def _connect(self, client: socket.socket, server: socket.socket) -> None:
        messages = _Messages(self._traffic)
        back = threading.Thread(target=self._pass_on, args=(server, client, messages.answer), daemon=True)
        with client, server:
            back.start()
            self._pass_on(client, server, messages.request)
            back.join()

    def _pass_on(self, source: socket.socket, sink: socket.socket, count: _Frames) -> None:
        chunk = memoryview(bytearray(_CHUNK))
        try:
            while n := source.recv_into(chunk):
                with self._lock:
                    count.feed(chunk[:n])
                sink.sendall(chunk[:n])
        except OSError:
            pass  # the other side is gone: so is this one
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Frames:
    """Cuts one direction of a connection into messages: a header, a payload of which the first bytes are looked at."""

    def __init__(self, header_bytes: int) -> None:
        self._header_bytes = header_bytes
        self._head = bytearray()
        self._left = -1  # of the payload; -1: the header is not complete
        self._size = 0

    def feed(self, chunk: memoryview) -> None:
        while len(chunk):
            wanted = self._header_bytes if self._left < 0 else min(self._header_bytes + TENSOR_BYTES, self._header_bytes + self._size)
            taken = chunk[: max(0, wanted - len(self._head))]
            self._head += taken
            chunk = chunk[len(taken) :]
            if self._left < 0 and len(self._head) == self._header_bytes:
                self._size = self._left = int.from_bytes(self._head[-8:], "little")
            elif self._left >= 0:
                passed = min(self._left - len(taken), len(chunk))
                self._left -= len(taken) + passed
                chunk = chunk[passed:]
            if self._left == 0:
                self.message(bytes(self._head), self._size)
                self._head.clear()
                self._left = -1

    def message(self, head: bytes, size: int) -> None:
        raise NotImplementedError


class _Messages:
    """The two directions of a connection: an answer belongs to the last request."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic, self.command, self.name = traffic, "", ""
        self.request, self.answer = _Requests(self), _Answers(self)


class _Requests(_Frames):
    def __init__(self, messages: _Messages) -> None:
        super().__init__(_REQUEST_HEADER)
        self._messages = messages

    def message(self, head: bytes, size: int) -> None:
        messages, traffic = self._messages, self._messages.traffic
        messages.command = COMMANDS[head[0]] if head[0] < len(COMMANDS) else f"command {head[0]}"
        messages.name = head[_REQUEST_HEADER:][TENSOR_BYTES - 68 : TENSOR_BYTES - 4].split(b"\0")[0].decode("utf-8", "replace")
        traffic.messages[messages.command] += 1
        traffic.bytes[messages.command] += _REQUEST_HEADER + size
        if messages.command == "graph_compute":
            traffic.graphs[int.from_bytes(head[_REQUEST_HEADER + 4 :][:4], "little")] += _REQUEST_HEADER + size
        if messages.command == "set_tensor":
            is_slab = "_exps." in messages.name and messages.name.endswith(".weight")
            traffic.data["expert weights" if is_slab else "sent"] += size - _SET_HEADER
            traffic.sent_by_name["expert weights" if is_slab else _kind(messages.name)] += size - _SET_HEADER


class _Answers(_Frames):
    def __init__(self, messages: _Messages) -> None:
        super().__init__(_ANSWER_HEADER)
        self._messages = messages

    def message(self, _head: bytes, size: int) -> None:
        messages, traffic = self._messages, self._messages.traffic
        traffic.bytes[messages.command] += _ANSWER_HEADER + size
        if messages.command == "get_tensor":
            traffic.data["received"] += size
            traffic.received_by_name[_kind(messages.name)] += size


def _kind(name: str) -> str:
    """A tensor's name without its layer and what a scheduler adds to it, so that layers add up."""
    return re.sub(r"-\d+", "", name.split("#")[-2 if name.count("#") > 1 else 0]) or "(no name)"
