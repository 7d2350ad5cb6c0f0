"""The records of `__tailrace_pipelines`: written and read back, folded, and what is none of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tailrace.wire.json.run_record import (
    RunRecord,
    StopRequest,
    find_runs,
    gather_runs,
    may_run,
    new_run,
    plan_forgotten,
    read_record,
    read_stop,
    run_key,
    stop_key,
    write_record,
)

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def run(run_id: str = "r1", **changes: object) -> RunRecord:
    made = new_run(pipeline="archive", name="night", config={"topic": ("t",), "rows": 5})
    return msgspec.structs.replace(made, id=run_id, started_at=NOW, at=NOW, **changes)


def entry(record: RunRecord) -> tuple[bytes, bytes]:
    return run_key(record.id), write_record(record)


def test_a_run_is_what_was_written_and_plain_json() -> None:
    record = run(progress={"rows": 7}, error="why")
    again = read_record(write_record(record))
    assert again == msgspec.structs.replace(record, config={"topic": ["t"], "rows": 5})
    fields = json.loads(write_record(record))
    assert fields["v"] == 1
    assert (fields["state"], fields["at"]) == ("running", "2026-11-16T12:00:00Z")
    assert fields.keys() == {
        *("v", "id", "pipeline", "name", "state", "host", "pid", "started_at", "at"),
        *("config", "progress", "error"),
    }


def test_a_stop_request_is_what_was_written() -> None:
    request = StopRequest(at=NOW, by="me@here")
    assert read_stop(write_record(request)) == request


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"state": "dancing"},
        {"pid": "x"},
        {"at": "yesterday"},
        {"at": "2026-11-16T12:00:00"},
        {"id": None},
        {"config": []},
    ],
    ids=str,
)
def test_what_is_no_run_is_passed_over(change: dict[str, object]) -> None:
    fields = json.loads(write_record(run())) | change
    assert read_record(json.dumps(fields).encode()) is None


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"v": 1}', b"[" * 100_000])
def test_bytes_of_anybody_are_passed_over(value: bytes) -> None:
    assert read_record(value) is None
    assert read_stop(value) is None
    assert gather_runs([(b"r1", value), (None, value), (b"r1/stop", value)]) == []


def test_the_newest_record_of_a_run_counts_and_a_tombstone_ends_it() -> None:
    first, last = run("a"), run("a", state="finished")
    other = msgspec.structs.replace(run("b"), started_at=NOW + timedelta(seconds=1))
    entries = [entry(first), entry(other), entry(last), (stop_key("a"), b"{}")]
    found = gather_runs(entries)
    assert [(each.id, each.state) for each in found] == [("b", "running"), ("a", "finished")]
    assert [each.id for each in gather_runs([*entries, (b"a", None)])] == ["b"]


def test_a_record_under_another_key_is_not_believed() -> None:
    assert gather_runs([(b"b", write_record(run("a")))]) == []


def test_a_run_that_is_silent_for_long_is_lost() -> None:
    record = run()
    assert record.state_at(NOW + timedelta(seconds=15)) == "running"
    assert record.state_at(NOW + timedelta(seconds=16)) == "lost"
    assert run(state="failed").state_at(NOW + timedelta(days=1)) == "failed"


def test_runs_that_ended_long_ago_are_forgotten_and_running_ones_never() -> None:
    ended = [
        msgspec.structs.replace(run(f"e{age}", state="finished"), at=NOW - timedelta(hours=age))
        for age in range(5)
    ]
    running = msgspec.structs.replace(run("r"), started_at=NOW - timedelta(days=90))
    lost = msgspec.structs.replace(run("l"), at=NOW - timedelta(hours=9))
    forgotten = plan_forgotten([*ended, running, lost], now=NOW, kept=3)
    assert [each.id for each in forgotten] == ["e3", "e4", "l"]


# ---- who is meant


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("night", ["abc1", "abd2"]),
        ("abc1", ["abc1"]),
        ("ab", ["abc1", "abd2"]),
        ("fff3", ["x9"]),  # a name comes before an id
        ("absent", []),
        ("", []),
    ],
)
def test_runs_are_found_by_name_and_else_by_id(wanted: str, found: list[str]) -> None:
    runs = [run("abc1"), run("abd2"), run("fff3", name="day"), run("x9", name="fff3")]
    assert [each.id for each in find_runs(runs, wanted)] == found


@pytest.mark.parametrize(
    ("state", "age_s", "expected"),
    [("running", 0, True), ("running", 60, True), ("finished", 0, False), ("failed", 60, False)],
)
def test_a_run_that_is_lost_may_still_be_there(state: str, age_s: int, expected: bool) -> None:
    told = run(state=state)
    assert may_run(told, NOW + timedelta(seconds=age_s)) is expected
