"""/api/v1/pipelines: the runs of pipelines on any machine, and asking them to stop.

A run tells how it is in the compacted topic `__tailrace_pipelines` (`wire.json.run_record` has the format),
and listens there for a request to stop. Nothing of Spark is needed to read and write it. A service remembers
what it has read (`metrics.runs`), so that a console that asks every other second costs what is new since.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from tailrace.broker.gate import Access
from tailrace.broker.publishing import NewMessage, Publisher
from tailrace.http.error import Code, HttpError, invalid
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.metrics.runs import RUNS_PLACE
from tailrace.wire.json.run_record import (
    LOST,
    RunRecord,
    StopRequest,
    find_runs,
    may_run,
    stop_key,
    write_record,
)

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


async def request_stop(
    access: Access, publisher: Publisher, runs: list[RunRecord], request: StopRequest
) -> None:
    """Ask runs to stop; they do after the batch under way. Returns when that is durable."""
    partition = access.writable(RUNS_PLACE)
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
