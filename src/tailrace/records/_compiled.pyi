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
def encode_kept(
    records: Sequence[Record], *, base_offset: int, base_timestamp: int, reserve: int
) -> tuple[bytearray, int]: ...
