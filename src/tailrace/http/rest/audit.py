"""/api/v1/audit: the audit log, oldest entry first, with a place to read on from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, cast

import msgspec

from tailrace.broker.reading import Found
from tailrace.http.error import Code
from tailrace.http.operation import Call, NoBody, Operation
from tailrace.http.rest.reading import ReadQuery, read_records

_LIMIT_MAX = 1000
_WAIT_MS_MAX = 30_000
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which entries: the newest, or those from an offset on; and of these those that match."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=_LIMIT_MAX)] = 100  # how many are looked at
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] | None = None
    timeout: Annotated[int, msgspec.Meta(ge=0, le=_WAIT_MS_MAX)] = 0  # ms to wait for an entry at `offset`
    event: _Text | None = None  # login, or user for user.create, user.delete, ...
    principal: _Text | None = None  # User:alice
    result: _Text | None = None  # ok, failed, denied, or the name of an error code


class AuditEntry(msgspec.Struct, frozen=True):
    """Something that happened, `count` times since the entry before it that is the same."""

    time_ms: int
    event: str
    result: str
    principal: str  # "": not known
    address: str  # "": in the broker's process
    listener: str
    mechanism: str
    operation: str
    resource: str
    count: int


class AuditList(msgspec.Struct, frozen=True):
    """Entries, oldest first."""

    entries: list[AuditEntry]
    next_offset: int  # where to read on


async def list_entries(call: Call[AuditQuery, NoBody]) -> AuditList:
    topic, query = call.access.audit_log(), call.query
    start = f"-{query.limit}" if query.offset is None else str(query.offset)
    asked = ReadQuery(partition=0, offset=start, limit=query.limit, timeout=query.timeout)
    reading = await read_records(replace(cast(Call[Any, Any], call), query=asked), topic)
    entries = [each for each in _decoded(reading.page.records) if _is_wanted(each, query)]
    return AuditList(entries=entries, next_offset=reading.next_offsets[0])


def _decoded(found: list[Found]) -> Iterator[AuditEntry]:
    for each in found:
        yield msgspec.json.decode(each.record.value or b"", type=AuditEntry)


def _is_wanted(entry: AuditEntry, query: AuditQuery) -> bool:
    if (
        query.event is not None
        and entry.event != query.event
        and not entry.event.startswith(f"{query.event}.")
    ):
        return False
    if query.principal is not None and entry.principal != query.principal:
        return False
    return query.result is None or entry.result == query.result


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/audit",
        name="listAuditEntries",
        tag="audit",
        summary="Who logged in, what was refused, and what was changed",
        doc="Needs the right to read the topic __tailrace_audit. Entries that repeat another one within a "
        "minute are one, with their count.",
        handler=list_entries,
        query=AuditQuery,
        answer=AuditList,
        fails=(
            Code.AUTHORIZATION_FAILED,
            Code.TOPIC_NOT_FOUND,
            Code.OFFSET_OUT_OF_RANGE,
            Code.BROKER_NOT_AVAILABLE,
        ),
    ),
)
