"""DESCRIBE: what there is, as JSON in the body of the reply.

topics           [{name, topic_id, partitions}, ...]
topic            {name, topic_id, partitions: [{partition, start_offset, end_offset}, ...], configs}; `_name`
subscriptions    [{name, topic, state, lag, ...}, ...]
subscription     everything that one says of itself; `_name`
dead_letters     the oldest ones of a subscription; `_name`, [`_count` = 100]

Fields marked "older name" stand beside the new ones for one release (docs/api-reference.md, Names).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tailrace.broker.subscriptions.description import describe as describe_subscription
from tailrace.broker.subscriptions.description import summarize
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation
from tailrace.native.property import number_of, refusal, shown, text_of
from tailrace.wire.native import Frame, MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.broker.partition import Partition
    from tailrace.broker.topic import Topic
    from tailrace.native.protocol import NativeProtocol

_ACK = int(MessageType.ACK)
_LETTERS_DEFAULT = 100
_LETTERS_MAX = 1_000

_write_json = msgspec.json.Encoder().encode


def describe(protocol: NativeProtocol, frame: Frame) -> None:
    what = text_of(frame.properties, "_what")
    if what == "dead_letters":
        name = text_of(frame.properties, "_name")
        count = number_of(frame.properties, "_count", least=1, most=_LETTERS_MAX, default=_LETTERS_DEFAULT)
        work = _dead_letters(protocol, frame.sequence, name, count)
        protocol.run("dead letters", frame.sequence, work)
        return
    protocol.reply(frame, body=_encode(protocol, _describe(protocol, frame, what)))


def _describe(protocol: NativeProtocol, frame: Frame, what: str) -> Any:
    access = protocol.access
    if what == "topics":
        return [
            {**_names(each), "partitions": len(each.partitions)}
            for each in access.topics(Operation.DESCRIBE)
            if not each.internal
        ]
    if what == "topic":
        return _topic(protocol, text_of(frame.properties, "_name"))
    if what == "subscriptions":
        return [summarize(each) for each in access.subscriptions(Operation.DESCRIBE)]
    if what == "subscription":
        name = text_of(frame.properties, "_name")
        return describe_subscription(access.subscription(name, Operation.DESCRIBE))
    raise refusal(
        f'_what = "{shown(what)}" is not one of topics, topic, subscriptions, subscription, dead_letters'
    )


def _topic(protocol: NativeProtocol, name: str) -> dict[str, Any]:
    topic = protocol.access.topic(name[:249], Operation.DESCRIBE)
    return {
        **_names(topic),
        "partitions": [_partition(each) for each in topic.partitions],
        "configs": topic.configs,
        "settings": topic.configs,  # older name
    }


def _names(topic: Topic) -> dict[str, Any]:
    return {"name": topic.name, "topic_id": str(topic.id), "id": str(topic.id)}  # id: older name


def _partition(partition: Partition) -> dict[str, Any]:
    """Where its log begins and ends, as far as it is served here."""
    try:
        start, end = int(partition.start_offset), int(partition.high_watermark)
    except BrokerError as error:
        return {"partition": partition.index, **_extent(-1, -1), "error": str(error)}
    return {"partition": partition.index, **_extent(start, end)}


def _extent(start: int, end: int) -> dict[str, int]:
    return {"start_offset": start, "end_offset": end, "start": start, "end": end}  # start, end: older names


async def _dead_letters(protocol: NativeProtocol, sequence: int, name: str, count: int) -> bytes:
    letters = await protocol.access.dead_letters(name, count)
    return write_frame(_ACK, sequence=sequence, body=_encode(protocol, letters))


def _encode(protocol: NativeProtocol, value: Any) -> bytes:
    body = _write_json(value)
    most = protocol.config.describe_bytes_max
    if len(body) > most:
        raise BrokerError(
            f"the answer has {len(body)} bytes, which is over {most}. Ask for less at a time, with _count or "
            "_name",
            code=ErrorCode.POLICY_VIOLATION,
        )
    return body
