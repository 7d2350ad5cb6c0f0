"""The outside of a Kafka message: the size prefix and the two headers.

    request     size:int32 | api_key:int16 | api_version:int16 | correlation_id:int32 | client_id | tags
                | body
    response    size:int32 | correlation_id:int32 | tags | body

The size counts what follows it. There are tags in flexible versions, but never in an answer to ApiVersions: a
client must be able to read that one before it knows what the broker speaks. The client id keeps its classic
form, a length of two bytes, in all versions.
"""

from __future__ import annotations

import struct

import msgspec

from tailrace.model import ProtocolError
from tailrace.wire.kafka.api import API_VERSIONS, APIS
from tailrace.wire.kafka.tag import skip_tags

_REQUEST_HEAD = struct.Struct(">hhih")
_API_AND_CORRELATION = struct.Struct(">hhi")
_SIZE_AND_REQUEST_HEAD = struct.Struct(">ihhih")
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_CORRELATION = struct.Struct(">i")


class RequestHeader(msgspec.Struct, gc=False):
    """What stands in front of every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: memoryview) -> tuple[RequestHeader, memoryview]:
    """The header of a frame, and the body behind it.

    An API or a version that is not served is a ProtocolError, because nobody knows how to answer it. The one
    exception is ApiVersions, which is answered with what we do serve: its header then ends behind the
    correlation id, and its body is empty.
    """
    try:
        key, version, correlation_id, size = _REQUEST_HEAD.unpack_from(frame)
        api = APIS.get(key)
        if api is None or not api.serves(version):
            return _unserved(key, version, correlation_id)
        at = _REQUEST_HEAD.size
        if size < 0:
            client_id = None
        else:
            client_id = str(frame[at : at + size], "utf-8")
            at += size
        if version >= api.flexible_from:
            at = skip_tags(frame, at) if frame[at] else at + 1
    except (struct.error, IndexError) as error:
        raise ProtocolError("a request ends inside its header") from error
    except UnicodeDecodeError as error:
        raise ProtocolError("the client id of a request is not UTF-8") from error
    if size < -1 or at > len(frame):
        raise ProtocolError(f"the client id of a request cannot have {size} bytes")
    return RequestHeader(key, version, correlation_id, client_id), frame[at:]


def _unserved(key: int, version: int, correlation_id: int) -> tuple[RequestHeader, memoryview]:
    if key != API_VERSIONS:
        name = APIS[key].name if key in APIS else f"API {key}"
        raise ProtocolError(f"{name} version {version} is not served")
    return RequestHeader(key, version, correlation_id, None), memoryview(b"")


def write_request(key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """A whole request, from its size prefix to the end of its body."""
    head = write_request_head(key, version, correlation_id, client_id, len(body))
    return head + body


def write_request_head(
    key: int, version: int, correlation_id: int, client_id: str | None, body_size: int
) -> bytes:
    """The size prefix and the header of a request whose body is written in pieces."""
    name = b"" if client_id is None else client_id.encode()
    tags = b"\0" if version >= APIS[key].flexible_from else b""
    size = _REQUEST_HEAD.size + len(name) + len(tags) + body_size
    length = -1 if client_id is None else len(name)
    return _SIZE_AND_REQUEST_HEAD.pack(size, key, version, correlation_id, length) + name + tags


def write_response_head(key: int, version: int, correlation_id: int, body_size: int) -> bytes:
    """The size prefix and the header of a response."""
    if version >= APIS[key].flexible_from and key != API_VERSIONS:
        return _SIZE_AND_CORRELATION.pack(5 + body_size, correlation_id) + b"\0"
    return _SIZE_AND_CORRELATION.pack(4 + body_size, correlation_id)


def read_response_head(key: int, version: int, frame: memoryview) -> tuple[int, memoryview]:
    """The correlation id of a response frame, and the body behind its header."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        at = _CORRELATION.size
        if version >= APIS[key].flexible_from and key != API_VERSIONS:
            at = skip_tags(frame, at)
    except (struct.error, IndexError) as error:
        raise ProtocolError("a response ends inside its header") from error
    return correlation_id, frame[at:]
