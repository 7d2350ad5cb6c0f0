"""PUT /api/v1/consumer-groups/{group}/offsets: where a group shall go on.

What is asked is planned first (`model.offset_reset` has the rule), so that a dry run shows what the real one
does. A group with members is refused: they would overwrite the offsets with their own. The coordinator checks
that once more when it takes them, for somebody may have joined meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated

import msgspec

from tailrace.broker.gate import Access
from tailrace.broker.groups.api import CommitRequest, OffsetToCommit
from tailrace.broker.groups.handle import GroupHandle
from tailrace.http.error import Code, HttpError, invalid
from tailrace.http.older_name import older_name_of
from tailrace.http.operation import Call, NoQuery, Operation
from tailrace.http.rest.group import FAILS, GROUP, known_group
from tailrace.http.rest.topic import topic_of
from tailrace.model import BrokerError, ConfigError, ErrorCode, TopicPartition
from tailrace.model.offset_reset import CannotReset, Goal, Move, Place, Standing, plan_moves, plan_reset
from tailrace.model.operation import Operation as AclOperation
from tailrace.wire.json.moment import parse_moment

_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Shift = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Index = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Time = _Offset | Annotated[str, msgspec.Meta(max_length=100)]

_BREATH_TARGETS = 500  # that are looked up before the loop may do something else
_HAS_MEMBERS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.NON_EMPTY_GROUP,
)
"""What the coordinator answers somebody who is no member of a group that has some."""


class GoalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place by number: exactly one of these. A time is milliseconds, `2h` ago, or 2026-11-16T09:00."""

    offset: _Offset | None = None
    time: _Time | None = None
    shift: _Shift | None = None


class OffsetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one partition shall go on."""

    topic: str
    partition: _Index
    offset: _Offset


class ResetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to (`to`, or `offsets` by partition), and of what: all that is committed unless it is named."""

    to: Place | GoalBody | None = None
    topics: list[str] | None = None
    partitions: dict[str, list[_Index]] | None = None  # some of a topic's, instead of all
    offsets: list[OffsetBody] | None = None
    dry_run: bool = False


class MoveView(msgspec.Struct, frozen=True):
    """What the reset does to a partition."""

    topic: str
    partition: int
    before: int | None
    after: int
    start_offset: int
    end_offset: int
    lag: int
    clamped: bool  # what was asked for lies outside the log: the nearer end is taken


class ResetView(msgspec.Struct, frozen=True):
    """What was done, or would be."""

    name: str
    applied: bool
    offsets: list[MoveView]
    group: Annotated[str, older_name_of("name")]


# ---- the handler


async def reset_offsets(call: Call[NoQuery, ResetBody]) -> ResetView:
    name, body = call.params["group"], call.body
    if not name:  # Kafka's consumers without a group have such a one; here it is a name that was forgotten
        raise invalid("the name of the group is empty")
    group = call.access.group(name, AclOperation.READ)
    now_ms = call.service.clock.now_ms()
    moves = await call.service.in_time(_plan(call.access, group, body, now_ms=now_ms))
    if not body.dry_run:
        _check_empty(group)
        await call.service.in_time(_apply(group, moves))
    return ResetView(name=name, applied=not body.dry_run, offsets=[_view(each) for each in moves], group=name)


async def _plan(access: Access, group: GroupHandle, body: ResetBody, *, now_ms: int) -> list[Move]:
    if (body.to is None) == (body.offsets is None):
        raise invalid('say where to: "to" (earliest, latest, current, {"offset": n}, ...), or "offsets"')
    try:
        if body.offsets is not None:
            wanted = _wanted(body, body.offsets)
            return plan_moves(wanted, await _standings(access, group, wanted))
        goal = _goal(body.to, now_ms=now_ms)
        return plan_reset(goal, await _standings(access, group, _targets(access, group, body), goal))
    except (CannotReset, ConfigError) as error:
        raise invalid(str(error)) from error


async def _apply(group: GroupHandle, moves: Iterable[Move]) -> None:
    offsets = {move.target: OffsetToCommit(move.after) for move in moves}
    errors = await group.commit_offsets(CommitRequest(group_id=group.id, offsets=offsets))
    for target, code in errors.items():
        if code in _HAS_MEMBERS:
            raise _has_members(group.id, "members")
        if code:
            raise BrokerError(f"the offset of {target} cannot be stored: {code.name}", code=code)


