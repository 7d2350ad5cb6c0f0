"""`tailrace group` against a broker in this process, with real members: results, exit codes, and resets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

import tailrace
from tailrace.cli.main import main
from tailrace.client import MessageConsumer


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker(configs={"num.partitions": 2}) as running:
        now_ms = int(time.time() * 1000)
        for index in range(20):  # the older half two hours ago, the newer half now
            age_ms = 7_200_000 if index < 10 else 0
            running.produce("t", b"%d" % index, partition=index % 2, timestamp=now_ms - age_ms)
        running.produce("u", b"v", partition=0)
        yield running


@pytest.fixture
def group(broker: tailrace.Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name for this test alone; there is no such group yet."""
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
    return f"g{abs(hash(request.node.name))}"


def run_json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["group", *args, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def reset(capsys: pytest.CaptureFixture[str], group: str, *args: str) -> list[tuple[int | None, int]]:
    rows = run_json(capsys, "reset", group, *args)
    return [(row["before"], row["after"]) for row in rows]


def offsets(capsys: pytest.CaptureFixture[str], group: str) -> dict[str, int]:
    rows = run_json(capsys, "lag", group)
    return {f"{row['topic']}-{row['partition']}": row["committed"] for row in rows}


@pytest.fixture
def at_five(group: str, capsys: pytest.CaptureFixture[str]) -> str:
    """A group that stands at offset 5 of both partitions."""
    reset(capsys, group, "--topic", "t", "--to-offset", "5", "--yes")
    return group


# ---- look


def test_a_group_with_a_member_is_shown(
    broker: tailrace.Broker, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    props = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "client.id": "reader"}
    with MessageConsumer(props) as consumer:
        consumer.subscribe(["t"])
        count = 0
        while count < 20:
            count += len(consumer.poll(100))
        consumer.commit()
        found = run_json(capsys, "describe", group)
        assert (found["state"], found["strategy"], found["lag"]) == ("Stable", "range", 0)
        (member,) = found["members"]
        assert (member["client_id"], member["partitions"]) == ("reader", ["t-0", "t-1"])
        assert {row["member"] for row in found["offsets"]} == {member["member"]}
        (row,) = [row for row in run_json(capsys, "list") if row["group"] == group]
        assert (row["state"], row["members"], row["topics"], row["lag"]) == ("Stable", 1, ["t"], 0)
        assert main(["group", "describe", group]) == 0
        shown = capsys.readouterr().out
        assert "Members" in shown and "reader" in shown


def test_lag_is_what_is_left_to_read(at_five: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_json(capsys, "lag", at_five)
    assert [(row["committed"], row["end_offset"], row["lag"]) for row in rows] == [(5, 10, 5), (5, 10, 5)]
    assert main(["group", "lag", at_five]) == 0
    assert capsys.readouterr().err == "lag 10\n"


# ---- reset


def test_a_reset_shows_before_and_after_and_changes_nothing(
    at_five: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reset(capsys, at_five, "--topic", "t", "--to-earliest") == [(5, 0), (5, 0)]
    assert offsets(capsys, at_five) == {"t-0": 5, "t-1": 5}
    assert main(["group", "reset", at_five, "--topic", "t", "--to-earliest", "--dry-run", "--yes"]) == 0
    assert "nothing was changed" in capsys.readouterr().err
    assert offsets(capsys, at_five) == {"t-0": 5, "t-1": 5}


@pytest.mark.parametrize(
    ("goal", "after"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-offset", "999"], 10),
        (["--shift-by", "2"], 7),
        (["--shift-by", "-3"], 2),
        (["--shift-by", "-99"], 0),
        (["--to-datetime", "1h"], 5),
        (["--to-datetime", "3h"], 0),
        (["--to-datetime", "2099-01-01"], 10),
    ],
)
def test_a_reset_with_yes_moves_the_group(
    at_five: str, goal: list[str], after: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reset(capsys, at_five, "--topic", "t", *goal, "--yes") == [(5, after), (5, after)]
    assert offsets(capsys, at_five) == {"t-0": after, "t-1": after}


def test_a_reset_may_concern_some_partitions_only(at_five: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reset(capsys, at_five, "--topic", "t:1", "--topic", "u:0", "--to-latest", "--yes") == [
        (5, 10),
        (None, 1),
    ]
    assert offsets(capsys, at_five) == {"t-0": 5, "t-1": 10, "u-0": 1}


def test_all_topics_are_those_that_the_group_has_offsets_for(
    at_five: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reset(capsys, at_five, "--all-topics", "--to-earliest", "--yes") == [(5, 0), (5, 0)]


def test_a_group_with_members_is_not_moved(
    broker: tailrace.Broker, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with MessageConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group}) as consumer:
        consumer.subscribe(["t"])
        while not consumer.poll(100):
            pass
        assert main(["group", "reset", group, "--topic", "t", "--to-earliest", "--yes"]) == 1
        assert "Stop its consumers first" in capsys.readouterr().err
        assert main(["group", "delete", group, "--yes"]) == 1
        assert "Stop its consumers first" in capsys.readouterr().err


def test_the_preview_says_what_would_be_refused(
    broker: tailrace.Broker, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with MessageConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group}) as consumer:
        consumer.subscribe(["t"])
        while not consumer.poll(100):
            pass
        assert main(["group", "reset", group, "--topic", "t", "--to-earliest"]) == 0
        assert capsys.readouterr().err == (
            f"nothing was changed. group {group} is Stable with 1 member, which would overwrite the offsets."
            " Stop its consumers first\n"
        )
        assert main(["group", "delete", group, "--dry-run"]) == 1
        said = capsys.readouterr().err
        assert said == f"error: group {group} is Stable with 1 member. Stop its consumers first\n"
    assert main(["group", "reset", group, "--topic", "t", "--to-earliest"]) == 0
    assert capsys.readouterr().err == "nothing was changed. Add --yes to do it\n"


def test_an_offset_outside_the_log_is_told(at_five: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "reset", at_five, "--topic", "t", "--to-offset", "1000"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "in 2 partitions the offset lies outside the log, and the nearer end is taken"
    rows = run_json(capsys, "reset", at_five, "--topic", "t:0", "--to-offset", "1000")
    assert [row["clamped"] for row in rows] == [True]


def test_what_has_no_offset_cannot_be_shifted(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "reset", group, "--topic", "t", "--shift-by", "1"]) == 1
    assert "no committed offset" in capsys.readouterr().err


# ---- delete


def test_a_group_is_deleted_with_its_offsets(at_five: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "delete", at_five]) == 2
    assert main(["group", "delete", at_five, "--dry-run"]) == 0
    capsys.readouterr()
    assert offsets(capsys, at_five) == {"t-0": 5, "t-1": 5}
    assert run_json(capsys, "delete", at_five, "--yes")[0]["deleted"] is True
    assert main(["group", "describe", at_five]) == 3
    assert at_five not in [row["group"] for row in run_json(capsys, "list")]


# ---- trouble


@pytest.mark.parametrize(
    "args",
    [
        ["describe", "{group}"],
        ["lag", "{group}"],
        ["delete", "{group}", "--yes"],
        ["reset", "{group}", "--all-topics", "--to-earliest"],
        ["reset", "{group}", "--topic", "absent", "--to-earliest"],
        ["reset", "{group}", "--topic", "t:9", "--to-earliest"],
    ],
)
def test_what_is_not_there_is_not_found(
    group: str, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["group", *(each.format(group=group) for each in args)]) == 3
    assert "Try: tailrace" in (shown := capsys.readouterr().err) or "no partition" in shown


@pytest.mark.parametrize(
    "args",
    [
        ["describe"],
        ["reset", "g", "--topic", "t"],
        ["reset", "g", "--topic", "t", "--to-earliest", "--to-latest"],
        ["reset", "g", "--to-earliest"],
        ["reset", "g", "--topic", "t", "--all-topics", "--to-earliest"],
        ["reset", "g", "--topic", "t:x", "--to-earliest"],
        ["reset", "g", "--topic", "t", "--to-datetime", "noon"],
        ["lag"],
        ["delete"],
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    group: str, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["group", *args]) == 2


@pytest.mark.parametrize("verb", ["list", "describe", "lag", "reset", "delete"])
def test_every_verb_teaches_by_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", verb, "--help"]) == 0
    assert "Examples:" in capsys.readouterr().out
