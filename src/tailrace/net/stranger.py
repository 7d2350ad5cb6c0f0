"""Clients of another protocol: how they are recognised, and what they are told.

A browser or curl on the Kafka or native port sends the name of an HTTP method where a frame has its size; a
Kafka client on the native port sends an API key and a version where a frame has its type. Both are refused
anyway. Here the refusal gets words that the client can show, with the port that was perhaps meant. The same
goes for clients that speak TLS where it is not spoken, and for those that do not where it is.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tailrace.model import ProtocolError
from tailrace.model.address import Address, is_unix
from tailrace.net.peer import ConnectionFacts

_METHODS = frozenset(
    struct.unpack(">i", method[:4])[0]
    for method in (b"GET ", b"HEAD", b"POST", b"PUT ", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT")
)
_TYPE = struct.Struct(">I")
_HEAD = struct.Struct(">iH")  # of a Kafka request: its size, and its API's key
_TLS_HANDSHAKE: Final = 0x16
_TLS_MAJOR: Final = 0x03
TLS_ON_PLAIN: Final = (
    "the client speaks TLS to a listener without TLS. Give the client a plain protocol (PLAINTEXT, "
    "SASL_PLAINTEXT, http://), or the listener a certificate: tls = {cert, key}"
)
_KAFKA_KEY_MAX = 0xFF


class SpeaksHttp(ProtocolError):
    """The client sends HTTP."""


class SpeaksTls(ProtocolError):
    """The client begins a TLS handshake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The ports of the node's other listeners; None: not known, or there is none."""

    kafka: int | None = None
    http: int | None = None
    scheme: str = "http"  # https where the HTTP listener has TLS


def size_refused(size: int, size_max: int) -> ProtocolError:
    """The error for a frame of an illegal size."""
    if size in _METHODS:
        return SpeaksHttp("the client sends HTTP")
    if is_tls(_TYPE.pack(size & 0xFFFF_FFFF)):
        return SpeaksTls(TLS_ON_PLAIN)
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
        way_out = f"The console and the REST API are at {neighbours.scheme}://{console}/"
    body = f"This is {own} listener of a Tailrace broker, and it does not speak HTTP. {way_out}\n".encode()
    return _bad_request(body)


def kafka_refusal(frame: bytes | memoryview, neighbours: Neighbours) -> ProtocolError | None:
    """The error for a frame that is none of the native protocol, if it begins as a Kafka request does."""
    if len(frame) < _TYPE.size:
        return None
    key = _TYPE.unpack_from(frame)[0] >> 16
    if not 0 < key <= _KAFKA_KEY_MAX:  # a native type is a small number, which has no key
        return None
    where = f"port {neighbours.kafka}" if neighbours.kafka else "the Kafka port"
    return ProtocolError(f"this is the native listener, and the client speaks Kafka. Connect it to {where}")


# ---- with TLS and without


def is_tls(first: bytes) -> bool:
    """Whether a client's first bytes begin a TLS handshake."""
    return first[:1] == bytes([_TLS_HANDSHAKE]) and first[1:2] in (b"", bytes([_TLS_MAJOR]))


def spoken(first: bytes) -> str:
    """What a client without TLS speaks, by its first bytes."""
    if len(first) >= _TYPE.size and _TYPE.unpack_from(first)[0] in _METHODS:
        return "HTTP"
    if len(first) >= _HEAD.size:
        size, key = _HEAD.unpack_from(first)
        if 0 < size <= 0x00FF_FFFF:
            return "Kafka's protocol" if 0 < key <= _KAFKA_KEY_MAX else "Kafka's or the native protocol"
    return "an unknown protocol"


def encrypted_only(address: Address, *, protocol: str) -> bytes:
    """A whole HTTP response for a client that speaks HTTP without TLS to a TLS listener."""
    if protocol == "http":
        body = f"This port speaks HTTPS. Use https://{address}/\n"
    else:
        body = f"This is a Tailrace listener for the {protocol} protocol over TLS, and not for HTTP.\n"
    return _bad_request(body.encode())


def _bad_request(body: bytes) -> bytes:
    head = (
        "HTTP/1.1 400 Bad Request\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
