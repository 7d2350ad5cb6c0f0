"""Our codec against those of kafka-python and aiokafka, both ways, all codecs, through each of our twins."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest
from aiokafka.record.memory_records import MemoryRecords

from tailrace.model import Epoch, Offset
from tailrace.records import (
    Compression,
    NewRecord,
    Record,
    build_batch,
    iter_batches,
    read_batch,
    validate_batch,
    write_marker,
)

with warnings.catch_warnings():
    # Importing kafka-python warns of what it uses itself from Python 3.11 on.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    import kafka.record.default_records as kafka_records

# Enough of each kind: None and empty, one and several bytes of varint, timestamps that go back, odd headers.
RECORDS: list[NewRecord] = [
    (1_700_000_000_000, None, b"value", []),
    (1_700_000_000_001, b"key", None, []),
    (1_699_999_999_000, b"", b"", [("", b""), ("a", None)]),
    (1_800_000_000_000, b"k" * 63, b"v" * 64, [("größe", b"\x00\xff")]),
    (1_700_000_000_002, b"k" * 8192, random.Random(1).randbytes(70_000), [("same", b"1"), ("same", b"2")]),
    *((1_700_000_000_100 + i, b"key %d" % i, b'{"n": %d}' % i, []) for i in range(200)),
]
PRODUCER = {"producer_id": 2**40 + 1, "producer_epoch": 3, "base_sequence": 2**31 - 100}

# Batch class, builder class and codec module of each implementation.
THEIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "kafka-python": (kafka_records.DefaultRecordBatch, kafka_records.DefaultRecordBatchBuilder),
    "aiokafka": (aiokafka_records.DefaultRecordBatch, aiokafka_records.DefaultRecordBatchBuilder),
    "aiokafka without its extension": (
        aiokafka_records._DefaultRecordBatchPy,
        aiokafka_records._DefaultRecordBatchBuilderPy,
    ),
}


def expected(*, base_offset: int = 0, append_time: int | None = None) -> list[Record]:
    return [
        Record(base_offset + index, append_time or timestamp, key, value, tuple(headers))  # type: ignore[arg-type]
        for index, (timestamp, key, value, headers) in enumerate(RECORDS)
    ]


def skip_unless_they_can(name: str, codec: Compression) -> None:
    if name == "kafka-python" and codec is Compression.SNAPPY and not kafka.codec.has_snappy():
        pytest.skip("kafka-python reads and writes snappy only where python-snappy is installed")


def read_by(name: str, data: bytes) -> tuple[Any, list[Record]]:
    batch = THEIRS[name][0](data)
    assert batch.validate_crc()
    return batch, [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in batch
    ]


def written_by(name: str, codec: Compression, *, transactional: bool, **producer: int) -> bytes:
    fields = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, **producer}
    builder = THEIRS[name][1](
        magic=2, compression_type=int(codec), is_transactional=transactional, batch_size=1 << 20, **fields
    )
    for index, (timestamp, key, value, headers) in enumerate(RECORDS):
        assert builder.append(index, timestamp=timestamp, key=key, value=value, headers=list(headers))
    return bytes(builder.build())


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("name", THEIRS)
def test_they_read_what_we_write(each_twin: ModuleType, name: str, codec: Compression) -> None:
    skip_unless_they_can(name, codec)
    data = bytes(build_batch(RECORDS, base_offset=1000, compression=codec, transactional=True, **PRODUCER))  # type: ignore[arg-type]
    batch, records = read_by(name, data)
    assert records == expected(base_offset=1000)
    assert (batch.compression_type, batch.is_transactional) == (codec, True)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == tuple(PRODUCER.values())
    assert (batch.first_timestamp, batch.max_timestamp) == (1_700_000_000_000, 1_800_000_000_000)
    assert batch.next_offset == 1000 + len(RECORDS)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("name", THEIRS)
def test_we_read_what_they_write(each_twin: ModuleType, name: str, codec: Compression) -> None:
    skip_unless_they_can(name, codec)
    batch = validate_batch(written_by(name, codec, transactional=True, **PRODUCER), bytes_max=1 << 20)
    assert list(batch.records()) == expected()
    assert (batch.compression, batch.is_transactional) == (codec, True)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == tuple(PRODUCER.values())
    assert (batch.base_timestamp, batch.max_timestamp) == (1_700_000_000_000, 1_800_000_000_000)
    assert batch.last_offset_delta + 1 == batch.count == len(RECORDS)


@pytest.mark.parametrize("name", THEIRS)
def test_uncompressed_batches_are_the_same_bytes(each_twin: ModuleType, name: str) -> None:
    ours = build_batch(RECORDS, leader_epoch=0, **PRODUCER)  # type: ignore[arg-type]
    theirs = bytearray(written_by(name, Compression.NONE, transactional=False, **PRODUCER))
    theirs[12:16] = bytes(4)  # aiokafka leaves another leader epoch, which the broker assigns anyway
    assert ours == theirs


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("name", THEIRS)
def test_they_read_what_the_broker_has_patched(name: str, codec: Compression) -> None:
    """A batch of theirs gets its offset and the broker's time, as on the way into a log, and goes back."""
    skip_unless_they_can(name, codec)
    batch = read_batch(written_by(name, codec, transactional=False))
    batch.assign(Offset(5_000_000_000), Epoch(4))
    batch.stamp_append_time(1_900_000_000_000)
    theirs, records = read_by(name, bytes(batch.data))
    assert records == expected(base_offset=5_000_000_000, append_time=1_900_000_000_000)
    assert theirs.timestamp_type == 1


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("commit", [False, True])
def test_they_see_our_markers(name: str, commit: bool) -> None:
    marker = write_marker(7, 0, commit=commit, coordinator_epoch=3, timestamp_ms=1)
    batch, records = read_by(name, bytes(marker.data))
    assert batch.is_control_batch
    assert batch.is_transactional
    assert records[0].key == bytes([0, 0, 0, commit])
    assert records[0].value == b"\x00\x00\x00\x00\x00\x03"


def test_they_walk_the_batches_that_we_walk() -> None:
    buffer = bytes(build_batch(RECORDS[:3]) + build_batch(RECORDS[3:], base_offset=3))
    theirs = MemoryRecords(buffer)
    offsets = []
    while theirs.has_next():
        offsets += [record.offset for record in theirs.next_batch()]
    ours = [record.offset for batch in iter_batches(buffer) for record in batch.records()]
    assert ours == offsets == list(range(len(RECORDS)))
