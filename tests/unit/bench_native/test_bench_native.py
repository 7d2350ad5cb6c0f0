"""`tailrace bench native` against an embedded broker: figures, output, errors, and what is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailrace
from tailrace.bench.native import load, run
from tailrace.bench.native.run import SHAPES, NativePlan, look, run_native_bench
from tailrace.bench.native.subject import NativeSubject
from tailrace.bench.wire.broker import BrokerRun
from tailrace.bench.wire.reader import LoadError
from tailrace.cli.main import main
from tailrace.client.error import ClientError
from tailrace.model.address import Address

TINY = NativePlan(seconds=0.5)


@pytest.fixture
def subject(broker: tailrace.Broker) -> NativeSubject:
    node = Address("127.0.0.1", broker.native_port)
    return look(node, bootstrap=broker.bootstrap_servers, timeout_s=60)


@pytest.fixture
def node(broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch) -> str:
    """The broker at the default addresses of this test's commands, and windows that are short."""
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
    monkeypatch.setenv("TAILRACE_NODE", broker.native_address)
    monkeypatch.setattr(run, "FULL_S", TINY.seconds)
    return broker.native_address


def left_in(broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The names of all topics and subscriptions."""
    capsys.readouterr()
    assert main(["topic", "list", "-o", "json", "--bootstrap", broker.bootstrap_servers]) == 0
    topics = json.loads(capsys.readouterr().out)
    assert main(["subscription", "list", "-o", "json", "--node", broker.native_address]) == 0
    return [row["name"] for row in (*topics, *json.loads(capsys.readouterr().out))]


# ---- the run


def test_every_load_has_its_figures_and_nothing_is_left(
    broker: tailrace.Broker, subject: NativeSubject, capsys: pytest.CaptureFixture[str]
) -> None:
    titles: list[str] = []

    found = run_native_bench(subject, TINY, note=titles.append)

    assert found.failure is None and found.topic_left is None and not found.interrupted
    assert [each.name for each in found.results] == [shape.name for shape in SHAPES]
    assert titles == [shape.title for shape in SHAPES]
    by_name = {each.name: each for each in found.results}
    assert all(each.per_s > 0 and each.cpu_us is not None for each in found.results)
    for name in ("one", "latency", "publish"):
        assert by_name[name].p50_ms is not None
    assert by_name["deliver"].p50_ms is None
    assert left_in(broker, capsys) == []


def test_a_load_that_fails_keeps_what_came_before_and_still_cleans_up(
    broker: tailrace.Broker,
    subject: NativeSubject,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def fail(*_args: object, **_options: object) -> None:
        raise LoadError("3 of 4 messages came")

    monkeypatch.setattr(load, "end_to_end", fail)

    found = run_native_bench(subject, TINY)

    assert [each.name for each in found.results] == ["one"]
    assert found.failure == "publish to handler, 1,000 messages/s: 3 of 4 messages came"
    assert left_in(broker, capsys) == []


def test_an_interrupt_keeps_what_came_before_and_still_cleans_up(
    broker: tailrace.Broker, subject: NativeSubject, capsys: pytest.CaptureFixture[str]
) -> None:
    def note(title: str) -> None:
        if title == SHAPES[1].title:
            raise KeyboardInterrupt

    found = run_native_bench(subject, TINY, note=note)

    assert found.interrupted
    assert [each.name for each in found.results] == ["one"]
    assert left_in(broker, capsys) == []


def test_a_topic_that_cannot_be_deleted_is_named_and_its_subscriptions_are_gone(
    broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    node = Address("127.0.0.1", broker.native_port)
    subject = look(node, bootstrap="127.0.0.1:1", timeout_s=60)

    found = run_native_bench(subject, TINY)

    assert found.topic_left is not None and found.topic_left.startswith("tailrace-bench-")
    assert found.failure is None
    assert left_in(broker, capsys) == [found.topic_left]


def test_nobody_there_is_told_before_anything_else() -> None:
    with pytest.raises(ClientError):
        look(Address("127.0.0.1", 1), bootstrap=None, timeout_s=2)


# ---- the command


@pytest.mark.usefixtures("node")
def test_the_table_has_every_load_and_the_settings(
    broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "native"]) == 0

    shown = capsys.readouterr()
    lines = [line.split() for line in shown.out.splitlines()]
    assert lines[0][:3] == ["load", "per", "s"]
    assert [line[0] for line in lines[1 : 1 + len(SHAPES)]] == [shape.name for shape in SHAPES]
    assert ["broker", broker.native_address] in lines
    assert ["each", "load", f"{TINY.seconds:g}", "s"] in lines
    assert shown.err.splitlines()[: len(SHAPES)] == [shape.title for shape in SHAPES]
    assert "\x1b" not in shown.out + shown.err


@pytest.mark.usefixtures("node")
def test_json_and_page_have_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"

    assert main(["bench", "native", "--seconds", "0.2", "-o", "json", "--html", str(page)]) == 0

    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["loads"]] == [shape.name for shape in SHAPES]
    assert found["settings"] == {
        "seconds": 0.2,
        "body_bytes": 100,
        "in_flight": 200,
        "prefetch": 200,
        "latency_per_s": 1000,
    }
    assert found["stopped"] is None
    text = page.read_text(encoding="utf-8")
    assert "<title>tailrace bench native" in text and SHAPES[0].title in text


@pytest.mark.usefixtures("node")
def test_a_failure_is_told_with_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = BrokerRun(failure="one publish: no answer", topic_left="tailrace-bench-1")
    monkeypatch.setattr(run, "run_native_bench", lambda *_args, **_options: stopped)

    assert main(["bench", "native"]) == 1

    shown = capsys.readouterr().err
    assert "failed in the middle: one publish: no answer" in shown
    assert "tailrace topic delete tailrace-bench-1 --yes" in shown


def test_a_node_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "native", "--node", "127.0.0.1:1", "--timeout", "2"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_help_tells_every_load(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "native", "--help"]) == 0
    shown = capsys.readouterr().out
    for shape in SHAPES:
        assert f"{shape.name}: " in shown
    for word in ("--node", "--bootstrap", "--html", "Examples:"):
        assert word in shown
