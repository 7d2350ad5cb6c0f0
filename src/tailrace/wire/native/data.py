"""DATA frames, written once for every message that is delivered: only what varies is encoded.

Subscription, topic, partition and epoch are the same for a long run of messages. `write_data_prefix` encodes
them once; `write_data` puts the message's own behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.wire.native.frame import write_frame_parts
from tailrace.wire.native.property import write_properties
from tailrace.wire.native.record import Header, write_record_properties
from tailrace.wire.native.type import MessageType

_DATA = int(MessageType.DATA)


def write_data_prefix(*, subscription: str, topic: str, partition: int, epoch: int) -> bytes:
    """The properties that all messages of one partition share until the next replay."""
    return write_properties(
        {
            "_subscription": subscription,
            "_topic": topic,
            "_partition": str(partition),
            "_epoch": str(epoch),
        }
    )


def write_data(
    prefix: bytes,
    *,
    offset: int,
    timestamp: int,
    count: int,
    id_prefix: str,
    key: bytes | None,
    value: bytes | memoryview | None,
    headers: Sequence[Header],
    pull: int | None = None,
) -> bytes:
    """The frame of the `count`-th delivery of a message; `pull` is the request that it answers, if one."""
    asked = "" if pull is None else f"_pull={pull}\0"
    properties = prefix + f"_id={id_prefix}{offset}\0_delivery={count}\0{asked}".encode()
    if headers or key is not None or value is None:
        properties += write_record_properties(key, headers, is_null=value is None)
    body = b"" if value is None else value
    return write_frame_parts(_DATA, sequence=offset, timestamp=timestamp, properties=properties, body=body)
