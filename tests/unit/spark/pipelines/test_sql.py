"""Configs, checkpoints, folders and what is printed of a query; nothing here starts Spark."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines.sql import (
    SqlConfig,
    check_config,
    plan_output_mode,
    read_position,
    shorten,
)
from tailrace.spark.pipelines.sql_bad import read_bad_rows
from tailrace.spark.pipelines.sql_sink import (
    MARKER,
    claim_folder,
    make_empty_folder,
    print_json,
    print_table,
)
from tailrace.spark.pipelines.sql_state import keep_query, plan_checkpoint
from tailrace.spark.pipelines.sql_view import Reading, read_topic

STREAM = "SELECT key FROM STREAM orders"
SESSIONS = "SELECT key, count(*) FROM STREAM orders GROUP BY key, session_window(timestamp, '5 minutes')"
SUM = "SELECT key, count(*) FROM STREAM orders GROUP BY key"
COLUMNS = "struct<key:string>"
HOME = {"XDG_STATE_HOME": "/state"}


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
        {"state": "s3://bucket/x"},
        {"name": "../x"},
        {"name": ""},
        {"bad_rows": "drop"},
        {"bad_rows": "topic:"},
        {"schema": {"orders": " "}},
        {"schema": {"orders": "nowhere/orders.json"}},
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


def place(**fields: Any) -> Path | None:
    return plan_checkpoint(SqlConfig(**{"query": STREAM, **fields}), environment=HOME).path


def test_checkpoints_are_where_their_results_are() -> None:
    assert place() is None
    assert place(checkpoint="/cp") == Path("/cp")
    local = SqlConfig(query=STREAM, checkpoint="file:///cp")
    check_config(local)
    assert place(checkpoint="file:///cp") == Path("/cp")
    assert place(to="/out") == Path("/out/_checkpoint")
    one, other, same = (place(query=query, to="topic:t") for query in (STREAM, SUM, STREAM))
    assert one == same != other
    assert one is not None and one.parent == Path("/state/tailrace/sql")


def test_white_space_and_comments_make_no_other_query() -> None:
    spaced = "SELECT  key\n FROM STREAM orders -- all of them\n ;"
    assert place(query=spaced, to="topic:t") == place(to="topic:t")
    assert place(query="SELECT 'a  b'", to="topic:t") != place(query="SELECT 'a b'", to="topic:t")
    assert place(to="topic:u") != place(to="topic:t")


def test_a_name_is_the_folder_of_a_query_whatever_its_text() -> None:
    named = [place(query=query, to="topic:t", name="sums", state="/data") for query in (STREAM, SUM)]
    assert named == [Path("/data/sql/sums")] * 2


def test_a_checkpoint_of_the_older_naming_is_found(tmp_path: Path) -> None:
    home = {"XDG_STATE_HOME": str(tmp_path)}
    config = SqlConfig(query=STREAM, to="topic:t", name="sums", state=str(tmp_path / "data"))
    old = hashlib.sha256(repr((config.bootstrap, STREAM, "topic:t")).encode()).hexdigest()[:20]
    folder = tmp_path / "tailrace" / "sql" / old
    folder.mkdir(parents=True)
    assert plan_checkpoint(config, environment=home).path == folder
    (tmp_path / "data" / "sql" / "sums").mkdir(parents=True)
    assert plan_checkpoint(config, environment=home).path == tmp_path / "data" / "sql" / "sums"


def notice(tmp_path: Path, query: str, *, to: str = "topic:t", name: str | None = None) -> str:
    """What is said of a query before it starts; then it has started."""
    config = SqlConfig(query=query, to=to, name=name, state=str(tmp_path))
    found = plan_checkpoint(config, environment=HOME)
    assert found.path is not None
    keep_query(config, found.path)
    return found.notice


def test_a_changed_query_is_told_that_it_starts_over(tmp_path: Path) -> None:
    assert notice(tmp_path, STREAM) == ""
    assert notice(tmp_path, STREAM + " -- the same") == ""
    assert notice(tmp_path, SUM, to="topic:u") == ""
    changed = notice(tmp_path, SUM)
    assert "another query has written to topic:t before, and this one starts over" in changed
    assert notice(tmp_path, SUM) == ""


def test_a_named_query_that_changed_is_told_that_it_goes_on(tmp_path: Path) -> None:
    assert notice(tmp_path, STREAM, name="sums") == ""
    assert notice(tmp_path, STREAM, name="sums") == ""
    assert "the query sums has changed: it goes on" in notice(tmp_path, SUM, name="sums")
    assert notice(tmp_path, SUM, name="sums") == ""


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
    claim_folder(folder, checkpoint, query=STREAM, columns=COLUMNS)
    claim_folder(folder, checkpoint, query=STREAM, columns=COLUMNS)
    marker = json.loads((folder / MARKER).read_text())
    assert marker["query"] == STREAM
    with pytest.raises(ConfigError, match="whose checkpoint is gone"):
        claim_folder(folder, tmp_path / "other", query=STREAM, columns=COLUMNS)


def test_a_folder_keeps_its_columns(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "out", tmp_path / "out" / "_checkpoint"
    claim_folder(folder, checkpoint, query=STREAM, columns=COLUMNS)
    with pytest.raises(ConfigError, match=r"has rows with the columns .*string.* and the query gives .*int"):
        claim_folder(folder, checkpoint, query=STREAM, columns="struct<key:int>")
    marker = json.loads((folder / MARKER).read_text())
    del marker["columns"]  # as an earlier version wrote it
    (folder / MARKER).write_text(json.dumps(marker))
    claim_folder(folder, checkpoint, query=STREAM, columns="struct<key:int>")


def test_a_claim_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    claim_folder(folder, checkpoint, query=STREAM, columns=COLUMNS)
    (folder / MARKER).unlink()
    claim_folder(folder, checkpoint, query=STREAM, columns=COLUMNS)
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
            claim_folder(folder, checkpoint, query=STREAM, columns=COLUMNS)
    claim_folder(folder, checkpoint, query=STREAM, columns=COLUMNS)
    assert (folder / MARKER).read_text() == (checkpoint / MARKER).read_text()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(ConfigError, match="no result of a query"):
        claim_folder(tmp_path, tmp_path / "_checkpoint", query=STREAM, columns=COLUMNS)


def test_a_damaged_marker_is_named(tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        claim_folder(tmp_path, tmp_path / "cp", query=STREAM, columns=COLUMNS)


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
    reading = Reading(
        link=link,
        starting="latest",
        batch_rows=7,
        fail_on_data_loss=False,
        watermark=None,
        bad_rows=read_bad_rows("fail"),
    )
    with pytest.raises(KeyboardInterrupt):
        read_topic(session, "orders", reading, stream=stream)
    of_stream = {"maxOffsetsPerTrigger": "7", "startingOffsets": "latest", "waitForTopics": "true"}
    assert reader.given == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "orders",
        "includeHeaders": "true",
        "failOnDataLoss": "false",
        "isolation.level": "read_committed",
        "parallelism": "3",
        **(of_stream if stream else {}),
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
