"""Fetch: records from many partitions, at once or when there are enough of them.

v4   isolation level and last stable offset; the first version served
v5   the log start offset
v7   sessions (KIP-227)
v9   the client's leader epoch is checked: 74 older than ours, 75 newer (KIP-320)
v11  rack and preferred replica; the leader answers everybody
v12  flexible
v13  topics by their ids (KIP-516): 100 where no topic has the id, 103 where a session's topic was replaced by
     another of its name, 106 where a session changes from names to ids or back
v15  the replica's number is a tag; v16, v17: tags of answers and requests that only replicas need

An offset inside a batch yields the whole batch. A partition with an error has -1 for its offsets and no
records. Nothing at or above the high watermark is ever sent; read_committed stops at the last stable offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.kafka.errors import error_name
from tailrace.kafka.fetching import Fetch, Records, framed
from tailrace.model import ProtocolError
from tailrace.wire.kafka import read_fetch_request, write_fetch_response

if TYPE_CHECKING:
    from tailrace.kafka.connection import Connection
    from tailrace.kafka.replies import Reply

KEY = 1


def take(
    connection: Connection, version: int, correlation_id: int, body: memoryview, _owned: bool
) -> Reply | None:
    """The answer in pieces, or something that becomes it."""
    request = read_fetch_request(body, version)
    service = connection.service
    count, most = 0, service.config.session_partitions_max
    for topic in request.topics:
        count += len(topic.partitions)
    if count > most:
        raise ProtocolError(f"a fetch of {count} partitions is over {most}")
    context = service.fetch_sessions.begin(request, service.loop.time())
    if context.error:
        service.fetched.note(0.0)  # nothing was looked for
        service.fetched.fail(error_name(context.error))
        refusal: list[bytes | Records] = write_fetch_response(version, error_code=context.error, topics=[])
        return framed(refusal, version=version, correlation_id=correlation_id)
    fetch = Fetch(connection, request, context, version=version, correlation_id=correlation_id)
    return fetch.start(min(request.max_wait_ms, service.config.fetch_wait_ms_max))
