"""Clients of another protocol: how they are recognised, and what they are told.

A browser or curl on the Kafka or native port sends the name of an HTTP method where a frame has its size; a
Kafka client on the native port sends an API key and a version where a frame has its type. Both are refused
anyway. Here the refusal gets words that the client can show, with the port that was perhaps meant.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tailrace.model import ProtocolError
from tailrace.model.address import Address, is_unix
from tailrace.net.peer import ConnectionFacts

_METHODS = frozenset(
    struct.unpack(">i", method[:4])[0]
    for method in (b"GET ", b"HEAD", b"POST", b"PUT ", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT")
)
_TYPE = struct.Struct(">I")
_KAFKA_KEY_MAX = 0xFF


class SpeaksHttp(ProtocolError):
    """The client sends HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The ports of the node's other listeners; None: not known, or there is none."""

    kafka: int | None = None
    http: int | None = None


def size_refused(size: int, size_max: int) -> ProtocolError:
    """The error for a frame of an illegal size."""
    if size in _METHODS:
        return SpeaksHttp("the client sends HTTP")
    return ProtocolError(f"a frame of {size} bytes is not between 1 and {size_max}")


def http_refusal(facts: ConnectionFacts, neighbours: Neighbours) -> bytes:
    """A whole HTTP response that says which listener this is, and where the HTTP listener is."""
    own = "the native" if facts.listener == "native" else "the Kafka"
    if neighbours.http is None:
        way_out = "This broker serves no HTTP: see http.enabled."
    elif is_unix(facts.local_host):
        way_out = f"The console and the REST API are on port {neighbours.http}."
    else:
        console = Address(facts.local_host, neighbours.http)
        way_out = f"The console and the REST API are at http://{console}/"
    body = f"This is {own} listener of a Tailrace broker, and it does not speak HTTP. {way_out}\n".encode()
    head = (
        "HTTP/1.1 400 Bad Request\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def kafka_refusal(frame: bytes | memoryview, neighbours: Neighbours) -> ProtocolError | None:
    """The error for a frame that is none of the native protocol, if it begins as a Kafka request does."""
    if len(frame) < _TYPE.size:
        return None
    key = _TYPE.unpack_from(frame)[0] >> 16
    if not 0 < key <= _KAFKA_KEY_MAX:  # a native type is a small number, which has no key
        return None
    where = f"port {neighbours.kafka}" if neighbours.kafka else "the Kafka port"
    return ProtocolError(f"this is the native listener, and the client speaks Kafka. Connect it to {where}")
