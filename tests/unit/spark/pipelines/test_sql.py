"""Configs, checkpoints, folders and what is printed of a query; nothing here starts Spark."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines.sql import (
    SqlConfig,
    check_config,
    plan_checkpoint,
    plan_output_mode,
    read_position,
    shorten,
)
from tailrace.spark.pipelines.sql_sink import (
    MARKER,
    claim_folder,
    make_empty_folder,
    print_json,
    print_table,
)
from tailrace.spark.pipelines.sql_view import make_view

STREAM = "SELECT key FROM STREAM orders"
SESSIONS = "SELECT key, count(*) FROM STREAM orders GROUP BY key, session_window(timestamp, '5 minutes')"
SUM = "SELECT key, count(*) FROM STREAM orders GROUP BY key"


@pytest.mark.parametrize(
    "fields",
    [
        {"query": "  "},
        {"output_mode": "upsert"},
        {"starting": "5"},
        {"output": "xml"},
        {"rows_shown": 0},
        {"batch_rows": 0},
        {"checkpoint": "hdfs://nn/cp"},
        {"trigger_s": -1.0},
        {"trigger_s": float("nan")},
        {"to": ""},
        {"to": "topic:"},
        {"to": "s3://bucket/x"},
    ],
)
def test_a_wrong_setting_is_named(fields: dict[str, object]) -> None:
    name = next(iter(fields))
    with pytest.raises(ConfigError, match=f"sql: .*{name}"):
        check_config(SqlConfig(**{"query": STREAM, **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize("to", ["console", "topic:t", "./out", "file:///tmp/out"])
def test_places_that_rows_can_go_to(to: str) -> None:
    check_config(SqlConfig(query=STREAM, to=to))


def test_sessions_without_a_watermark_are_never_final() -> None:
    assert plan_output_mode(SqlConfig(query=SESSIONS, watermark="")) == "complete"


@pytest.mark.parametrize(
    ("query", "to", "given", "mode"),
    [
        (STREAM, "console", None, "append"),
        (SUM, "console", None, "update"),
        (SUM, "topic:t", None, "update"),
        (SUM, "./out", None, "append"),
        (SUM, "console", "complete", "complete"),
        (SESSIONS, "console", None, "append"),
        (SESSIONS, "topic:t", None, "append"),
        (SESSIONS, "console", "complete", "complete"),
        (SUM + " -- session_window(timestamp)", "console", None, "update"),
    ],
)
def test_an_aggregation_changes_rows_and_a_folder_gets_final_ones(
    query: str, to: str, given: str | None, mode: str
) -> None:
    assert plan_output_mode(SqlConfig(query=query, to=to, output_mode=given)) == mode


def test_checkpoints_are_where_their_results_are() -> None:
    home = Path("/state")
    assert plan_checkpoint(SqlConfig(query=STREAM), state_home=home) is None
    assert plan_checkpoint(SqlConfig(query=STREAM, checkpoint="/cp"), state_home=home) == Path("/cp")
    local = SqlConfig(query=STREAM, checkpoint="file:///cp")
    check_config(local)
    assert plan_checkpoint(local, state_home=home) == Path("/cp")
    assert plan_checkpoint(SqlConfig(query=STREAM, to="/out"), state_home=home) == Path("/out/_checkpoint")
    one, other, same = (
        plan_checkpoint(SqlConfig(query=query, to="topic:t"), state_home=home)
        for query in (STREAM, SUM, STREAM)
    )
    assert one == same != other
    assert one is not None and one.parent == home / "tailrace" / "sql"


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        ({"v": 1, "pos": {"t": {"0": 5}}}, {"t": {0: 5}}),
        ('{"v":1,"pos":{"t":{"0":5}},"from":{}}', {"t": {0: 5}}),
        (None, {}),
        ("no json", {}),
        (7, {}),
        ({"pos": {"t": {"x": 1}}}, {}),
        ({"rowsPerSecond": 1}, {}),
    ],
)
def test_positions_are_read_from_a_sources_offset(offset: object, found: dict[str, dict[int, int]]) -> None:
    assert read_position(offset) == found


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] No column `x`. SQLSTATE: 42703; line 1 pos 7;"
            "\n'Project ['x]\n+- View",
            "No column `x`. line 1 pos 7",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 1, pos 0)"
            "\n\n== SQL ==\nSELEC",
            "Syntax error at or near 'SELEC'. (line 1, pos 0)",
        ),
        ("OSError: no room SQLSTATE: 39000 === Streaming Query === Identifier: [id = 1]", "OSError: no room"),
        (
            "data loss: set failOnDataLoss=false, or start over",
            "data loss: set fail_on_data_loss = false (--no-fail-on-data-loss), or start over",
        ),
        ("", ""),
    ],
)
def test_what_spark_says_is_told_without_its_plan(text: str, short: str) -> None:
    assert shorten(text) == short


# ---- a folder


def test_a_folder_belongs_to_its_checkpoint(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "out", tmp_path / "out" / "_checkpoint"
    claim_folder(folder, checkpoint, query=STREAM)
    claim_folder(folder, checkpoint, query=STREAM)
    marker = json.loads((folder / MARKER).read_text())
    assert marker["query"] == STREAM
    with pytest.raises(ConfigError, match="whose checkpoint is gone"):
        claim_folder(folder, tmp_path / "other", query=STREAM)


def test_a_claim_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    claim_folder(folder, checkpoint, query=STREAM)
    (folder / MARKER).unlink()
    claim_folder(folder, checkpoint, query=STREAM)
    assert (folder / MARKER).read_text() == (checkpoint / MARKER).read_text()


def test_a_claim_that_was_killed_while_it_wrote_its_marker_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, checkpoint = tmp_path / "out", tmp_path / "out" / "_checkpoint"
    replace = Path.replace

    def killed(path: Path, target: Path) -> Path:
        if target.parent == folder:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            claim_folder(folder, checkpoint, query=STREAM)
    claim_folder(folder, checkpoint, query=STREAM)
    assert (folder / MARKER).read_text() == (checkpoint / MARKER).read_text()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(ConfigError, match="no result of a query"):
        claim_folder(tmp_path, tmp_path / "_checkpoint", query=STREAM)


def test_a_damaged_marker_is_named(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        claim_folder(tmp_path, tmp_path / "cp", query=STREAM)


def test_a_folder_for_one_result_is_empty_but_for_what_a_killed_run_left(tmp_path: Path) -> None:
    make_empty_folder(tmp_path / "new" / "out")
    (tmp_path / "out" / ".batch=0").mkdir(parents=True)
    make_empty_folder(tmp_path / "out")
    (tmp_path / "out" / "batch=0").mkdir()
    with pytest.raises(ConfigError, match="is not empty"):
        make_empty_folder(tmp_path / "out")


# ---- what is asked of the source


class Reader:
    """Notes the options of a read, and ends there."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def format(self, name: str) -> Reader:
        assert name == "tailrace"
        return self

    def options(self, **given: str) -> Reader:
        self.given = given
        return self

    def load(self) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("stream", [True, False])
