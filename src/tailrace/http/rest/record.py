"""/api/v1/topics/{topic}/records: records go in (`produce`), are read (`reading`), and the oldest go.

A read answers with JSON, or for whoever accepts application/vnd.apache.arrow.stream with Arrow (`arrow`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from tailrace.broker.partition import UP_TO_HIGH_WATERMARK
from tailrace.broker.reading import record_bytes
from tailrace.broker.topic import Topic
from tailrace.http.error import Code
from tailrace.http.operation import ARROW_STREAM, NDJSON, TEXT_END, Call, NoBody, Operation
from tailrace.http.rest.arrow import arrow_response
from tailrace.http.rest.produce import BINARY, ProduceBody, Produced, ProduceQuery, produce
from tailrace.http.rest.reading import Reading, ReadQuery, read_records
from tailrace.http.rest.topic import topic_of
from tailrace.model import TopicPartition
from tailrace.model.operation import Operation as AclOperation
from tailrace.wire.json.record_json import RecordRow, view_record


class RecordPage(msgspec.Struct, frozen=True):
    """Records, and where to go on; what there is one of for each partition is null where several are read."""

    records: list[RecordRow]
    next_offset: int | None
    next_offsets: dict[str, int]
    high_watermark: int | None
    high_watermarks: dict[str, int]
    last_stable_offset: int | None
    last_stable_offsets: dict[str, int]
    scanned: int  # records that were looked at


class DeleteQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which records shall be gone."""

    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    before: Annotated[
        str, msgspec.Meta(pattern=f"^(latest|[0-9]{{1,19}}){TEXT_END}", description="an offset, or latest")
    ]


class StartView(msgspec.Struct, frozen=True):
    """Where a partition begins now."""

    partition: int
    start_offset: int


async def read(call: Call[ReadQuery, NoBody]) -> RecordPage | Response:
    topic = topic_of(call.access, call.params["topic"], AclOperation.READ)
    reading = await read_records(call, topic)
    _count(topic, reading)
    if ARROW_STREAM in call.request.headers.get("accept", ""):
        return await arrow_response(topic.name, reading)
    return page_of(topic.name, reading)


def page_of(topic: str, reading: Reading) -> RecordPage:
    """What was read, as JSON says it."""
    next_offsets, ends = reading.next_offsets, reading.high_watermarks
    stable = reading.last_stable_offsets
    alone = len(next_offsets) == 1
    return RecordPage(
        records=[view_record(topic, each.partition, each.record) for each in reading.page.records],
        next_offset=next(iter(next_offsets.values())) if alone else None,
        next_offsets={str(index): offset for index, offset in next_offsets.items()},
        high_watermark=next(iter(ends.values())) if alone else None,
        high_watermarks={str(index): end for index, end in ends.items()},
        last_stable_offset=next(iter(stable.values())) if alone else None,
        last_stable_offsets={str(index): end for index, end in stable.items()},
        scanned=reading.page.scanned,
    )


async def delete_records(call: Call[DeleteQuery, NoBody]) -> StartView:
    topic = topic_of(call.access, call.params["topic"], AclOperation.DELETE)
    query = call.query
    before = UP_TO_HIGH_WATERMARK if query.before == "latest" else int(query.before)
    tp = TopicPartition(topic.name, query.partition)
    start = await call.service.in_time(call.access.delete_records(tp, before))
    return StartView(partition=query.partition, start_offset=start)


def _count(topic: Topic, reading: Reading) -> None:
    counters = topic.partitions[0].counters
    counters.records_out += len(reading.page.records)
    counters.bytes_out += sum(record_bytes(each.record) for each in reading.page.records)


_RECORDS = "/api/v1/topics/{topic}/records"

OPERATIONS = (
    Operation(
        method="POST",
        path=_RECORDS,
        name="produceRecords",
        tag="records",
        summary="Store records",
        doc=(
            "Answered when all of them are durable, with an offset for each, in their order. A record "
            "goes to the partition that it names, else by its key as Kafka's producers choose, else with "
            "the others of the request to one partition in turn. A topic that does not exist is made, "
            "where the node allows that. Of JSON, a request is stored whole or, if one of its records "
            "cannot be stored, not at all; after BROKER_NOT_AVAILABLE some of it may be stored. With "
            "`atomic` it is one transaction: all of it becomes visible at one moment, in all partitions, and "
            "of a request that is refused nothing is visible, ever. There is no "
            "idempotence here: a request whose answer was lost "
            "may have been stored, and is stored again when it is sent again. `key` and `partition` are "
            "for records that have none of their own, as a body of plain bytes."
        ),
        handler=produce,
        query=ProduceQuery,
        body=ProduceBody,
        answer=Produced,
        takes={
            NDJSON: (
                "A record per line, as in `records`, for as long as you like. The answer is streamed, as "
                'NDJSON: {"lines": 3, "offsets": [{"partition": 0, "offset": 10, "count": 3}]} for every '
                "batch that became durable, where `lines` are all so far. A line that cannot be stored "
                'ends it with {"error": ...}, whose details.line is the first that is not stored; if that'
                " is the first of all, the request fails. Empty lines are not counted, and keep a quiet "
                "stream open."
            ),
            BINARY: "One record, whose value is the body.",
        },
        gives={NDJSON: "A line per stored batch, for a body of lines."},
        fails=(Code.TOPIC_NOT_FOUND, Code.MESSAGE_TOO_LARGE, Code.BROKER_NOT_AVAILABLE),
    ),
    Operation(
        method="GET",
        path=_RECORDS,
        name="readRecords",
        tag="records",
        summary="Read records",
        doc=(
            "Of one partition in the order of their offsets, of several by time. `offset` is earliest, "
            "latest, a number in one partition, or negative: the last so many of all together. `offsets` "
            "names several "
            "partitions, as in 0:17,1:8. `next_offset` and `next_offsets` are where to go on, in the "
            "partitions that were read; one that was added since must be named as well. `timeout` "
            "waits so many milliseconds for the first record. With `key` or `contains` a read may end "
            "without a record after many that do not match: `scanned` says how many, and the next offsets"
            " go on behind them. Records of open transactions are not shown: a read ends at "
            "`last_stable_offset`, which is below `high_watermark` while one is open. Those of aborted "
            "transactions are left out."
        ),
        handler=read,
        query=ReadQuery,
        answer=RecordPage,
        gives={
            ARROW_STREAM: (
                "The records as Arrow, with the columns of Spark's Kafka source. The schema's metadata "
                "has next_offsets, high_watermarks, last_stable_offsets and scanned."
            )
        },
        fails=(Code.TOPIC_NOT_FOUND, Code.OFFSET_OUT_OF_RANGE, Code.BROKER_NOT_AVAILABLE),
    ),
    Operation(
        method="DELETE",
        path=_RECORDS,
        name="deleteRecords",
        tag="records",
        summary="Delete the records of a partition below an offset",
        doc="`before` is an offset, or latest for all that there are.",
        handler=delete_records,
        query=DeleteQuery,
        answer=StartView,
        fails=(Code.TOPIC_NOT_FOUND, Code.OFFSET_OUT_OF_RANGE, Code.BROKER_NOT_AVAILABLE),
    ),
)
