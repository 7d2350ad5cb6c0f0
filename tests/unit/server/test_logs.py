"""Log lines: real loggers, real records, and hostile texts in them."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from tailrace.server.logs import JsonFormatter, TextFormatter, end_logs, set_up_logs

HOSTILE = "first\nsecond\r\x1b[31mred\x00\x85\u2028"


def record(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    made = logging.LogRecord("tailrace.kafka.listener", logging.WARNING, "x.py", 1, message, args, None)
    made.created, made.msecs = 0.25, 250.0
    if error is not None:
        made.exc_info = (type(error), error, error.__traceback__)
    return made


def test_a_text_line_says_when_how_grave_where_and_what() -> None:
    line = TextFormatter().format(record("closed %s: %d bytes", "peer", 7))
    assert line == "1970-01-01T00:00:00.250 WARNING kafka.listener closed peer: 7 bytes"


def test_a_json_line_is_one_object() -> None:
    row = json.loads(JsonFormatter().format(record("closed %s", "peer")))
    assert row == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "tailrace.kafka.listener",
        "message": "closed peer",
    }


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_no_text_makes_a_second_line_or_a_colour(formatter: logging.Formatter) -> None:
    line = formatter.format(record("closed %s", HOSTILE))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert "second" in line


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_traceback_stays_in_its_line(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        line = formatter.format(record("failed", error=error))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert "ValueError" in line
    assert "test_logs.py" in line


def test_only_what_is_important_enough_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    handler = set_up_logs(level="warning", form="text")
    handler.setStream(sys.stderr)
    try:
        logging.getLogger("tailrace.some.part").info("whispered")
        logging.getLogger("tailrace.some.part").warning("said")
    finally:
        end_logs(handler)
    shown = capsys.readouterr().err
    assert shown.endswith("WARNING some.part said\n")
    assert shown.count("\n") == 1


def test_what_was_set_up_can_be_undone() -> None:
    ours = logging.getLogger("tailrace")
    before = (ours.level, ours.propagate, list(ours.handlers), list(logging.getLogger("asyncio").handlers))
    end_logs(set_up_logs(level="debug", form="json"))
    after = (ours.level, ours.propagate, list(ours.handlers), list(logging.getLogger("asyncio").handlers))
    assert before == after


def test_a_live_line_makes_room_first(capsys: pytest.CaptureFixture[str]) -> None:
    handler = set_up_logs(level="info", form="text")
    handler.setStream(sys.stderr)
    handler.before = lambda: print("<room>", end="", file=sys.stderr)
    try:
        logging.getLogger("tailrace.x").info("said")
    finally:
        end_logs(handler)
    assert capsys.readouterr().err.startswith("<room>")
