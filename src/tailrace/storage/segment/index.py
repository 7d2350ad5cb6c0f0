"""The sparse index of one segment, with a checksum of every byte.

A segment is cut into *spans* of whole batches: one span ends as soon as it holds `interval_bytes`, and a
batch over 4 KiB is a span by itself. Entry k says where span k ends: the offset that follows it, the
position, a checksum, and the greatest timestamp in the segment so far. So an offset or a time is found by
bisection and a walk through one span; and since the greatest timestamp so far never falls, the first record
at or after a time lies in the first span that reaches it, whatever order the timestamps came in.

The checksum covers all bytes of the span: also the first 21 of each batch, which the batch's own CRC leaves
out, and at the price of one CRC call for a span of many small batches. A large batch is not summed twice: for
it the checksum covers those 21 bytes, among which is the CRC of the rest.

On disk, little-endian, `.index` and `.timeindex` beside the segment:

    0  8s  "TRINDEX1" / "TRTIMES1"     8  i64 base offset
   16      entries:  u32 offset - base, u32 position | 2^31 if a single large batch, u32 checksum
           or        i64 greatest timestamp so far
           at the end, once the segment is sealed:
           8s "TRSEALED", u32 entries, i64 base offset of the following segment, u32 CRC32C of the
           entries and that offset

Where batches are stored encrypted, checksums and positions are of the stored bytes, and readers get less than
lies between two positions. The index then also knows where each span ends for them (`plain`), which is what
reads are planned by. Its file is "TRINDEX2", each entry of which has another u32: that place.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from tailrace.records import ENCRYPTED_BIT, UNCHECKED_BYTES, Batch, check_spans, crc32c
from tailrace.storage.encryption.layout import OVERHEAD_BYTES

LARGE_BATCH_BYTES = 4096
POSITION_MAX = (1 << 31) - 1
NO_TIMESTAMP = -(1 << 63)

_SINGLE = 1 << 31
_HEADER = struct.Struct("<8sq")
_FOOTER = struct.Struct("<8sIqI")
_FOLLOWING = struct.Struct("<q")
FOOTER_BYTES = _FOOTER.size
_INDEX, _ENCRYPTED_INDEX, _TIMES, _SEALED = b"TRINDEX1", b"TRINDEX2", b"TRTIMES1", b"TRSEALED"
INDEX_ENTRY_BYTES, TIME_ENTRY_BYTES = 12, 8
ENCRYPTED_INDEX_ENTRY_BYTES = 16
HEADER_BYTES = _HEADER.size


class SpanIndex:
    """Where the spans of a segment end. Entry 0 is the beginning of the segment, before any span.

    Grows only; a truncation makes a new one, so that a reader who holds this one keeps what it planned with.
    """

    __slots__ = (
        "base",
        "checksums",
        "cuts",
        "encrypted",
        "end",
        "following",
        "interval_bytes",
        "max_timestamp",
        "offsets",
        "open_crc",
        "overhead",
        "plain",
        "positions",
        "singles",
        "times",
    )

    def __init__(self, base: int, interval_bytes: int) -> None:
        self.base = base
        self.interval_bytes = interval_bytes
        self.offsets = array("I", [0])
        self.positions = array("I", [0])
        self.checksums = array("I", [0])
        self.times = array("q", [NO_TIMESTAMP])
        self.singles = bytearray(1)
        self.plain = self.positions  # where the spans end for readers; another array once it is encrypted
        self.encrypted = False  # it holds a batch that is stored encrypted
        self.overhead = 0  # bytes up to `end` that readers do not get
        self.end = 0  # position behind the last batch added
        self.open_crc = 0  # checksum of the bytes from the last entry to `end`
        self.max_timestamp = NO_TIMESTAMP
        self.cuts = 0  # truncations of the segment that came before it
        self.following: int | None = None  # base offset of the segment that follows, once sealed

    def __len__(self) -> int:
        """Closed spans."""
        return len(self.offsets) - 1

    @property
    def closed_position(self) -> int:
        return self.positions[-1]

    @property
    def closed_offset(self) -> int:
        return self.base + self.offsets[-1]

    def add(self, batch: Batch) -> None:
        """Take note of a batch at `end`."""
        size = batch.size
        if size > LARGE_BATCH_BYTES:
            self.close_open(batch.base_offset)
            self._note_time(batch)
            self.end += size
            if batch.attributes & ENCRYPTED_BIT:
                self._note_overhead()
            self.open_crc = crc32c(batch.data[:UNCHECKED_BYTES])
            self._close(batch.next_offset, single=1)
            return
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp
        self.end += size
        if batch.attributes & ENCRYPTED_BIT:
            self._note_overhead()
        self.open_crc = crc32c(batch.data, self.open_crc)
        if self.end - self.positions[-1] >= self.interval_bytes:
            self._close(batch.next_offset, single=0)

    def seal(self, following: int) -> None:
        """The segment is complete, and the next one begins at the offset `following`."""
        self.close_open(following)
        self.following = following

    def close_open(self, next_offset: int) -> None:
        """End the open span, if there is one, before `next_offset`."""
        if self.end > self.positions[-1]:
            self._close(next_offset, single=0)

    def _note_overhead(self) -> None:
        if not self.encrypted:
            self.encrypted = True
            self.plain = self.positions[:]
        self.overhead += OVERHEAD_BYTES

    def _note_time(self, batch: Batch) -> None:
        if batch.max_timestamp > self.max_timestamp:
            self.max_timestamp = batch.max_timestamp

    def _close(self, next_offset: int, single: int) -> None:
        self.offsets.append(next_offset - self.base)
        self.positions.append(self.end)
        if self.encrypted:
            self.plain.append(self.end - self.overhead)
        self.checksums.append(self.open_crc)
        self.times.append(self.max_timestamp)
        self.singles.append(single)
        self.open_crc = 0

    def add_unreadable(
        self, *, offset: int, size: int, next_offset: int, header: memoryview | None = None
    ) -> None:
        """Take note of bytes that are not what was written: reading them is an error, not their content.

        They are a span whose checksum holds for the header that was acknowledged, and so for no other bytes.
        """
        self.close_open(offset)
        self.end += size
        self.open_crc = crc32c(header[:UNCHECKED_BYTES]) if header is not None else 0
        self._close(next_offset, single=1)

    def cut(self, position: int, *, offset: int) -> SpanIndex:
        """A copy that knows only the spans that end at or before `position` and `offset`.

        What is open behind them must be added again. A span may end at the position and not at the offset:
        where a gap follows it, that a truncation ends in.
        """
        keep = min(bisect_right(self.positions, position), bisect_right(self.offsets, offset - self.base))
        twin = SpanIndex(self.base, self.interval_bytes)
        twin.offsets = self.offsets[:keep]
        twin.plain = twin.positions = self.positions[:keep]
        if self.encrypted and keep > 1:
            twin.plain, twin.encrypted = self.plain[:keep], True
            twin.overhead = twin.positions[-1] - twin.plain[-1]
        twin.checksums = self.checksums[:keep]
        twin.times = self.times[:keep]
        twin.singles = self.singles[:keep]
        twin.cuts = self.cuts + 1
        twin.end = twin.positions[-1]
        twin.max_timestamp = twin.times[-1]
        return twin

    def span_of(self, offset: int) -> int:
        """The span that holds `offset`; in a gap one of its neighbours; `len(self)` if it is not closed."""
        return max(bisect_right(self.offsets, offset - self.base) - 1, 0)  # 0 for a gap before the segment

    def span_at_time(self, timestamp_ms: int) -> int:
        """The first span that holds a timestamp at or after this one; `len(self)` if no closed one does."""
        return (
            max(bisect_left(self.times, timestamp_ms) - 1, 0) if self.times[-1] >= timestamp_ms else len(self)
        )

    def check(self, first: int, last: int, data: memoryview) -> int | None:
        """The first of the spans `first` to `last` - 1, which fill `data`, that is not what was written."""
        bad = check_spans(data, self.positions, self.checksums, self.singles, first, last)
        return None if bad < 0 else bad

    @property
    def memory_bytes(self) -> int:
        """About what it takes in memory."""
        return len(self.offsets) * (self.entry_bytes + TIME_ENTRY_BYTES + 1)

    @property
    def entry_bytes(self) -> int:
        """What an entry takes in its file."""
        return index_entry_bytes(encrypted=self.encrypted)

    # ---- as files

    def write_entries(self, first: int) -> tuple[bytes, bytes]:
        """The bytes of the entries from number `first` (counted from 0) on, for either file."""
        start = first + 1
        places = array("I", bytes(self.entry_bytes * (len(self.offsets) - start)))
        step = self.entry_bytes // 4
        places[0::step] = self.offsets[start:]
        pairs = zip(self.positions[start:], self.singles[start:], strict=True)
        places[1::step] = array("I", [position | (single << 31) for position, single in pairs])
        places[2::step] = self.checksums[start:]
        if self.encrypted:
            places[3::step] = self.plain[start:]
        return _little(places), _little(self.times[start:])


@dataclass(frozen=True, slots=True)
class IndexState:
    """How many entries of an unsealed index are durable, and their CRCs."""

    entries: int = 0
    index_crc: int = 0
    time_crc: int = 0

    def cut(self, index: SpanIndex) -> IndexState:
        """What is left of it when the index was cut shorter."""
        if self.entries <= len(index):
            return self
        places, times = index.write_entries(0)
        return IndexState(len(index), crc32c(places), crc32c(times))


def index_entry_bytes(*, encrypted: bool) -> int:
    """What an entry of `.index` takes."""
    return ENCRYPTED_INDEX_ENTRY_BYTES if encrypted else INDEX_ENTRY_BYTES


def write_headers(base: int, *, encrypted: bool = False) -> tuple[bytes, bytes]:
    return _HEADER.pack(_ENCRYPTED_INDEX if encrypted else _INDEX, base), _HEADER.pack(_TIMES, base)


def is_of_encrypted(index: bytes) -> bool:
    """Whether the bytes of an `.index` say that its segment is stored encrypted."""
    return index[: len(_ENCRYPTED_INDEX)] == _ENCRYPTED_INDEX


def write_footers(state: IndexState, following: int) -> tuple[bytes, bytes]:
    """What seals the two files of a segment that `following` follows."""
    tail = _FOLLOWING.pack(following)
    return (
        _FOOTER.pack(_SEALED, state.entries, following, crc32c(tail, state.index_crc)),
        _FOOTER.pack(_SEALED, state.entries, following, crc32c(tail, state.time_crc)),
    )


def read_following(data: bytes) -> int | None:
    """The base offset that the footer at the end of an index file names; its checksum is not looked at."""
    if len(data) < HEADER_BYTES + FOOTER_BYTES:
        return None
    seal, _, following, _ = _FOOTER.unpack_from(data, len(data) - FOOTER_BYTES)
    return following if seal == _SEALED else None


def read_index(
    index: bytes, times: bytes, *, base: int, interval_bytes: int, state: IndexState | None
) -> SpanIndex | None:
    """What the two files hold: of a sealed segment, or up to `state` of one that was not sealed.

    None if a byte is wrong or missing: then the index is made again from the segment.
    """
    following = None
    if state is None:
        following = read_following(index)
        if following is None or (state := _sealed_state(index, times, following)) is None:
            return None
    encrypted = is_of_encrypted(index)
    magic, size = _ENCRYPTED_INDEX if encrypted else _INDEX, index_entry_bytes(encrypted=encrypted)
    places = _read_entries(index, magic, base, state.entries * size, state.index_crc)
    moments = _read_entries(times, _TIMES, base, state.entries * TIME_ENTRY_BYTES, state.time_crc)
    if places is None or moments is None:
        return None
    found = SpanIndex(base, interval_bytes)
    numbers = _native("I", places)
    step = size // 4
    found.offsets.extend(numbers[0::step])
    flagged = numbers[1::step]
    found.positions.extend(place & POSITION_MAX for place in flagged)
    found.singles.extend(place >> 31 for place in flagged)
    found.checksums.extend(numbers[2::step])
    if encrypted:
        found.encrypted = True
        found.plain = array("I", [0])
        found.plain.extend(numbers[3::step])
        found.overhead = found.positions[-1] - found.plain[-1]
    found.times.extend(_native("q", moments))
    found.end = found.positions[-1]
    found.max_timestamp = found.times[-1]
    found.following = following
    return found


def _sealed_state(index: bytes, times: bytes, following: int) -> IndexState | None:
    """The state that both footers seal, or None if they do not agree with what lies before them."""
    size = index_entry_bytes(encrypted=is_of_encrypted(index))
    entries, rest = divmod(len(index) - HEADER_BYTES - FOOTER_BYTES, size)
    if rest or len(times) != HEADER_BYTES + entries * TIME_ENTRY_BYTES + FOOTER_BYTES:
        return None
    state = IndexState(
        entries, crc32c(index[HEADER_BYTES:-FOOTER_BYTES]), crc32c(times[HEADER_BYTES:-FOOTER_BYTES])
    )
    footers = write_footers(state, following)
    return state if (index[-FOOTER_BYTES:], times[-FOOTER_BYTES:]) == footers else None


def _read_entries(data: bytes, magic: bytes, base: int, length: int, crc: int) -> bytes | None:
    if len(data) < HEADER_BYTES + length or data[:HEADER_BYTES] != _HEADER.pack(magic, base):
        return None
    entries = data[HEADER_BYTES : HEADER_BYTES + length]
    return entries if crc32c(entries) == crc else None


def _little(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _native(code: str, data: bytes) -> array[int]:
    numbers = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
