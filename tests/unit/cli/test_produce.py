"""`tailrace produce` against a broker in this process: sources of records, their arrival, exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.cli.main import main
from tailrace.cli.produce import _lines
from tailrace.model import BrokerError

DEADLINE_S = 120
TIME_MS = int(time.time()) * 1000 - 60_000  # recent: retention must not take the records meanwhile


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture
def topic(broker: tailrace.Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
    return f"t{abs(hash(request.node.name))}"


def give(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def values(broker: tailrace.Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.read(topic)]


def only(broker: tailrace.Broker, topic: str) -> Any:
    (record,) = broker.read(topic)
    return record


def test_values_are_records(broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", topic, "a", "ü"]) == 0
    assert values(broker, topic) == [b"a", "ü".encode()]
    assert capsys.readouterr().out == f"2 records to {topic} partition 0, offsets 0 to 1\n"


def test_keys_and_headers_are_the_bytes_that_were_typed(broker: tailrace.Broker, topic: str) -> None:
    assert main(["produce", topic, "-k", "k\udcff", "-H", "h=\udcfe", "v\udcfd"]) == 0
    record = only(broker, topic)
    assert (record.key, record.headers, record.value) == (b"k\xff", (("h", b"\xfe"),), b"v\xfd")


def test_a_delimiter_is_the_bytes_that_were_typed(
    broker: tailrace.Broker, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, b"k\xffv\n")
    assert main(["produce", topic, "-K", "\udcff"]) == 0
    assert (only(broker, topic).key, only(broker, topic).value) == (b"k", b"v")
    give(monkeypatch, b"k:v\n")
    assert main(["produce", topic, "-K", "\udcff"]) == 1
    assert "there is no '\\\\xff' between key and value" in capsys.readouterr().err


@pytest.mark.usefixtures("topic")
def test_a_topic_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "t\udcff", "v"]) == 2
    assert capsys.readouterr().err == "error: 't\\udcff' is not UTF-8, and names are\n"


def test_a_file_that_is_closed_while_it_is_read_ends_the_reading() -> None:
    opened, closed = threading.Event(), threading.Event()

    class Closing(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            opened.set()
            assert closed.wait(DEADLINE_S)
            return super().read(count)

    async def read() -> None:
        stream = Closing(b"one\n")
        lines = asyncio.ensure_future(anext(_lines(stream)))
        await asyncio.to_thread(opened.wait, DEADLINE_S)
        stream.close()
        closed.set()
        lines.cancel()
        for thread in threading.enumerate():
            if thread.name == "reading input":
                await asyncio.to_thread(thread.join, DEADLINE_S)

    asyncio.run(read())  # an exception in a thread is a warning, and that an error


def test_input_that_comes_when_nobody_wants_lines_any_more_ends_the_reading() -> None:
    over = threading.Event()

    class Late(io.BytesIO):
        def read(self, count: int | None = -1) -> bytes:
            if self.tell():
                assert over.wait(DEADLINE_S)
            return super().read(4)

    with closing(asyncio.new_event_loop()) as loop:
        assert loop.run_until_complete(anext(_lines(Late(b"one\ntwo\n")))) == b"one"
        loop.run_until_complete(loop.shutdown_asyncgens())
        (thread,) = [each for each in threading.enumerate() if each.name == "reading input"]
        over.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def wait_arrived(broker: tailrace.Broker, topic: str) -> None:
    """Return once the topic has a record."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with suppress(BrokerError):  # there is no such topic yet
            if values(broker, topic):
                return
        time.sleep(0.01)
    pytest.fail("the record did not arrive")


