"""Types and state of `pipeline run sql`: from flags, from tailrace.toml, and what holds without either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rich_click as click

from tailrace.cli import pipeline_run
from tailrace.cli.output import Output
from tailrace.cli.pipeline_flag import FLAGS, given_values
from tailrace.cli.pipeline_run import Place
from tailrace.model import ConfigError
from tailrace.server.configuration import check_file, read_config

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")

QUERY = "SELECT data.total FROM STREAM orders"
TOML = """
[schemas.orders]
value = "total DECIMAL(12,2)"
[schemas."my.topic"]
value = "n INT"
[pipelines.totals]
run = "sql"
query = "SELECT data.total FROM STREAM orders"
to = "topic:totals"
schema = { payments = "id STRING" }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def place() -> Place:
    return Place(
        bootstrap=None,
        master=None,
        remote=None,
        conf=(),
        packages=(),
        py_files=(),
        archives=(),
        ship=False,
        ui=False,
        config_file=None,
        spark_log=False,
        with_parent=False,
        output=Output("table"),
    )


def made(*pairs: str, **given: Any) -> Any:
    """What flags make; pairs are those of --schema."""
    flags = FLAGS["sql"]
    options = {flag.field: None for flag in flags} | {"query": QUERY, "schema": pairs} | given
    return pipeline_run._make("sql", flags, given_values(flags, options), place())


def test_columns_keep_their_commas_and_equal_signs() -> None:
    found = made("orders=total DECIMAL(12,2), id STRING COMMENT 'a=b'", "payments = id INT").config
    assert found.schema == {"orders": "total DECIMAL(12,2), id STRING COMMENT 'a=b'", "payments": " id INT"}


@pytest.mark.parametrize("pair", ["orders", "=total INT"])
def test_a_schema_without_a_topic_is_refused(pair: str) -> None:
    with pytest.raises(click.UsageError, match="is not TOPIC=COLUMNS"):
        made(pair)


def test_a_file_declares_the_types_of_every_query(folder: Path) -> None:
    (folder / "tailrace.toml").write_text(TOML)
    assert made().config.schema == {"orders": "total DECIMAL(12,2)", "my.topic": "n INT"}
    assert made("orders=total INT").config.schema["orders"] == "total INT"
    (declared,) = pipeline_run._read_declared(place(), once=False)
    assert declared.config.schema == {
        "orders": "total DECIMAL(12,2)",
        "my.topic": "n INT",
        "payments": "id STRING",
    }


def test_a_declared_query_has_its_table_s_name(folder: Path) -> None:
    (folder / "tailrace.toml").write_text(TOML)
    (declared,) = pipeline_run._read_declared(place(), once=False)
    assert (declared.name, declared.config.name) == ("totals", "totals")
    assert (made(name="sums").name, made(name="sums").config.name) == ("sums", "sums")
    assert (made().name, made().config.name) == ("sql", None)


def test_state_is_in_the_data_directory_if_there_is_one(folder: Path) -> None:
    data_dir = Path(str(read_config(environment={}, directory=folder)["storage.data_dir"]))
    assert made().config.state is None
    data_dir.mkdir(parents=True)
    assert made().config.state == str(data_dir.absolute())
    assert made(state="/elsewhere").config.state == "/elsewhere"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("schemas = 5\n", "schemas must be tables: write [schemas.TOPIC]"),
        ("[schemas.orders]\nvalues = 'a INT'\n", "[schemas.orders] needs value = "),
        ("[schemas.orders]\nvalue = 5\n", "[schemas.orders] needs value = "),
        ("[schemas.orders]\nvalue = ''\n", "[schemas.orders]: the schema is empty"),
        ("[schemas.orders]\nvalue = 'nowhere.json'\n", "cannot read the schema nowhere.json"),
    ],
)
def test_a_wrong_declaration_is_named(folder: Path, text: str, problem: str) -> None:
    path = folder / "tailrace.toml"
    path.write_text(text)
    (found,) = check_file(path)
    assert problem in found


def test_a_file_whose_schemas_have_no_shape_is_refused(folder: Path) -> None:
    (folder / "tailrace.toml").write_text("[schemas.orders]\nvalues = 'a INT'\n")
    with pytest.raises(ConfigError, match="needs value"):
        made()
