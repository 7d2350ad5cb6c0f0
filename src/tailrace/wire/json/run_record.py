"""What a run tells of itself in the topic `__tailrace_pipelines`, and what others make of it. Pure.

    key  "<run id>"        {"v": 1, "id", "pipeline", "name", "state", "host", "pid", "started_at", "at",
                            "config": {...}, "progress": {...} or null, "error": text or null}
    key  "<run id>/stop"   {"v": 1, "at", "by"}        somebody wants the run to stop

The topic is compacted, so the newest record of a key is what counts, and a tombstone takes a key away. A run
beats every few seconds; one that says `running` and has been silent for long is `lost`: it was killed, or its
machine cannot reach the broker. What is not of this form is passed over: anybody may write to a topic.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import uuid4

import msgspec

TOPIC = "__tailrace_pipelines"
TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    # Beats are many and small: segments are sealed soon, so that compaction has something to do.
    "segment.bytes": str(4 << 20),
    "segment.ms": str(10 * 60 * 1000),
}

VERSION = 1
LOST_AFTER_S = 15.0
ENDED_KEPT = 100  # runs that ended; older ones get a tombstone
_STOP_SUFFIX = "/stop"
_ID_DIGITS = 12

State = Literal["running", "finished", "failed", "stopped"]
RUNNING: State = "running"
LOST = "lost"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as it was when it last told."""

    v: int = VERSION
    id: str
    pipeline: str  # archive, replay, ...
    name: str  # what tailrace.toml calls it, else the same
    state: State
    host: str
    pid: int
    started_at: datetime
    at: datetime  # of this record
    config: dict[str, Any]
    progress: dict[str, Any] | None = None
    error: str | None = None

    def state_at(self, now: datetime) -> str:
        """The state, or `lost` if it should have told since."""
        silent = self.state == RUNNING and now - self.at > timedelta(seconds=LOST_AFTER_S)
        return LOST if silent else self.state


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants a run to stop."""

    v: int = VERSION
    at: datetime
    by: str


def new_run(*, pipeline: str, name: str, config: Mapping[str, Any]) -> RunRecord:
    """A run that begins now, in this process."""
    now = datetime.now(UTC)
    return RunRecord(
        id=uuid4().hex[:_ID_DIGITS],
        pipeline=pipeline,
        name=name,
        state=RUNNING,
        host=socket.gethostname(),
        pid=os.getpid(),
        started_at=now,
        at=now,
        config=dict(config),
    )


def run_key(run_id: str) -> bytes:
    return run_id.encode()


def stop_key(run_id: str) -> bytes:
    return f"{run_id}{_STOP_SUFFIX}".encode()


def write_record(record: RunRecord | StopRequest) -> bytes:
    return msgspec.json.encode(record)


def read_record(value: bytes) -> RunRecord | None:
    """None for what is no run of this version."""
    try:
        record = msgspec.json.decode(value, type=RunRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    whole = record.at.tzinfo is not None and record.started_at.tzinfo is not None
    return record if record.v == VERSION and whole else None


def read_stop(value: bytes) -> StopRequest | None:
    """None for what is no such request of this version."""
    try:
        request = msgspec.json.decode(value, type=StopRequest)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return request if request.v == VERSION else None


class RunFold:
    """The runs that are left when records are taken in order; what is no record of a run is passed over."""

    def __init__(self) -> None:
        self._runs: dict[bytes, RunRecord] = {}

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """The next record of the topic."""
        if key is None or key.endswith(_STOP_SUFFIX.encode()):
            return
        record = None if value is None else read_record(value)
        if record is not None and run_key(record.id) == key:
            self._runs[key] = record
        elif value is None:
            self._runs.pop(key, None)

    def runs(self) -> list[RunRecord]:
        """Newest first."""
        return sorted(self._runs.values(), key=lambda run: run.started_at, reverse=True)


def gather_runs(records: Iterable[tuple[bytes | None, bytes | None]]) -> list[RunRecord]:
    """The runs that are left when every record has been read in order, newest first."""
    fold = RunFold()
    for key, value in records:
        fold.take(key, value)
    return fold.runs()


def find_runs(runs: Iterable[RunRecord], wanted: str) -> list[RunRecord]:
    """Those of a name; else those whose id is this, or begins with it. The order stays."""
    known = list(runs)
    named = [run for run in known if run.name == wanted]
    return named or [run for run in known if wanted and run.id.startswith(wanted)]


def may_run(run: RunRecord, now: datetime) -> bool:
    """Whether it is worth asking a run to stop: it goes on, or nobody has heard of its end."""
    return run.state_at(now) in (RUNNING, LOST)


def plan_forgotten(runs: Iterable[RunRecord], *, now: datetime, kept: int = ENDED_KEPT) -> list[RunRecord]:
    """The runs that nobody needs to know of any more: ended, and older than so many that ended later."""
    ended = [run for run in runs if run.state_at(now) != RUNNING]
    ended.sort(key=lambda run: run.at, reverse=True)
    return ended[kept:]
