"""Offsets that are acknowledged, refused or extended together, as text: `5,7-9`.

The text names single offsets and ranges with both ends, ascending and without overlap. In the program a range
is half-open, as everywhere else: `5,7-9` is [(5, 6), (7, 10)]. A text that is none of this is a BrokerError
with INVALID_REQUEST: the frame around it is sound.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model import BrokerError
from tailrace.wire.native.limit import OFFSET_RANGES_MAX
from tailrace.wire.native.property import refusal, shown

_OFFSET_MAX = 2**63 - 1
_DIGITS_MAX = 19


def read_offsets(text: str) -> list[tuple[int, int]]:
    """The half-open ranges that a text names."""
    if text.count(",") >= OFFSET_RANGES_MAX:
        raise refusal(f"_offsets has over {OFFSET_RANGES_MAX} ranges. Send the others in another frame")
    ranges = []
    least = 0  # what the next range must not begin below
    for piece in text.split(","):
        first, dash, last = piece.partition("-")
        start = _offset(first, text)
        end = (_offset(last, text) if dash else start) + 1
        if not least <= start < end:
            raise _illegal(text, f'"{shown(piece)}" is empty, or not above what stands before it')
        ranges.append((start, end))
        least = end
    return ranges


def write_offsets(ranges: Iterable[tuple[int, int]]) -> str:
    """The text of half-open ranges, which must be ascending and not empty."""
    pieces = [str(start) if end == start + 1 else f"{start}-{end - 1}" for start, end in ranges]
    if not 1 <= len(pieces) <= OFFSET_RANGES_MAX:
        raise refusal(
            f"{len(pieces)} ranges of offsets do not fit into one frame: 1 to {OFFSET_RANGES_MAX} do"
        )
    return ",".join(pieces)


def _offset(digits: str, text: str) -> int:
    # int() would also take signs, spaces, underscores and digits of other scripts.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        raise _illegal(text, f'"{shown(digits)}" is not an offset')
    offset = int(digits)
    if offset >= _OFFSET_MAX:
        raise _illegal(text, f"{offset} is too large for an offset")
    return offset


def _illegal(text: str, cause: str) -> BrokerError:
    return refusal(f'_offsets = "{shown(text)}": {cause}. Write ascending offsets and ranges, such as 5,7-9')
