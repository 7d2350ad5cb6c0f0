"""A read as an Arrow IPC stream, with the columns of Spark's Kafka source (`tailrace.spark.codec`).

    one record batch, and in the schema's metadata
      next_offsets       {"0": 17}      where to go on
      high_watermarks    {"0": 20}
      scanned            5

pyarrow comes with `pip install 'tailrace[spark]'`, and nobody pays for it who does not ask for Arrow.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from tailrace.http.error import Code, HttpError
from tailrace.http.operation import ARROW_STREAM

if TYPE_CHECKING:
    from tailrace.broker.reading import Found
    from tailrace.http.rest.reading import Reading

_MICROSECONDS_MS_MAX = ((1 << 63) - 1) // 1000
_CODEC = "tailrace.spark.codec"


async def arrow_response(topic: str, reading: Reading) -> Response:
    """What was read, as Arrow; 406 where that is not installed."""
    try:
        schema = (
            await asyncio.to_thread(import_module, _CODEC)
        ).KAFKA_SCHEMA  # it takes a while the first time
    except ImportError as error:
        raise HttpError(
            Code.INVALID_REQUEST,
            f"Arrow needs pyarrow on the node ({error}). Try: pip install 'tailrace[spark]'",
            status=406,
        ) from error
    return Response(write_stream(schema, topic, reading), media_type=ARROW_STREAM)


def write_stream(schema: Any, topic: str, reading: Reading) -> bytes:
    """The whole stream; a read is bounded."""
    import pyarrow as pa

    metadata = {
        "next_offsets": msgspec.json.encode(reading.next_offsets),
        "high_watermarks": msgspec.json.encode(reading.high_watermarks),
        "last_stable_offsets": msgspec.json.encode(reading.last_stable_offsets),
        "scanned": str(reading.page.scanned),
    }
    columns = _columns(topic, reading.page.records)
    arrays = [pa.array(columns[field.name], type=field.type) for field in schema]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema.with_metadata(metadata)) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema.with_metadata(metadata)))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _columns(topic: str, found: list[Found]) -> dict[str, list[Any]]:
    return {
        "key": [each.record.key for each in found],
        "value": [each.record.value for each in found],
        "topic": [topic] * len(found),
        "partition": [each.partition for each in found],
        "offset": [each.record.offset for each in found],
        "timestamp": [_microseconds(each) for each in found],
        "timestampType": [int(each.append_time) for each in found],
        "headers": [[{"key": name, "value": value} for name, value in each.record.headers] for each in found],
    }


def _microseconds(found: Found) -> int:
    time_ms = found.record.timestamp
    if abs(time_ms) > _MICROSECONDS_MS_MAX:
        raise HttpError(
            Code.INVALID_REQUEST,
            f"the record at offset {found.record.offset} of partition {found.partition} has timestamp "
            f"{time_ms}, which Arrow cannot tell in microseconds. Read it as JSON",
            status=406,
        )
    return time_ms * 1000
