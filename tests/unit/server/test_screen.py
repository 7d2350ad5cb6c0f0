"""The screen of `tailrace up`, line by line, on a terminal and without one, over streams made up here."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

import tailrace
from tailrace.server.engines import Description
from tailrace.server.screen import Facts, Screen, live_text, screen_lines
from tailrace.server.stats import Stats

SEGMENT = Description(name="segment", place="./data", directory="./data")
MEMORY = Description(name="memory", place="memory", durable=False)
FACTS = Facts(
    storage=SEGMENT,
    fsync="commit",
    accelerated=True,
    kafka="127.0.0.1:9092",
    native="127.0.0.1:9999",
    ready_s=0.4,
)


@pytest.fixture(autouse=True)
def _a_usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stats(**fields: float) -> Stats:
    values = {"records_in": 512.0, "bytes_in": 61_000.0, "records_out": 1024.0, "bytes_out": 122_000.0}
    return Stats(**{**values, "lag": 14, "produce_p99_ms": 2.1, **fields})  # type: ignore[arg-type]


def test_the_screen_tells_the_listeners_that_exist() -> None:
    assert list(screen_lines(FACTS)) == [
        f"tailrace {tailrace.__version__}   single node   data ./data   fsync commit   accel yes",
        "  Kafka    127.0.0.1:9092           bootstrap.servers=127.0.0.1:9092",
        "  native   127.0.0.1:9999",
        "  ready in 0.4 s",
        "  Next:  tailrace tail TOPIC     tailrace bench     tailrace --help",
    ]


def test_the_next_commands_can_be_copied_whatever_the_port_and_the_path() -> None:
    facts = replace(FACTS, kafka="127.0.0.1:19092", program=".venv/bin/tailrace", first_topic="orders")
    assert list(screen_lines(facts))[-1] == (
        "  Next:  .venv/bin/tailrace tail orders -b 127.0.0.1:19092     .venv/bin/tailrace bench -b"
        " 127.0.0.1:19092     .venv/bin/tailrace --help"
    )


def test_a_terminal_is_told_what_became_of_the_data() -> None:
    terminal, plain = Terminal(), io.StringIO()
    Screen(terminal).show_stopped(FACTS)
    Screen(terminal).show_stopped(replace(FACTS, storage=MEMORY))
    Screen(plain).show_stopped(FACTS)
    kept, gone = terminal.getvalue().replace("\r\x1b[K", "").splitlines()
    assert kept == "stopped. Everything is kept in ./data, and the next start goes on with it"
    assert gone == "stopped. The records were in memory, and are gone"
    assert plain.getvalue() == ""


def test_the_screen_tells_the_unix_socket_beside_the_port() -> None:
    lines = list(screen_lines(replace(FACTS, native_socket="unix:/run/tailrace.sock")))
    assert lines[2] == "  native   127.0.0.1:9999           unix:/run/tailrace.sock"


def test_a_clock_that_is_not_believed_is_told() -> None:
    told = "\n".join(screen_lines(replace(FACTS, clock_held="2026-11-18 08:00 UTC")))
    assert "nothing expires past 2026-11-18 08:00 UTC" in told
    assert "tailrace storage confirm-clock DIR" in told


def test_the_memory_engine_has_no_directory() -> None:
    memory = Facts(storage=MEMORY, fsync="commit", accelerated=False, kafka="h:1", native="h:2", ready_s=1)
    first = next(iter(screen_lines(memory)))
    assert first == f"tailrace {tailrace.__version__}   single node   engine memory   accel no"


def test_the_demo_is_told() -> None:
    facts = Facts(
        storage=SEGMENT,
        fsync="os",
        accelerated=True,
        kafka="h:1",
        native="h:2",
        ready_s=0.26,
        demo="3 topics, 2 groups, 500 msg/s",
        first_topic="orders",
    )
    lines = list(screen_lines(facts))
    assert "  ready in 0.3 s    demo: 3 topics, 2 groups, 500 msg/s" in lines
    assert "  Next:  tailrace tail orders -b h:1     tailrace bench -b h:1     tailrace --help" in lines


SPARK_OFF = "  Spark    off: make up SPARK=1, or tailrace up --demo --pipelines, adds a lake"


def test_a_demo_without_pipelines_says_how_to_have_them() -> None:
    lines = list(screen_lines(replace(FACTS, demo="3 topics")))
    assert lines[-2] == SPARK_OFF
    assert len(SPARK_OFF) < 80, "one line on every terminal"


@pytest.mark.parametrize(("demo", "pipelines"), [("", ""), ("3 topics", "archive to ./data/lake")])
def test_spark_is_not_told_of_where_pipelines_run_or_no_demo(demo: str, pipelines: str) -> None:
    lines = list(screen_lines(replace(FACTS, demo=demo, pipelines=pipelines)))
    assert not [line for line in lines if "Spark" in line]


def test_without_a_terminal_the_screen_is_plain_and_ends_with_ready() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.show_ready(FACTS)
    assert stream.getvalue() == "\n".join([*screen_lines(FACTS), "ready"]) + "\n"
    assert not screen.live


def test_a_name_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    facts = Facts(
        storage=replace(SEGMENT, place="a\x1b[2Jb\nready"),
        fsync="os",
        accelerated=True,
        kafka="h:1",
        native="h:2",
        ready_s=1,
    )
    Screen(stream).show_ready(facts)
    lines = stream.getvalue().splitlines()
    assert lines.count("ready") == 1
    assert all(line.isprintable() for line in lines)


def test_on_a_terminal_there_is_colour_and_no_ready_line() -> None:
    stream = Terminal()
    screen = Screen(stream)
    screen.show_ready(FACTS)
    assert screen.live
    assert "\x1b[" in stream.getvalue()
    assert "ready" not in stream.getvalue().splitlines()


def test_without_colour_if_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    screen = Screen(stream)
    screen.show_ready(FACTS)
    assert screen.live
    assert "\x1b" not in stream.getvalue()


def test_a_dumb_terminal_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    screen = Screen(stream)
    screen.show_ready(FACTS)
    assert not screen.live
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().splitlines()[-1] == "ready"


def test_the_live_line_does_without_bars_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="latin-1")
    monkeypatch.setenv("COLUMNS", "80")
    Screen(stream).show_live("in 5 msg/s ▁▄█ ü")
    assert written.getvalue() == "\rin 5 msg/s ??? ü\x1b[K".encode("latin-1")


def test_a_terminal_that_is_gone_stops_nothing() -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    screen = Screen(Gone())
    screen.show_live("x")
    screen.clear_live()


def test_the_live_line() -> None:
    assert live_text(stats(), [0, 1, 2]) == (
        "  in 512 msg/s ▁▄█  61 KB/s | out 1.0k msg/s | lag 14 | p99 2.1 ms"
    )


def test_before_anything_was_produced_there_is_no_p99() -> None:
    idle = Stats(records_in=0, bytes_in=0, records_out=0, bytes_out=0, lag=0, produce_p99_ms=None)
    assert live_text(idle, [0, 0]) == "  in 0 msg/s ▁▁  0 KB/s | out 0 msg/s | lag 0 | p99 -"


def test_the_live_line_is_replaced_and_cut_to_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    screen = Screen(stream)
    screen.show_live("x" * 100)
    assert stream.getvalue() == "\r" + "x" * 19 + "\x1b[K"


def test_the_live_line_makes_room_once() -> None:
    stream = Terminal()
    screen = Screen(stream)
    screen.clear_live()
    assert stream.getvalue() == ""
    screen.show_live("x")
    screen.clear_live()
    screen.clear_live()
    assert stream.getvalue().count("\r\x1b[K") == 1


def test_listeners_with_tls_are_shown_as_clients_name_them() -> None:
    secured = replace(FACTS, http="127.0.0.1:8080", kafka_protocol="SASL_SSL", http_scheme="https")
    shown = "\n".join(screen_lines(secured))
    assert "security.protocol=SASL_SSL" in shown and "https://" in shown
    assert "--tls-ca FILE --user NAME" in shown
