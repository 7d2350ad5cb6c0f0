"""The frame: what every native message looks like, and how a stream is cut into frames.

    byte  0   total length        uint32   of everything behind this field
          4   type                uint32   MessageType
          8   sequence            int64    a request's own number, its reply's, or the offset of a DATA
         16   timestamp           int64    ms since 1970
         24   properties length   uint32
         28   properties          key=value NUL, one after the other (property.py)
          .   body length         uint32
          .   body                anything

All numbers are big-endian. The three lengths must add up exactly; a frame in which they do not is a
ProtocolError, as nobody can say where the next one begins.

Who owns what: a frame's properties are its own. Its body is a slice of what was read: of a memoryview it is a
view, without a copy, and good as long as the buffer behind it is left alone. What `FrameReader` hands out is
never overwritten, and stays in memory as long as somebody holds the body.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import msgspec

from tailrace.model import ProtocolError
from tailrace.wire.native.limit import FRAME_BYTES_MIN, LENGTH_BYTES, PROPERTIES_BYTES_MAX
from tailrace.wire.native.property import read_properties, refusal, write_properties
from tailrace.wire.native.type import type_name

_HEAD = struct.Struct(">IqqI")
_LENGTH_AND_HEAD = struct.Struct(">IIqqI")
_LENGTH = struct.Struct(">I")
_HEAD_BYTES = _HEAD.size

_read_head = _HEAD.unpack_from
_read_length = _LENGTH.unpack_from
_write_head = _LENGTH_AND_HEAD.pack
_write_length = _LENGTH.pack


class Frame(msgspec.Struct, gc=False):
    """One message, either way."""

    type: int
    sequence: int
    timestamp: int
    properties: dict[str, str]
    body: bytes | memoryview

    def __repr__(self) -> str:
        return f"<{type_name(self.type)} {self.sequence} {self.properties} {len(self.body)} bytes>"


def read_frame(view: bytes | memoryview, *, properties_bytes_max: int = PROPERTIES_BYTES_MAX) -> Frame:
    """The frame that these bytes are, without the length in front of them."""
    size = len(view)
    if size < FRAME_BYTES_MIN:
        raise ProtocolError(
            f"a frame of {size} bytes is shorter than an empty one, which has {FRAME_BYTES_MIN}"
        )
    number, sequence, timestamp, properties_bytes = _read_head(view)
    body_at = _HEAD_BYTES + properties_bytes + LENGTH_BYTES
    if body_at > size:
        raise ProtocolError(f"{properties_bytes} bytes of properties do not fit into a frame of {size} bytes")
    (body_bytes,) = _read_length(view, body_at - LENGTH_BYTES)
    if body_at + body_bytes != size:
        raise ProtocolError(
            f"a frame says that its body has {body_bytes} bytes, and has room for exactly {size - body_at}"
        )
    if sequence < 0:
        raise ProtocolError(f"a sequence of {sequence} is below 0")
    properties = {}
    if properties_bytes:
        end = _HEAD_BYTES + properties_bytes
        properties = read_properties(view[_HEAD_BYTES:end], bytes_max=properties_bytes_max)
    return Frame(number, sequence, timestamp, properties, view[body_at:])


def write_frame(
    type: int,
    *,
    sequence: int = 0,
    timestamp: int = 0,
    properties: Mapping[str, str] | bytes = b"",
    body: bytes | bytearray | memoryview = b"",
) -> bytes:
    """A whole frame with the length in front. Properties may be given encoded, to be written many times."""
    encoded = properties if isinstance(properties, bytes) else write_properties(properties)
    properties_bytes = len(encoded)
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise refusal(
            f"the properties of a {type_name(type)} have {properties_bytes} bytes, which is over "
            f"{PROPERTIES_BYTES_MAX}. Put large content into the body"
        )
    return write_frame_parts(type, sequence=sequence, timestamp=timestamp, properties=encoded, body=body)


def write_frame_parts(
    type: int, *, sequence: int, timestamp: int, properties: bytes, body: bytes | bytearray | memoryview
) -> bytes:
    """A whole frame of parts that were checked, or that a server may send whatever their size."""
    properties_bytes = len(properties)
    body_bytes = len(body)
    total = FRAME_BYTES_MIN + properties_bytes + body_bytes
    head = _write_head(total, type, sequence, timestamp, properties_bytes)
    return b"".join((head, properties, _write_length(body_bytes), body))


class FrameReader:
    """Cuts a stream into frames. Give it what arrived, then take frames until there is none.

    A frame is refused as soon as its length is known to be wrong, before it is collected. After a
    ProtocolError the stream is lost, and every further `next_frame` raises again. Properties are bounded by
    the frame alone unless it is told otherwise, as befits a client.
    """

    __slots__ = ("_at", "_data", "_frame_bytes_max", "_partial", "_properties_bytes_max", "_wanted_bytes")

    def __init__(self, frame_bytes_max: int, *, properties_bytes_max: int | None = None) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._properties_bytes_max = frame_bytes_max if properties_bytes_max is None else properties_bytes_max
        self._data = memoryview(b"")  # frames are cut from here, from _at on
        self._at = 0
        self._partial: bytearray | None = None  # a frame that has begun; _data is then used up
        self._wanted_bytes = LENGTH_BYTES  # of the partial one, before it is worth a look

    @property
    def pending_bytes(self) -> int:
        """What has arrived and was not handed out. Above 0 at the end of a stream: a frame was cut off."""
        return len(self._data) - self._at if self._partial is None else len(self._partial)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """These bytes came next. Bytes are kept as they are, anything else is copied."""
        if self._partial is not None:
            self._partial += data
        elif self._at < len(self._data):
            self._keep(LENGTH_BYTES)
            self.feed(data)
        else:
            self._data = memoryview(data if isinstance(data, bytes) else bytes(data))
            self._at = 0

    def next_frame(self) -> Frame | None:
        """The next frame, or None as long as it is not whole."""
        if self._partial is not None:
            if len(self._partial) < self._wanted_bytes:
                return None
            self._data, self._at, self._partial = memoryview(self._partial), 0, None
        at, data = self._at, self._data
        available = len(data) - at
        if available < LENGTH_BYTES:
            return self._keep(LENGTH_BYTES)
        (size,) = _read_length(data, at)
        if not FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
            raise ProtocolError(
                f"a frame of {size} bytes is not between {FRAME_BYTES_MIN} and {self._frame_bytes_max}"
            )
        if available < LENGTH_BYTES + size:
            return self._keep(LENGTH_BYTES + size)
        begin = at + LENGTH_BYTES
        frame = read_frame(data[begin : begin + size], properties_bytes_max=self._properties_bytes_max)
        self._at = begin + size
        return frame

    def _keep(self, wanted_bytes: int) -> Frame | None:
        """Put what is left aside until so many bytes are there; None, as there is no frame."""
        if self._at < len(self._data):
            self._partial = bytearray(self._data[self._at :])
            self._wanted_bytes = wanted_bytes
        self._data, self._at = memoryview(b""), 0
        return None
