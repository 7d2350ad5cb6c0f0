"""The native protocol as bytes: messages of named texts and a body, the same frame for all, both ways.

    type.py             which messages there are
    limit.py            their bounds
    frame.py            the frame, and a stream cut into frames
    property.py         the texts of a message
    record.py           a record's key, value and headers as properties and body
    data.py             a delivery, written fast
    entry.py            many messages in one PUBLISH_BATCH
    offset_ranges.py    many offsets in one acknowledgement
    error.py            ERROR frames
    json_frame.py       a frame as a JSON object, for text messages of a WebSocket

No I/O, no state but `FrameReader`'s. docs/protocol/native.md describes every byte. Reading what a stranger
sent gives a message or one of two errors. ProtocolError: the framing is broken (lengths, UTF-8, illegal or
repeated keys), and the connection closes. BrokerError with INVALID_REQUEST: a sound frame holds content that
makes no sense (offsets, base64), an ERROR answers it, and the connection goes on. Whatever cannot be written
is a BrokerError too.

A writer gives bytes of its own. A reader's properties are new strings; its bodies are slices of what it was
given, views if that was a memoryview.
"""

from tailrace.wire.native.data import write_data, write_data_prefix
from tailrace.wire.native.entry import ENTRY_BYTES_MIN, Entry, read_entries, write_entries
from tailrace.wire.native.error import ErrorReply, read_error, write_error
from tailrace.wire.native.frame import Frame, FrameReader, read_frame, write_frame
from tailrace.wire.native.limit import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    LENGTH_BYTES,
    OFFSET_RANGES_MAX,
    PROPERTIES_BYTES_MAX,
    PROPERTIES_MAX,
    RECORD_PROPERTIES_BYTES_MAX,
    RECORD_PROPERTIES_MAX,
)
from tailrace.wire.native.offset_ranges import read_offsets, write_offsets
from tailrace.wire.native.property import read_properties, write_properties
from tailrace.wire.native.record import Header, properties_of_record, record_of_properties
from tailrace.wire.native.type import MessageType, type_name

__all__ = [
    "ENTRY_BYTES_MIN",
    "FRAME_BYTES_MAX",
    "FRAME_BYTES_MIN",
    "LENGTH_BYTES",
    "OFFSET_RANGES_MAX",
    "PROPERTIES_BYTES_MAX",
    "PROPERTIES_MAX",
    "RECORD_PROPERTIES_BYTES_MAX",
    "RECORD_PROPERTIES_MAX",
    "Entry",
    "ErrorReply",
    "Frame",
    "FrameReader",
    "Header",
    "MessageType",
    "properties_of_record",
    "read_entries",
    "read_error",
    "read_frame",
    "read_offsets",
    "read_properties",
    "record_of_properties",
    "type_name",
    "write_data",
    "write_data_prefix",
    "write_entries",
    "write_error",
    "write_frame",
    "write_offsets",
    "write_properties",
]
