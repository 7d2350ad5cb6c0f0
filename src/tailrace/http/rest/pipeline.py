"""/api/v1/pipelines: the runs of pipelines on any machine, and asking them to stop.

A run tells how it is in the compacted topic `__tailrace_pipelines` (`wire.json.run_record` has the format),
and listens there for a request to stop. Nothing of Spark is needed to read and write it. The topic is read
piece by piece, so that a long one does not keep the loop from other work, and a service remembers what it has
read, so that a console that asks every other second costs what is new since.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from tailrace.broker.gate import Access
from tailrace.broker.partition import Partition
from tailrace.broker.publishing import NewMessage, Publisher
from tailrace.broker.visible_records import read
from tailrace.http.error import Code, HttpError, invalid
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.model import BrokerError, ErrorCode, OffsetOutOfRange, TopicPartition
from tailrace.records import Record, pass_over
from tailrace.wire.json.run_record import (
    LOST,
    TOPIC,
    RunFold,
    RunRecord,
    StopRequest,
    find_runs,
    may_run,
    stop_key,
    write_record,
)

_PLACE = TopicPartition(TOPIC, 0)
_READ_BYTES = 256 * 1024
_FOLDED_BYTES_MAX = 32 << 20  # past this a service reads all of it again, and remembers no more than that
_SHOWN_MAX = 100  # characters of a name that nobody has


class RunView(RunRecord, frozen=True, kw_only=True):
    """A run, as it was when it last told."""

    stale: bool  # it says that it runs, and has been silent for long: it was killed, or cannot reach us


class RunList(msgspec.Struct, frozen=True):
    """Runs, the newest first."""

    pipelines: list[RunView]


# ---- handlers


async def list_pipelines(call: Call[NoQuery, NoBody]) -> RunList:
    return _view(await _read(call), _now(call))


async def stop_pipeline(call: Call[NoQuery, NoBody]) -> RunList:
    wanted, access, service = call.params["name"], call.access, call.service
    found = find_runs(await _read(call), wanted)
    now = _now(call)
    targets = [run for run in found if may_run(run, now)]
    _check_some(targets, found, wanted[:_SHOWN_MAX])
    request = StopRequest(at=now, by=f"http@{access.session.host or 'unknown'}")
    await service.in_time(request_stop(access, service.gate.publisher, targets, request))
    return _view(targets, now)


async def _read(call: Call[NoQuery, NoBody]) -> list[RunRecord]:
    return await call.service.in_time(call.service.runs.read(call.access))


def _check_some(targets: list[RunRecord], found: list[RunRecord], wanted: str) -> None:
    if not found:
        raise HttpError(
            Code.INVALID_REQUEST,
            f"no run has the name or the id {wanted!r}. Those there are: GET /api/v1/pipelines",
            status=404,
        )
    if not targets:
        newest = found[0]
        raise HttpError(
            Code.INVALID_REQUEST,
            f"{wanted!r} does not run: {newest.id} {newest.state} at {newest.at.isoformat()}",
            status=409,
        )
    if targets[0].name != wanted and len(targets) > 1:
        ids = ", ".join(run.id for run in targets[:10])
        raise invalid(f"{wanted!r} is the beginning of several ids: {ids}")


# ---- the topic


class Runs:
    """The runs as far as a service has read of them.

    It begins anew where what was read is not what is there: another topic of that name, or one whose oldest
    records were deleted. And every so often, because what it holds is bounded by what it has read.
    """

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._begin(None, 0)

    async def read(self, access: Access) -> list[RunRecord]:
        """Every run that the topic tells of, newest first; none where there is no such topic."""
        async with self._reading:
            try:
                partition = access.readable(_PLACE)
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                self._begin(None, 0)
                return []
            if not self._goes_on(partition):
                self._begin(partition.id.topic_id, partition.start_offset)
            await self._read_on(partition)
            return self._fold.runs()

    def _begin(self, topic_id: UUID | None, offset: int) -> None:
        self._topic_id = topic_id
        self._begun = self._offset = offset
        self._fold = RunFold()
        self._folded_bytes = 0

    def _goes_on(self, partition: Partition) -> bool:
        is_whole = partition.start_offset <= self._begun and self._offset <= partition.high_watermark
        return (
            partition.id.topic_id == self._topic_id and is_whole and self._folded_bytes <= _FOLDED_BYTES_MAX
        )

    async def _read_on(self, partition: Partition) -> None:
        """Take what was written until now; what is read is taken, also if the rest cannot be."""
        end = partition.last_stable_offset
        while self._offset < end:
            try:
                portion = await read(partition, self._offset, bytes_max=_READ_BYTES, end=end)
            except OffsetOutOfRange:
                if partition.start_offset <= self._offset:
                    break
                self._begin(self._topic_id, partition.start_offset)  # the oldest went meanwhile
                continue
            await portion.visit(self._take, on_damage=pass_over)  # any client may write to a topic
            self._folded_bytes += len(portion.data)
            if portion.next_offset <= self._offset:
                break
            self._offset = portion.next_offset

    def _take(self, record: Record) -> bool:
        self._fold.take(record.key, record.value)
        return False


async def request_stop(
    access: Access, publisher: Publisher, runs: list[RunRecord], request: StopRequest
) -> None:
    """Ask runs to stop; they do after the batch under way. Returns when that is durable."""
    partition = access.writable(_PLACE)
    value = write_record(request)
    messages = [NewMessage(stop_key(run.id), value) for run in runs]
    published = publisher.publish(partition, messages)
    await partition.wait_acknowledged(published.end_offset)


def _view(runs: list[RunRecord], now: datetime) -> RunList:
    return RunList(
        pipelines=[
            RunView(
                **{name: getattr(run, name) for name in run.__struct_fields__},
                stale=run.state_at(now) == LOST,
            )
            for run in runs
        ]
    )


def _now(call: Call[NoQuery, NoBody]) -> datetime:
    return datetime.fromtimestamp(call.service.clock.now_ms() / 1000, UTC)


_PIPELINES = "/api/v1/pipelines"

OPERATIONS = (
    Operation(
        method="GET",
        path=_PIPELINES,
        name="listPipelines",
        tag="pipelines",
        summary="The runs of pipelines, the newest first",
        doc="What each run told last, wherever it runs. `stale` is one that says it runs and is silent.",
        handler=list_pipelines,
        answer=RunList,
        fails=(Code.BROKER_NOT_AVAILABLE,),
    ),
    Operation(
        method="POST",
        path=f"{_PIPELINES}/{{name}}/stop",
        name="stopPipeline",
        tag="pipelines",
        summary="Ask a run to stop after its batch",
        doc="A name means every run of it that is under way; of an id the beginning is enough. Answers with "
        "the runs that were asked, when the request is durable. 404 if there is none, 409 if none runs.",
        handler=stop_pipeline,
        answer=RunList,
        fails=(Code.BROKER_NOT_AVAILABLE,),
    ),
)
