from array import array
from collections.abc import Iterable, Iterator, Sequence

from tailrace.records.record import BytesLike, NewRecord, Record

def read_varint(data: BytesLike, position: int) -> tuple[int, int]: ...
def read_varlong(data: BytesLike, position: int) -> tuple[int, int]: ...
def write_varint(out: bytearray, value: int) -> None: ...
def decode_records(
    payload: BytesLike,
    *,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    count: int,
    last_delta: int,
) -> Iterator[Record]: ...
def encode_records(records: Iterable[NewRecord], *, reserve: int) -> tuple[bytearray, int, int, int]: ...

CHECKS_SPANS: bool
"""Whether this processor has the instruction that `check_spans` is made of."""

def check_spans(
    data: memoryview, positions: array[int], checksums: array[int], singles: bytearray, first: int, last: int
) -> int: ...
def encode_kept(
    records: Sequence[Record], *, base_offset: int, base_timestamp: int, reserve: int
) -> tuple[bytearray, int]: ...
