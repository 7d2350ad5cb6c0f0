"""What a Spark is told: flags over a file, what is refused, and how it becomes Spark's own settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines.spark_settings import (
    SparkSettings,
    check_settings,
    read_conf,
    read_table,
    spark_conf,
)


def test_flags_win_over_the_file_key_by_key() -> None:
    file = SparkSettings(master="yarn", conf={"spark.a": "1", "spark.b": "1"}, packages=("x:y:1",), ship=True)
    flags = SparkSettings(conf={"spark.b": "2"}, packages=("p:q:2",))
    assert flags.over(file) == SparkSettings(
        master="yarn", conf={"spark.a": "1", "spark.b": "2"}, packages=("p:q:2",), ship=True
    )


def test_a_remote_replaces_the_master_of_the_file() -> None:
    assert SparkSettings(remote="sc://h").over(SparkSettings(master="yarn")) == SparkSettings(remote="sc://h")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (SparkSettings(master="local", remote="sc://h"), "--master and --remote exclude each other"),
        (SparkSettings(conf={"executor.memory": "1g"}), "Try: --conf spark.executor.memory"),
        (SparkSettings(master="yarn", conf={"spark.master": "local"}), "give one of them"),
        (SparkSettings(conf={"spark.remote": "sc://h"}), "is --remote sc://h here"),
        (SparkSettings(py_files=("absent.py",)), "--py-files absent.py: there is no such file"),
        (SparkSettings(archives=("absent.tgz#env",)), "--archives absent.tgz#env: there is no such file"),
        (SparkSettings(remote="sc://h", ship=True), "--ship cannot be used with --remote"),
        (SparkSettings(remote="sc://h", packages=("a:b:1",)), "--packages cannot be used with --remote"),
        (SparkSettings(ship=True), "--ship sends Tailrace to the workers of a cluster"),
        (SparkSettings(master="local[2]", ship=True), "--ship sends Tailrace to the workers of a cluster"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(settings: SparkSettings, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_settings(settings)
    assert said in str(error.value)


def test_a_master_among_the_conf_is_the_master() -> None:
    assert check_settings(SparkSettings(conf={"spark.master": "local[3]"})).master == "local[3]"


def test_the_conf_of_spark_has_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = SparkSettings(
        conf={"spark.a": "mine", "spark.archives": "/x.zip"},
        packages=("a:b:1", "c:d:2"),
        py_files=("lib.py", "s3://b/x.zip"),
        archives=("env.tar.gz#env",),
        ui=True,
    )
    assert spark_conf(settings, defaults={"spark.a": "ours", "spark.c": "ours"}) == {
        "spark.a": "mine",
        "spark.c": "ours",
        "spark.ui.enabled": "true",
        "spark.jars.packages": "a:b:1,c:d:2",
        "spark.submit.pyFiles": f"{tmp_path}/lib.py,s3://b/x.zip",
        "spark.archives": f"/x.zip,{tmp_path}/env.tar.gz#env",
    }
    assert spark_conf(SparkSettings(), defaults={}) == {"spark.ui.enabled": "false"}


def test_conf_flags_are_pairs() -> None:
    assert read_conf(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    for bad in ("spark.a", "=1"):
        with pytest.raises(ConfigError, match="is not KEY=VALUE"):
            read_conf([bad])


def test_the_table_of_a_file_is_read() -> None:
    table = {
        "master": "spark://h:7077",
        "packages": "a:b:1, c:d:2",
        "py-files": ["x.py"],
        "ship": True,
        "conf": {"spark": {"executor": {"memory": "4g", "cores": 2}}, "spark.x": True},
    }
    assert read_table(table) == SparkSettings(
        master="spark://h:7077",
        packages=("a:b:1", "c:d:2"),
        py_files=("x.py",),
        ship=True,
        conf={"spark.executor.memory": "4g", "spark.executor.cores": "2", "spark.x": "true"},
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"mastr": "x"}, "mastr is not a setting. Did you mean master?"),
        ({"ship": "yes"}, "ship = 'yes' must be true or false"),
        ({"conf": "x"}, "conf = 'x' must be a table"),
        ({"conf": {"spark.a": [1]}}, "spark.a = [1] must be a text"),
        ({"packages": [1]}, "packages = [1] must be a list of texts"),
        ({"master": ""}, "master = '' must be a text"),
    ],
)
def test_a_wrong_table_names_the_key_and_the_fix(table: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_table(table)
    assert said in str(error.value)
