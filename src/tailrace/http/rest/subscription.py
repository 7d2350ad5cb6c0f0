"""/api/v1/subscriptions: subscriptions come, are looked at, are moved and go; what became of dead letters.

Pulling and settling messages is in `message`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec

from tailrace.broker.subscriptions.definition import Start, SubscriptionConfig
from tailrace.broker.subscriptions.description import describe, summarize
from tailrace.broker.subscriptions.move import Move
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.http.error import Code, invalid
from tailrace.http.older_name import older_name_of
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.http.rest.topic import config_text
from tailrace.model import ConfigError
from tailrace.model.operation import Operation as AclOperation
from tailrace.wire.json.moment import parse_moment
from tailrace.wire.json.record_json import HeaderRow

_LONG_MAX = 2**63 - 1
_SHOWN_MAX = 249  # of a name; no subscription has a longer one

_Index = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=0, le=_LONG_MAX)]
_Place = Annotated[str, msgspec.Meta(max_length=100)]
_SettingText = str | int | float | bool


class SubscriptionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subscription that somebody wants; settings that are left out have their defaults."""

    name: str
    topic: str
    start: _Place | None = None  # earliest, latest, offset:N, time:MS, time:2h (ago), time:2026-11-16T09:00
    start_offset: _Offset | None = None  # the same as offset:N
    configs: dict[str, _SettingText] = {}
    settings: Annotated[dict[str, _SettingText], older_name_of("configs")] = {}


class ReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to go on: earliest, latest, offset:N or time:T, in one partition or in all."""

    to: _Place
    partition: _Index | None = None
    dry_run: bool = False


class RedriveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many dead letters are delivered again, the oldest first; null: all."""

    count: Annotated[int, msgspec.Meta(ge=1, le=_LONG_MAX)] | None = None


class LettersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many dead letters are shown."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


class SubscriptionView(msgspec.Struct, frozen=True):
    """A subscription in a list."""

    name: str
    topic: str
    mode: str
    state: str  # active, idle (it has no members) or paused
    member_count: int
    lag: int
    unacknowledged: int
    members: Annotated[int, older_name_of("member_count")]


class SubscriptionList(msgspec.Struct, frozen=True):
    """All subscriptions, by name."""

    subscriptions: list[SubscriptionView]


class SubscriptionMember(msgspec.Struct, frozen=True):
    """Who takes messages."""

    name: str
    held: int
    credit: int  # 0: it pulls


class CursorView(msgspec.Struct, frozen=True):
    """How far a subscription is in one partition."""

    topic: str
    partition: int
    position: int  # everything below is done with
    acknowledged_beyond: int
    end_offset: int
    lag: int
    in_flight: int
    unacknowledged: int
    epoch: int
    error: str
    end: Annotated[int, older_name_of("end_offset")]


class SubscriptionDetail(msgspec.Struct, frozen=True):
    """A subscription with its members and cursors; the counts are those since the node started."""

    name: str
    topic: str
    mode: str
    state: str
    reason: str  # why it is paused
    member_count: int
    members: list[SubscriptionMember]
    lag: int
    unacknowledged: int
    in_flight: int
    configs: dict[str, str]  # what differs from the defaults
    dead_letter_topic: str
    created_ms: int
    retry_buffer_bytes: int
    delivered: int
    redelivered: int
    acknowledged: int
    dead: int
    expired: int
    skipped: int  # never delivered: gone from the log, or unreadable
    unreadable: int  # in batches that cannot be decoded
    partitions: list[CursorView]
    settings: Annotated[dict[str, str], older_name_of("configs")]


class CursorMove(msgspec.Struct, frozen=True):
    """What the replay does to a partition."""

    topic: str
    partition: int
    before: int
    after: int
    end_offset: int
    again: int  # messages that are done with, and are delivered again
    passed_over: int  # messages that are not done with, and are not delivered any more


class Replayed(msgspec.Struct, frozen=True):
    """What was done, or would be; ids from before the epoch mean nothing."""

    epoch: int
    applied: bool
    offsets: list[CursorMove]