def _check_empty(group: GroupHandle) -> None:
    """Raise if the group has members. A group that does not exist begins with its first offset."""
    described = group.describe()
    if described.members:
        count = len(described.members)
        raise _has_members(group.id, "a member" if count == 1 else f"{count} members")


def _has_members(group: str, who: str) -> HttpError:
    message = f"group {group} has {who}, which would overwrite the offsets. Stop its consumers first"
    return HttpError(Code.INVALID_REQUEST, message, status=409)


# ---- what is asked


def _goal(to: Place | GoalBody | None, *, now_ms: int) -> Goal:
    if not isinstance(to, GoalBody):
        return Goal(place=to)
    time_ms = to.time
    if isinstance(time_ms, str):
        time_ms = max(parse_moment(time_ms, now_ms=now_ms), 0)  # before 1970 is before everything
    return Goal(offset=to.offset, time_ms=time_ms, shift=to.shift)


def _wanted(body: ResetBody, offsets: Iterable[OffsetBody]) -> dict[TopicPartition, int]:
    if body.topics is not None or body.partitions is not None:
        raise invalid('"offsets" names its partitions itself: leave "topics" and "partitions" out')
    wanted: dict[TopicPartition, int] = {}
    for each in offsets:
        target = TopicPartition(each.topic, each.partition)
        if target in wanted:
            raise invalid(f"{target} is there twice")
        wanted[target] = each.offset
    _check_some(wanted, '"offsets" is empty')
    return wanted


def _targets(access: Access, group: GroupHandle, body: ResetBody) -> Collection[TopicPartition]:
    if body.topics is None and body.partitions is None:
        known_group(access, group.id)
        committed = group.fetch_offsets(None)
        _check_some(committed, f"group {group.id} has committed nothing")
        return committed
    some = body.partitions or {}
    wanted = {TopicPartition(topic, index) for topic, indexes in some.items() for index in indexes}
    for name in {*(body.topics or ())} - some.keys():
        wanted |= {each.name for each in topic_of(access, name, AclOperation.READ).partitions}
    _check_some(wanted, "no partition is named")
    return wanted


def _check_some(targets: Collection[TopicPartition], why: str) -> None:
    if not targets:
        raise invalid(f"there is nothing to move: {why}. Name topics or partitions")


async def _standings(
    access: Access, group: GroupHandle, targets: Iterable[TopicPartition], goal: Goal | None = None
) -> Mapping[TopicPartition, Standing]:
    """What is known of each partition; BrokerError if one does not exist."""
    committed = group.fetch_offsets(None)
    standings: dict[TopicPartition, Standing] = {}
    for place, target in enumerate(targets, start=1):
        if place % _BREATH_TARGETS == 0:
            await asyncio.sleep(0)
        topic_of(access, target.topic, AclOperation.READ)
        partition = access.readable(target)
        found = None
        if goal is not None and goal.time_ms is not None:
            found = await partition.find_timestamp(goal.time_ms)
        before = committed.get(target)
        standings[target] = Standing(
            committed=None if before is None else before.offset,
            start=partition.start_offset,
            end=partition.high_watermark,
            at_time=None if found is None else found.offset,
        )
    return standings


def _view(move: Move) -> MoveView:
    return MoveView(
        topic=move.target.topic,
        partition=move.target.partition,
        before=move.before,
        after=move.after,
        start_offset=move.start,
        end_offset=move.end,
        lag=move.lag,
        clamped=move.is_clamped,
    )


OPERATIONS = (
    Operation(
        method="PUT",
        path=f"{GROUP}/offsets",
        name="resetGroupOffsets",
        tag="groups",
        summary="Move a group, or show what that would do",
        doc="`to` goes for everything that the group has committed, unless `topics` or `partitions` say of "
        "what; `offsets` names each partition's offset instead. An offset outside the log is moved into it, "
        "and `clamped` says so. 409 while the group has members; `dry_run` only shows what would change.",
        handler=reset_offsets,
        body=ResetBody,
        answer=ResetView,
        fails=(*FAILS, Code.TOPIC_NOT_FOUND),
    ),
)
