"""A small JSON file with a checksum, which is itself a JSON document.

    {"crc32c":"e3069283","content":{...}}\n

The checksum is over the bytes of the content. Everything else has exactly one form, so a flipped bit anywhere
in the file is found.
"""

from __future__ import annotations

from tailrace.records import crc32c

_BEGIN, _MIDDLE, _END = b'{"crc32c":"', b'","content":', b"}\n"
_CRC_CHARACTERS = 8


def write_checksummed(content: str) -> bytes:
    """The file; `content` is a JSON text."""
    data = content.encode()
    return b"".join((_BEGIN, b"%08x" % crc32c(data), _MIDDLE, data, _END))


def read_checksummed(data: bytes) -> str | None:
    """The content; None if a byte is wrong, missing or too many."""
    content_at = len(_BEGIN) + _CRC_CHARACTERS + len(_MIDDLE)
    content = data[content_at : -len(_END)]
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if write_checksummed(text) == data else None