class Origin(msgspec.Struct, frozen=True):
    """Where a dead letter was first; anybody may write to a topic, so a number may be a text."""

    topic: str | int
    partition: str | int
    offset: str | int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was given up, and why; what is not UTF-8 is base64 and says so."""

    offset: int  # in the dead-letter topic
    timestamp: int
    key: str | None
    key_encoding: Literal["base64"] | msgspec.UnsetType = msgspec.UNSET
    value: str | None
    value_encoding: Literal["base64"] | msgspec.UnsetType = msgspec.UNSET
    headers: list[HeaderRow]  # its own, and behind them those that tell why: _dlq_...
    origin: Origin
    reason: str
    delivery_count: str | int
    deliveries: Annotated[str | int, older_name_of("delivery_count")]


class DeadLetterList(msgspec.Struct, frozen=True):
    """The oldest dead letters that were not redriven yet."""

    dead_letters: list[DeadLetter]
    dead: int  # written since the node started


class Redriven(msgspec.Struct, frozen=True):
    """How many dead letters are delivered again."""

    redriven: int


# ---- handlers: subscriptions


async def list_subscriptions(call: Call[NoQuery, NoBody]) -> SubscriptionList:
    found = call.access.subscriptions(AclOperation.DESCRIBE)
    return SubscriptionList(
        subscriptions=[msgspec.convert(summarize(each), SubscriptionView) for each in found]
    )


async def create_subscription(call: Call[NoQuery, SubscriptionBody]) -> SubscriptionDetail:
    wanted = call.body
    if wanted.configs and wanted.settings:
        raise invalid("settings is the older name of configs: send configs alone")
    given = {name: config_text(value) for name, value in (wanted.configs or wanted.settings).items()}
    config = SubscriptionConfig.read(wanted.name, wanted.topic, given)
    start = _read_start(_place_of(wanted), now_ms=call.service.clock.now_ms())
    return _detail(await call.service.in_time(call.access.create_subscription(config, start)))


async def get_subscription(call: Call[NoQuery, NoBody]) -> SubscriptionDetail:
    return _detail(subscription_of(call, AclOperation.DESCRIBE))


async def delete_subscription(call: Call[NoQuery, NoBody]) -> None:
    await call.service.in_time(call.access.delete_subscription(_name_of(call)))


async def replay(call: Call[NoQuery, ReplayBody]) -> Replayed:
    subscription = subscription_of(call, AclOperation.ALTER)
    start = _read_start(call.body.to, now_ms=call.service.clock.now_ms())
    plan = await call.service.in_time(subscription.plan_seek(start, call.body.partition))
    if not call.body.dry_run:
        with call.access.changing("subscription.replay", f"subscription {subscription.config.name!r}"):
            await call.service.in_time(subscription.apply_seek(plan))
    return Replayed(
        epoch=plan.epoch, applied=not call.body.dry_run, offsets=[_move_view(each) for each in plan.moves]
    )


# ---- handlers: dead letters


async def list_dead_letters(call: Call[LettersQuery, NoBody]) -> DeadLetterList:
    subscription = subscription_of(call, AclOperation.READ)
    letters = call.access.dead_letters(subscription.config.name, call.query.limit)
    return DeadLetterList(
        dead_letters=msgspec.convert(await call.service.in_time(letters), list[DeadLetter]),
        dead=subscription.dead,
    )


async def redrive(call: Call[NoQuery, RedriveBody]) -> Redriven:
    redriven = call.access.redrive(_name_of(call), call.body.count)
    return Redriven(redriven=await call.service.in_time(redriven))


# ---- for other handlers too


def subscription_of(call: Call[Any, Any], operation: AclOperation) -> Subscription:
    """The subscription of the path, to do this to it; SUBSCRIPTION_NOT_FOUND if there is none."""
    return call.access.subscription(_name_of(call), operation)


# ---- inside


def _name_of(call: Call[Any, Any]) -> str:
    return call.params["subscription"][:_SHOWN_MAX]


def _detail(subscription: Subscription) -> SubscriptionDetail:
    return msgspec.convert(describe(subscription), SubscriptionDetail)


def _place_of(wanted: SubscriptionBody) -> str:
    """Where a new subscription starts."""
    if wanted.start_offset is None:
        return wanted.start or "earliest"
    if wanted.start is not None:
        raise invalid("start and start_offset both say where to start: send one of them")
    return f"offset:{wanted.start_offset}"


def _read_start(text: str, *, now_ms: int) -> Start:
    """Where to start; a time may be as people write it."""
    kind, _, moment = text.partition(":")
    if kind == "time" and not moment.isdecimal():
        try:
            text = f"time:{max(parse_moment(moment, now_ms=now_ms), 0)}"  # before 1970 is before everything
        except ConfigError as error:
            raise invalid(str(error)) from error
    return Start.parse(text)


def _move_view(move: Move) -> CursorMove:
    source = move.subscribed.source
    return CursorMove(
        topic=source.topic,
        partition=source.partition,
        before=move.before,
        after=move.after,
        end_offset=move.end,
        again=move.again,
        passed_over=move.passed_over,
    )


_ALL = "/api/v1/subscriptions"
ONE = f"{_ALL}/{{subscription}}"
UNKNOWN = (Code.SUBSCRIPTION_NOT_FOUND, Code.BROKER_NOT_AVAILABLE)

_REPLAY = Operation(
    method="POST",
    path=f"{ONE}/replay",
    name="replaySubscription",
    tag="subscriptions",
    summary="Start again from another place, or show what that would do",
    doc="`to` is earliest, latest, offset:N, or time: with milliseconds since 1970, 2h (ago) or "
    "2026-11-16T09:00. `dry_run` only shows what would change.",
    handler=replay,
    body=ReplayBody,
    answer=Replayed,
    fails=(*UNKNOWN, Code.TOPIC_NOT_FOUND, Code.OFFSET_OUT_OF_RANGE),
)

OPERATIONS = (
    Operation(
        method="GET",
        path=_ALL,
        name="listSubscriptions",
        tag="subscriptions",
        summary="All subscriptions",
        handler=list_subscriptions,
        answer=SubscriptionList,
    ),
    Operation(
        method="POST",
        path=_ALL,
        name="createSubscription",
        tag="subscriptions",
        summary="Make a subscription of a topic",
        doc="One that exists with the same settings is success; with others it is refused with 409.",
        handler=create_subscription,
        body=SubscriptionBody,
        answer=SubscriptionDetail,
        status=201,
        fails=(
            Code.TOPIC_NOT_FOUND,
            Code.OFFSET_OUT_OF_RANGE,
            Code.INVALID_CONFIG,
            Code.BROKER_NOT_AVAILABLE,
        ),
    ),
    Operation(
        method="GET",
        path=ONE,
        name="getSubscription",
        tag="subscriptions",
        summary="A subscription with its members and cursors",
        handler=get_subscription,
        answer=SubscriptionDetail,
        fails=UNKNOWN,
    ),
    Operation(
        method="DELETE",
        path=ONE,
        name="deleteSubscription",
        tag="subscriptions",
        summary="Delete a subscription; its dead letters stay",
        handler=delete_subscription,
        answer=None,
        status=204,
        fails=UNKNOWN,
    ),
    _REPLAY,
    replace(
        _REPLAY,
        path=f"{ONE}/seek",
        name="seekSubscription",
        summary="Older path of replay",
        deprecated=True,
    ),
    Operation(
        method="GET",
        path=f"{ONE}/dead-letters",
        name="listDeadLetters",
        tag="subscriptions",
        summary="The oldest dead letters that were not redriven yet",
        handler=list_dead_letters,
        query=LettersQuery,
        answer=DeadLetterList,
        fails=UNKNOWN,
    ),
    Operation(
        method="POST",
        path=f"{ONE}/redrive",
        name="redriveDeadLetters",
        tag="subscriptions",
        summary="Deliver dead letters again, the oldest first",
        handler=redrive,
        body=RedriveBody,
        answer=Redriven,
        fails=UNKNOWN,
    ),
)
