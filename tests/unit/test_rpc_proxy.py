"""The proxy that counts what goes to an RPC server: messages however they are cut, by kind, and passed on unchanged."""

from __future__ import annotations

import socket
import threading

import pytest

from benchmarks.rpc_proxy import COMMANDS, TENSOR_BYTES, Proxy, Traffic, _Messages


def _tensor(name: str) -> bytes:
    return bytes(TENSOR_BYTES - 68) + name.encode().ljust(64, b"\0") + bytes(4)


def _request(command: str, payload: bytes) -> bytes:
    return bytes((COMMANDS.index(command),)) + len(payload).to_bytes(8, "little") + payload


SLAB = _request("set_tensor", _tensor("blk.3.ffn_up_exps.weight") + bytes(9) + bytes(1000))
ROW = _request("set_tensor", _tensor("ffn_moe_down-3") + bytes(9) + bytes(40))
GRAPH = _request("graph_compute", (0).to_bytes(4, "little") + (3).to_bytes(4, "little") + bytes(500))
ASK = _request("get_tensor", _tensor("RPC0#inp_pos#0") + bytes(16))


@pytest.mark.parametrize("chunk", [1, 7, 305, 306, 1 << 16])
def test_messages_are_counted_however_they_are_cut(chunk: int) -> None:
    traffic = Traffic()
    messages = _Messages(traffic)
    stream = memoryview(SLAB + ROW + GRAPH + _request("hello", b"") + ASK)
    for at in range(0, len(stream), chunk):
        messages.request.feed(stream[at : at + chunk])
    answer = memoryview((24).to_bytes(8, "little") + bytes(24))
    for at in range(0, len(answer), chunk):
        messages.answer.feed(answer[at : at + chunk])
    assert traffic.messages == {"set_tensor": 2, "graph_compute": 1, "hello": 1, "get_tensor": 1}
    assert traffic.data == {"expert weights": 1000, "sent": 40, "received": 24}
    assert traffic.sent_by_name == {"expert weights": 1000, "ffn_moe_down": 40}
    assert traffic.received_by_name == {"inp_pos": 24}
    assert traffic.graphs == {3: len(GRAPH)}
    assert traffic.total == len(stream) + len(answer)


def test_difference_of_traffic_is_what_passed_between() -> None:
    traffic = Traffic()
    messages = _Messages(traffic)
    messages.request.feed(memoryview(SLAB))
    before = traffic.copy()
    messages.request.feed(memoryview(ROW))
    assert (traffic - before).data == {"sent": 40}
    assert (traffic - before).total == len(ROW)
    assert (before + (traffic - before)).bytes == traffic.bytes


def test_bytes_are_passed_on_unchanged_both_ways_and_the_end_too() -> None:
    got = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while len(got) < len(SLAB + ASK):
                    got.extend(connection.recv(1 << 16))
                connection.sendall((4).to_bytes(8, "little") + b"abcd")

        thread = threading.Thread(target=serve)
        thread.start()
        proxy = Proxy(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
            client.sendall(SLAB + ASK)
            answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
        thread.join()
        proxy.close()
    assert bytes(got) == SLAB + ASK
    assert answer[8:] == b"abcd"
    assert proxy.traffic().data == {"expert weights": 1000, "received": 4}