def test_ctrl_c_while_it_waits_for_a_line_ends_quietly(broker: tailrace.Broker, topic: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tailrace", "produce", topic, "-o", "jsonl"],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            process.stdin.write(b"one\n")
            process.stdin.flush()
            wait_arrived(broker, topic)  # now it waits for the second
            process.send_signal(signal.SIGINT)
            process.wait(timeout=DEADLINE_S)
        finally:
            process.kill()
        assert (process.returncode, process.stderr.read().strip()) == (130, b"")


def test_lines_of_standard_input_are_records(
    broker: tailrace.Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, b"one\ntwo\r\n\nbinary \xff\nlast without an end")
    assert main(["produce", topic]) == 0
    assert values(broker, topic) == [b"one", b"two", b"", b"binary \xff", b"last without an end"]


def test_more_lines_than_one_read_holds_all_arrive(
    broker: tailrace.Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [b"%d " % index + bytes(b"x" * (index % 300)) for index in range(3000)]
    give(monkeypatch, b"\n".join(lines))
    assert main(["produce", topic, "-z", "lz4"]) == 0
    assert values(broker, topic) == lines


def test_a_file_is_read_instead(broker: tailrace.Broker, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"a\nb\n")
    assert main(["produce", topic, "--file", str(path)]) == 0
    assert values(broker, topic) == [b"a", b"b"]


def test_a_key_and_headers_go_with_every_record(broker: tailrace.Broker, topic: str) -> None:
    assert main(["produce", topic, "-k", "k", "-H", "a=1", "-H", "b=x=y", "-p", "0", "v"]) == 0
    record = only(broker, topic)
    assert (record.key, record.headers) == (b"k", (("a", b"1"), ("b", b"x=y")))


def test_a_delimiter_parts_key_and_value(
    broker: tailrace.Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, b"k:v:w\n:empty key")
    assert main(["produce", topic, "-K", ":"]) == 0
    assert [(record.key, record.value) for record in broker.read(topic)] == [
        (b"k", b"v:w"),
        (b"", b"empty key"),
    ]


def test_a_tombstone_has_a_key_and_no_value(broker: tailrace.Broker, topic: str) -> None:
    assert main(["produce", topic, "-k", "k", "--tombstone"]) == 0
    assert (only(broker, topic).key, only(broker, topic).value) == (b"k", None)


def test_json_lines_carry_everything(
    broker: tailrace.Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {
        "key": "k",
        "value": "/w==",
        "value_encoding": "base64",
        "timestamp": TIME_MS,
        "partition": 9,
        "headers": {"h": "x"},
    }
    give(monkeypatch, json.dumps(row).encode())
    assert main(["produce", topic, "--input", "jsonl", "-H", "more=1"]) == 0
    record = only(broker, topic)
    assert (record.key, record.value, record.timestamp) == (b"k", b"\xff", TIME_MS)
    assert record.headers == (("h", b"x"), ("more", b"1"))


def test_as_json_the_offsets_are_printed(
    broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["produce", topic, "a", "b", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["topic"], found["count"]) == (topic, 2)
    assert [(each["partition"], each["offset"]) for each in found["records"]] == [(0, 0), (0, 1)]
    assert main(["produce", topic, "c", "-o", "jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["offset"] == 2


def test_without_acks_the_offset_is_unknown(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", topic, "a", "--acks", "0"]) == 0
    assert "offset unknown" in capsys.readouterr().out


def test_no_records_at_all_are_no_error(
    topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    give(monkeypatch, b"")
    assert main(["produce", topic]) == 0
    assert "no records" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["v", "-K", ":", "-k", "k"],
        ["v", "-K", ""],
        ["v", "-H", "h"],
        ["v", "-H", "=x"],
        ["v", "--tombstone", "-k", "k"],
        ["--tombstone"],
        ["v", "--file", __file__],
        ["--file", "/nowhere/at/all"],
        ["v", "-z", "rar"],
        ["v", "-p", "-1"],
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    topic: str, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["produce", *([topic] if args else []), *args]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(
    ("data", "args", "words"),
    [
        (b"a:b\nno delimiter", ["-K", ":"], "line 2: there is no ':'"),
        (b'{"value": 1}\n{', ["--input", "jsonl"], "line 2: this is not JSON"),
    ],
)
def test_a_bad_line_is_named(
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    args: list[str],
    words: str,
) -> None:
    give(monkeypatch, data)
    assert main(["produce", topic, *args]) == 1
    assert words in capsys.readouterr().err


def test_a_partition_that_is_not_there_is_not_found(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", topic, "v", "-p", "9"]) == 3
    assert "no partition 9" in capsys.readouterr().err


def test_a_record_that_is_too_large_says_so(
    topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 2_000_000)
    assert main(["produce", topic, "--file", str(path)]) == 1
    assert "max.request.size" in capsys.readouterr().err


def test_nobody_there_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "t", "v", "--bootstrap", "127.0.0.1:1"]) == 1
    expected = (
        "error: cannot reach 127.0.0.1:1 (connection refused). Is the broker running? Try: tailrace up\n"
    )
    assert capsys.readouterr().err == expected


def test_an_address_that_is_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "t", "v", "--bootstrap", "host:port"]) == 2
    assert "not host:port" in capsys.readouterr().err


def test_help_teaches_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    assert "TAILRACE_BOOTSTRAP" in shown
