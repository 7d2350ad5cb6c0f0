"""`tailrace tail` against a broker in this process: where it starts and ends, and how records are shown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import rich_click as click

import tailrace
from tailrace.cli.main import main
from tailrace.cli.tail import parse_template, readable
from tailrace.model import TopicPartition
from tailrace.records import Record

TIME_MS = int(time.time()) * 1000 - 3_600_000  # an hour ago: retention must not take the records meanwhile


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker(configs={"num.partitions": 2}) as running:
        for index in range(20):
            running.produce(
                "t", b"%d" % index, key=b"k%d" % index, partition=index % 2, timestamp=TIME_MS + index * 1000
            )
        running.produce("odd", b"\xff\x1b[31m\nred", headers=[("h", b"\x00"), ("n", None)], partition=0)
        running.produce("odd", None, key=b"gone", partition=0)
        running.produce("empty", b"", partition=0)
        yield running


@pytest.fixture(autouse=True)
def _reachable(broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)


def tail(capfd: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    assert main(["tail", *args, "-o", "jsonl"]) == 0
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(row["value"]) for row in rows]


# ---- from where to where


def test_the_last_ten_of_the_topic_come_in_the_order_of_their_times(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert numbers(tail(capfd, "t", "--no-follow")) == list(range(10, 20))


def test_the_last_of_a_partition_are_its_last_offsets_whatever_their_times(
    broker: tailrace.Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    for index, seconds in enumerate([10, 20, -300]):
        broker.produce("late", b"%d" % index, partition=0, timestamp=TIME_MS + seconds * 1000)
    assert numbers(tail(capfd, "late", "-n", "2", "--no-follow")) == [1, 2]


def test_so_many_of_the_last_as_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    assert numbers(tail(capfd, "t", "--no-follow", "-n", "3")) == [17, 18, 19]
    assert numbers(tail(capfd, "t", "--no-follow", "-n", "0")) == []
    assert numbers(tail(capfd, "t", "--no-follow", "-n", "1000")) == list(range(20))


def test_from_the_beginning(capfd: pytest.CaptureFixture[str]) -> None:
    assert sorted(numbers(tail(capfd, "t", "--no-follow", "--from-beginning"))) == list(range(20))


def test_with_a_start_the_count_is_where_it_stops_though_it_follows(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert numbers(tail(capfd, "t", "--from-beginning", "-p", "1", "-n", "2")) == [1, 3]


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("7", [14, 16, 18]),
        ("-2", [16, 18]),
        ("earliest", list(range(0, 20, 2))),
        ("latest", []),
        ("10", []),
        ("-1000", list(range(0, 20, 2))),
    ],
)
def test_from_an_offset(capfd: pytest.CaptureFixture[str], offset: str, expected: list[int]) -> None:
    assert numbers(tail(capfd, "t", "--no-follow", "-p", "0", "--offset", offset)) == expected


def test_an_offset_past_every_end_is_not_found(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "t", "--no-follow", "--offset", "1000"]) == 3
    said = capfd.readouterr().err
    assert said == "error: there is no offset 1000: t-0 ends at 10, t-1 ends at 10. Try: --offset latest\n"


def test_a_partition_that_ends_before_the_offset_is_named(
    broker: tailrace.Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    for index in range(3):
        broker.produce("uneven", b"%d" % index, partition=0)
    broker.produce("uneven", b"3", partition=1)
    assert main(["tail", "uneven", "--no-follow", "--offset", "2", "-o", "jsonl"]) == 0
    shown = capfd.readouterr()
    assert numbers([json.loads(line) for line in shown.out.splitlines()]) == [2]
    assert shown.err == "warning: uneven-1 ends at 1: it is shown from there\n"


def test_a_partition_that_begins_after_the_offset_is_named(
    broker: tailrace.Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    for index in range(4):
        broker.produce("cut", b"%d" % index, partition=0)
    assert main(["topic", "purge", "cut", "--yes"]) == 0
    broker.produce("cut", b"4", partition=0)
    capfd.readouterr()
    assert main(["tail", "cut", "-p", "0", "--no-follow", "--offset", "2", "-o", "jsonl"]) == 0
    shown = capfd.readouterr()
    assert numbers([json.loads(line) for line in shown.out.splitlines()]) == [4]
    assert shown.err == "warning: cut-0 begins at 4, what was before is gone: it is shown from there\n"


def test_a_time_that_is_yet_to_come_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "t", "--no-follow", "--since", "2999-01-01"]) == 0
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err == "warning: --since 2999-01-01 is in the future: new records are shown\n"


def test_since_and_until_a_time(capfd: pytest.CaptureFixture[str]) -> None:
    since, until = str(TIME_MS + 5000), str(TIME_MS + 8000)
    iso = datetime.fromtimestamp(TIME_MS / 1000 + 16, UTC).isoformat()
    assert sorted(numbers(tail(capfd, "t", "--since", since, "--until", until))) == [5, 6, 7]
    assert sorted(numbers(tail(capfd, "t", "--since", iso, "--no-follow"))) == [
        16,
        17,
        18,
        19,
    ]
    assert tail(capfd, "t", "--since", "1m", "--no-follow") == []


# ---- how


def test_a_json_line_has_everything(capfd: pytest.CaptureFixture[str]) -> None:
    (row,) = tail(capfd, "t", "--no-follow", "-n", "1")
    assert row == {
        "topic": "t",
        "partition": 1,
        "offset": 9,
        "timestamp": TIME_MS + 19_000,
        "key": "k19",
        "value": "19",
        "headers": [],
    }


def test_as_json_one_list_is_printed_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "t", "--no-follow", "-n", "2", "-o", "json"]) == 0
    assert [row["value"] for row in json.loads(capfd.readouterr().out)] == ["18", "19"]
    assert main(["tail", "t", "-o", "json"]) == 2


def test_a_line_for_people_cannot_steer_their_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "odd", "--no-follow"]) == 0
    first, second = capfd.readouterr().out.splitlines()
    assert first.endswith(r"0@0  -  \xff\x1b[31m\nred  h=\x00,n")
    assert second.endswith("0@1  gone  (tombstone)")


def test_a_format_writes_bytes_as_they_are_to_a_pipe(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    template = r"%t [%p] at %o: %k -> %s (%K %S %%)\n"
    assert main(["tail", "odd", "--no-follow", "--format", template]) == 0
    assert capfdbinary.readouterr().out == (
        b"odd [0] at 0:  -> \xff\x1b[31m\nred (-1 10 %)\n" + b"odd [0] at 1: gone ->  (4 -1 %)\n"
    )


def test_a_template_knows_times_and_headers() -> None:
    pieces = parse_template(r"%T\t%h\\")
    record = Record(1, 99, None, None, (("a", b"1"), ("b", None)))
    target = TopicPartition("t", 0)
    assert b"".join(p if isinstance(p, bytes) else p(target, record) for p in pieces) == b"99\ta=1,b\\"


@pytest.mark.parametrize("template", ["%", "%x", "\\", "\\x", "abc%"])
def test_an_unknown_token_is_refused_with_the_known_ones(template: str) -> None:
    with pytest.raises(click.BadParameter, match="%t"):
        parse_template(template)


@pytest.mark.parametrize(
    ("data", "shown"),
    [(b"a", "a"), ("ü€".encode(), "ü€"), (b"\xff\x00", r"\xff\x00"), (b"\t\x1b", r"\t\x1b")],
)
def test_bytes_are_shown_readably(data: bytes, shown: str) -> None:
    assert readable(data) == shown


# ---- trouble


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["t", "--from-beginning", "--offset", "1"],
        ["t", "--offset", "x", "--no-follow"],
        ["t", "--since", "yesterday"],
        ["t", "--until", "tomorrow"],
        ["t", "-n", "-1"],
        ["t", "--format", "%x", "--no-follow"],
    ],
)
def test_what_makes_no_sense_is_a_usage_error(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", *args]) == 2
    assert capfd.readouterr().err.startswith("error: ")


def test_a_topic_or_partition_that_is_not_there_is_not_found(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["tail", "absent", "--no-follow"]) == 3
    assert "topic absent does not exist" in capfd.readouterr().err
    assert main(["tail", "t", "-p", "2", "--no-follow"]) == 3
    assert "no partition 2, only 0 to 1" in capfd.readouterr().err


def wide_records(broker: tailrace.Broker, topic: str) -> None:
    """More than a pipe and a client hold, so that who does not read all of it has to ask again."""
    broker.create_topic(topic)
    for _ in range(24):
        broker.produce(topic, b"x" * 1_000_000)


def start_tail(bootstrap_servers: str, topic: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tailrace", "tail", topic, "--from-beginning", "--no-follow"],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(tailrace.__file__).parents[1]),
            "TAILRACE_BOOTSTRAP": bootstrap_servers,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_an_end_that_will_not_come_is_not_waited_for_when_the_broker_goes() -> None:
    with tailrace.Broker() as leaving:
        wide_records(leaving, "wide")
        process = start_tail(leaving.bootstrap_servers, "wide")
        assert process.stdout is not None
        process.stdout.read(1)  # it is in the middle
    try:
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 5
    assert b"Is the broker running?" in errors


def test_an_end_that_will_not_come_is_not_waited_for_when_the_topic_is_made_anew(
    broker: tailrace.Broker,
) -> None:
    wide_records(broker, "wide")
    process = start_tail(broker.bootstrap_servers, "wide")
    assert process.stdout is not None
    process.stdout.read(1)  # it is in the middle
    assert main(["topic", "delete", "wide", "--yes"]) == 0
    broker.create_topic("wide")
    try:
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 3
    assert b"topic wide" in errors


def test_it_follows_until_ctrl_c_and_then_says_how_many(broker: tailrace.Broker) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])}
    broker.produce("followed", b"old", partition=0)
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace", "tail", "followed", "-f", r"%s\n"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "old\n"
        broker.produce("followed", b"new", partition=1)
        assert process.stdout.readline() == "new\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0
    assert errors == "\n2 records\n"
