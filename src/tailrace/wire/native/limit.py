"""Bounds of native messages that both sides know. What a frame may weigh in all is a setting of its reader.

A client's frame is held to all of them. In what a server sends, properties are bounded by the frame alone: a
record that came in through another listener may have a key of a megabyte, and is delivered all the same.
"""

from __future__ import annotations

LENGTH_BYTES = 4
"""The length in front of a frame, which it does not count."""

FRAME_BYTES_MIN = 28
"""A frame without properties and body: type, sequence, timestamp and two lengths."""

FRAME_BYTES_MAX = 100 * 1024 * 1024
"""What a reader takes unless it is told otherwise."""

PROPERTIES_BYTES_MAX = 64 * 1024
"""All properties of one message, encoded."""

PROPERTIES_MAX = 256
"""Their number."""

# A frame has properties of its own beside those of the message in it: names, numbers, a topic of 249 letters.
_OWN_BYTES = 1024
_OWN_PROPERTIES = 16

RECORD_PROPERTIES_BYTES_MAX = PROPERTIES_BYTES_MAX - _OWN_BYTES
"""What a message's key and headers may take in a client's frame."""

RECORD_PROPERTIES_MAX = PROPERTIES_MAX - _OWN_PROPERTIES
"""Headers that may travel as properties; where there are more, all travel in `_headers` alone."""

OFFSET_RANGES_MAX = 1_000
"""Ranges in one `_offsets`: as many as fit into the properties even if every number has nineteen digits."""