def test_a_query_s_settings_are_options_of_its_sources(stream: bool) -> None:
    reader = Reader()
    context = SimpleNamespace(defaultParallelism=3)
    session: Any = SimpleNamespace(read=reader, readStream=reader, sparkContext=context)
    link: Any = SimpleNamespace(bootstrap_servers="h:1")
    with pytest.raises(KeyboardInterrupt):
        make_view(
            session,
            "orders",
            link=link,
            stream=stream,
            starting="latest",
            batch_rows=7,
            fail_on_data_loss=False,
            watermark=None,
        )
    limits = {"maxOffsetsPerTrigger": "7", "startingOffsets": "latest"} if stream else {}
    assert reader.given == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "orders",
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "parallelism": "3",
        **limits,
    }


# ---- the terminal


def test_rows_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(3, ["key", "n"], [("a", 1), (None, 22)], True)
    assert capsys.readouterr().out == "batch 3\nkey  n\na    1\n     22\n...\n\n"


def test_no_rows_are_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(3, ["key"], [], False)
    print_json(3, ["key"], [], False)
    assert capsys.readouterr().out == ""


def test_what_a_terminal_might_obey_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(0, ["v"], [("\x1b[2J\nx",), ("y" * 200,), (b"\xff",)], False)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) == 60


def test_rows_are_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(0, ["k", "v"], [(b"k", {"a": [1, None]}), (None, (1, "x"))], False)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"k": "k", "v": {"a": [1, None]}}, {"k": None, "v": [1, "x"]}]
