"""Rows and records as tables and JSON, written into strings and into a pretended terminal."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
import rich_click as click

from tailrace.cli.main import run
from tailrace.cli.output import Column, Format, Output, Row, examples, output_option, progress_bar
from tailrace.model import escape

COLUMNS = [Column("name"), Column("bytes", "size", show=lambda count: f"{count / 1024:.0f} KiB", right=True)]
ROWS: list[Row] = [
    {"name": "a", "bytes": 2048, "crc": 7},
    {"name": "longer", "bytes": 1024, "crc": None},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(output_format: Format, rows: list[Row], columns: list[Column] = COLUMNS) -> str:
    stream = io.StringIO()
    Output(output_format, stream).rows(rows, columns=columns)
    return stream.getvalue()


def test_a_table_shows_the_columns_as_a_person_writes_them() -> None:
    lines = [line.rstrip() for line in shown("table", ROWS).splitlines()]
    assert lines == [
        "name     size",
        "a       2 KiB",
        "longer  1 KiB",
    ]


def test_json_is_one_array_with_every_field() -> None:
    assert json.loads(shown("json", ROWS)) == ROWS


def test_jsonl_is_one_line_per_row() -> None:
    assert [json.loads(line) for line in shown("jsonl", ROWS).splitlines()] == ROWS


def test_jsonl_shows_a_row_before_it_asks_for_the_next() -> None:
    stream = io.StringIO()

    def rows() -> Iterator[Row]:
        yield {"n": 1}
        assert stream.getvalue() == '{"n": 1}\n'
        yield {"n": 2}

    Output("jsonl", stream).rows(rows(), columns=[])
    assert stream.getvalue() == '{"n": 1}\n{"n": 2}\n'


@pytest.mark.parametrize(
    ("output_format", "text"), [("json", "[]\n"), ("jsonl", ""), ("table", "name  size")]
)
def test_no_rows(output_format: Format, text: str) -> None:
    assert shown(output_format, []).rstrip(" \n") == text.rstrip("\n")


def test_a_missing_field_is_an_empty_cell() -> None:
    assert shown("table", [{"bytes": 1024}]).splitlines()[1].strip() == "1 KiB"


def test_one_record_is_an_object_in_json() -> None:
    stream = io.StringIO()
    Output("json", stream).record({"ratio": 0.5, "machine": {"cores": 2}})
    assert json.loads(stream.getvalue()) == {"ratio": 0.5, "machine": {"cores": 2}}


def test_one_record_is_one_line_in_jsonl() -> None:
    stream = io.StringIO()
    Output("jsonl", stream).record({"ratio": 0.5})
    assert stream.getvalue() == '{"ratio": 0.5}\n'


def test_one_record_is_a_line_per_field_in_a_table() -> None:
    stream = io.StringIO()
    Output("table", stream).record({"ratio": 0.5, "cores": 2})
    assert [line.split() for line in stream.getvalue().splitlines()] == [["ratio", "0.5"], ["cores", "2"]]


def test_one_record_shows_the_columns_asked_for() -> None:
    stream = io.StringIO()
    Output("table", stream).record(ROWS[0], columns=COLUMNS)
    assert [line.split() for line in stream.getvalue().splitlines()] == [["name", "a"], ["size", "2", "KiB"]]


def test_json_knows_ids_and_paths() -> None:
    row: Row = {"id": UUID(int=1), "path": Path("/data")}
    assert json.loads(shown("jsonl", [row])) == {"id": str(UUID(int=1)), "path": "/data"}


@pytest.mark.parametrize("value", [b"bytes", object(), float("nan")], ids=["bytes", "object", "nan"])
@pytest.mark.parametrize("output_format", ["json", "jsonl"])
def test_json_refuses_what_a_reader_could_not_understand(value: object, output_format: Format) -> None:
    with pytest.raises((TypeError, ValueError)):
        shown(output_format, [{"value": value}])


def test_without_a_terminal_no_line_is_broken_and_nothing_is_coloured() -> None:
    text = shown("table", [{"name": "x" * 3000, "bytes": 0}])
    assert "x" * 3000 in text
    assert "\x1b" not in text


def test_on_a_terminal_a_long_cell_is_folded_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    Output("table", stream).rows([{"name": "x" * 100, "bytes": 0}], columns=COLUMNS)
    assert stream.getvalue().count("x") == 100


@pytest.mark.parametrize(
    "name", ["[red]no markup[/red]", ":smile:", "\x1b[2Jcleared", "two\nlines", "bell\x07"]
)
def test_content_never_steers_the_terminal(name: str) -> None:
    text = shown("table", [{"name": name, "bytes": 0}])
    assert escape(name) in text
    assert text.count("\n") == 2
    assert not set(text) & {"\x1b", "\x07"}


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain é 漢", "plain é 漢"),
        ("a\tb\r\n", "a\\tb\\r\\n"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202e", "\\u202e"),
        ("\udcff", "\\udcff"),
    ],
)
def test_escape(text: str, escaped: str) -> None:
    assert escape(text) == escaped


def test_the_option_hands_over_an_output(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @output_option
    def show(output: Output) -> None:
        output.record({"n": 1})

    assert run(show, ["-o", "jsonl"]) == 0
    assert capsys.readouterr().out == '{"n": 1}\n'
    assert run(show, []) == 0
    assert capsys.readouterr().out.split() == ["n", "1"]


def test_an_unknown_format_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    @output_option
    def show(output: Output) -> None:
        raise AssertionError("must not run")

    assert run(show, ["-o", "xml"]) == 2
    assert "jsonl" in capsys.readouterr().err


def test_examples_keep_their_lines_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command(epilog=examples("tailrace one", "tailrace two"))
    def show() -> None:
        pass

    run(show, ["--help"])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[lines.index("Examples:") :][:3] == ["Examples:", "tailrace one", "tailrace two"]


def test_no_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("checking", bytes_total=100) as advance:
        advance(100)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal_goes_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bar("checking [b]this[/b]", bytes_total=100) as advance:
        advance(100)
    assert "checking [b]this[/b]" in terminal.getvalue()
    assert "100/100 bytes" in terminal.getvalue()
    assert capsys.readouterr().out == ""
