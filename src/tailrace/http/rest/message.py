"""Messages of a subscription, by hand: pull, ack, nack, extend.

A pull gives messages out for the subscription's `ack_timeout_ms`; `ack` is the end of a message, `nack` and
the end of its time lead to another delivery, `extend` gives more time. What is settled is named by `ack_id`.
An answer to `ack` comes when it is durable. Who holds what is in `pulling`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from tailrace.broker.subscriptions.delivery import Delivery
from tailrace.http.error import invalid
from tailrace.http.operation import Call, NoQuery, Operation
from tailrace.http.rest.ack_id import AckIds
from tailrace.http.rest.pulling import find_puller, join_pulls
from tailrace.http.rest.subscription import ONE, UNKNOWN, subscription_of
from tailrace.model.operation import Operation as AclOperation
from tailrace.wire.json.record_json import RecordRow, view_record

_WEEK_MS = 7 * 24 * 3_600_000

_Ids = Annotated[list[str], msgspec.Meta(max_length=10_000)]
_Reason = Annotated[str, msgspec.Meta(max_length=1_000)]


class PullBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many messages, and how long to wait if there are none."""

    max: Annotated[int, msgspec.Meta(ge=1)] = 10
    wait_ms: Annotated[int, msgspec.Meta(ge=0)] = 0


class AckBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages that are done with."""

    ack_ids: _Ids


class NackBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages that are refused: they come again after `delay_ms`, or after the subscription's back-off."""

    ack_ids: _Ids
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=_WEEK_MS)] | None = None
    reason: _Reason = ""  # goes with the dead letter, if it becomes one


class ExtendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages that take longer: they are held for so much more from now on."""

    ack_ids: _Ids
    extend_ms: Annotated[int, msgspec.Meta(ge=1, le=_WEEK_MS)]


class Message(RecordRow, frozen=True, kw_only=True):
    """A message that was given out."""

    ack_id: str
    id: str  # the same however often it is delivered
    delivery_count: int  # 1 at the first time


class Pulled(msgspec.Struct, frozen=True):
    """What a pull brought."""

    messages: list[Message]


class Acknowledged(msgspec.Struct, frozen=True):
    """How many messages were not done with before."""

    acknowledged: int


class Refused(msgspec.Struct, frozen=True):
    """How many messages were held, and are not any more."""

    refused: int


class Extended(msgspec.Struct, frozen=True):
    """How many messages are held for longer."""

    extended: int


# ---- handlers


async def pull(call: Call[NoQuery, PullBody]) -> Pulled:
    subscription, asked, config = subscription_of(call, AclOperation.READ), call.body, call.service.config
    if asked.max > config.pull_count_max:
        raise invalid(f"max: one pull brings {config.pull_count_max} messages at most, and not {asked.max}")
    if asked.wait_ms > config.wait_ms_max:
        raise invalid(f"wait_ms: a pull waits {config.wait_ms_max} ms at most. Pull again after that")
    puller = join_pulls(call.service, subscription)
    call.held.release()  # what waits for others does not count
    deliveries = await puller.pull(
        call.request,
        count=asked.max,
        wait_ms=asked.wait_ms,
        admit=lambda: call.access.find_subscription(subscription.config.name, AclOperation.READ),
    )
    ids = AckIds(subscription)
    return Pulled(messages=[_message(ids, each) for each in deliveries])


async def ack(call: Call[NoQuery, AckBody]) -> Acknowledged:
    subscription = subscription_of(call, AclOperation.READ)
    loop, count, waits = asyncio.get_running_loop(), 0, []
    for named in AckIds(subscription).read(call.body.ack_ids):
        durable: asyncio.Future[None] = loop.create_future()
        count += subscription.ack(*named, durable)
        waits.append(durable)
    await call.service.in_time(asyncio.gather(*waits))
    return Acknowledged(acknowledged=count)


async def nack(call: Call[NoQuery, NackBody]) -> Refused:
    subscription, body = subscription_of(call, AclOperation.READ), call.body
    settled = AckIds(subscription).read(body.ack_ids)
    puller = find_puller(call.service, subscription)
    if puller is None:
        return Refused(refused=0)
    member = puller.member
    return Refused(
        refused=sum(member.nack(*each, delay_ms=body.delay_ms, reason=body.reason) for each in settled)
    )


async def extend(call: Call[NoQuery, ExtendBody]) -> Extended:
    subscription, body = subscription_of(call, AclOperation.READ), call.body
    settled = AckIds(subscription).read(body.ack_ids)
    puller = find_puller(call.service, subscription)
    if puller is None:
        return Extended(extended=0)
    return Extended(extended=sum(puller.member.extend(*each, extend_ms=body.extend_ms) for each in settled))


def _message(ids: AckIds, delivery: Delivery) -> Message:
    source, record = delivery.source, delivery.record
    return Message(
        ack_id=ids.write(delivery),
        id=f"{source.id_prefix}{record.offset}",
        delivery_count=delivery.count,
        **msgspec.structs.asdict(view_record(source.topic, source.partition, record)),
    )


OPERATIONS = (
    Operation(
        method="POST",
        path=f"{ONE}/pull",
        name="pullMessages",
        tag="subscriptions",
        summary="Take messages",
        doc="They are held until they are settled or the subscription's ack_timeout_ms is over. A pull ends "
        "when it has `max` messages, when it has some and no more are ready, or after `wait_ms`. Pulls at "
        "the same time get different messages, in the order of asking. 409 while somebody else is in an "
        "exclusive or failover subscription.",
        handler=pull,
        body=PullBody,
        answer=Pulled,
        fails=UNKNOWN,
    ),
    Operation(
        method="POST",
        path=f"{ONE}/ack",
        name="ackMessages",
        tag="subscriptions",
        summary="Messages are done with",
        doc="Answered when it is durable. Counts those that were not done with before; ids from before a "
        "replay change nothing.",
        handler=ack,
        body=AckBody,
        answer=Acknowledged,
        fails=UNKNOWN,
    ),
    Operation(
        method="POST",
        path=f"{ONE}/nack",
        name="nackMessages",
        tag="subscriptions",
        summary="Messages are refused, and delivered again or given up",
        handler=nack,
        body=NackBody,
        answer=Refused,
        fails=UNKNOWN,
    ),
    Operation(
        method="POST",
        path=f"{ONE}/extend",
        name="extendMessages",
        tag="subscriptions",
        summary="Hold messages for longer",
        handler=extend,
        body=ExtendBody,
        answer=Extended,
        fails=UNKNOWN,
    ),
)
