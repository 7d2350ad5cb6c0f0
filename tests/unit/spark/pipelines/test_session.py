"""What is found out before a Spark starts, with made-up Javas; how its JVM's words are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines import session
from tailrace.spark.pipelines.session import check_spark, find_java, open_session, read_java_version
from tailrace.spark.pipelines.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeJava:
    """Makes a Java that says what it is told to, and puts it on the PATH, alone."""
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def make(script: str, *, release: str | None = None) -> Path:
        home = tmp_path / "jvm"
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        if release is not None:
            (home / "release").write_text(release)
        monkeypatch.setenv("PATH", str(home / "bin"))
        return program

    return make


@pytest.fixture(autouse=True)
def pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, whether it is or not."""
    monkeypatch.setattr(session, "_find_pyspark", lambda: "4.3.0")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('IMPLEMENTOR="Debian"\nJAVA_VERSION="21.0.4"\n', 21),
        ("command not found", None),
        ("", None),
    ],
)
def test_the_version_is_read_of_what_javas_say(text: str, version: int | None) -> None:
    assert read_java_version(text) == version


def test_a_java_that_is_new_enough_will_do(make_java: MakeJava) -> None:
    make_java("""echo 'openjdk version "17.0.1"' >&2""")
    assert check_spark() == "4.3.0"


def test_a_release_file_is_believed_without_starting_anything(make_java: MakeJava, tmp_path: Path) -> None:
    make_java(f"touch {tmp_path}/started", release='JAVA_VERSION="21.0.4"\n')
    check_spark()
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("""echo 'openjdk version "11.0.2"' >&2""", "Java 17 or newer, and .*java is Java 11"),
        ("echo nothing", "does not tell its version"),
        ("exit 1", "does not tell its version"),
    ],
)
def test_a_java_that_will_not_do_is_named_with_the_fix(make_java: MakeJava, script: str, said: str) -> None:
    make_java(script)
    with pytest.raises(ConfigError, match=said) as error:
        check_spark()
    assert "openjdk-17-jre-headless" in str(error.value)


def test_no_java_is_said_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert find_java() is None
    with pytest.raises(ConfigError, match=r"none on the PATH. On Debian: apt-get install openjdk-17"):
        check_spark()
    assert check_spark(java=False) == "4.3.0"


def test_java_home_wins_over_the_path(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    program = make_java("exit 1")
    monkeypatch.setenv("JAVA_HOME", str(program.parents[1]))
    monkeypatch.setenv("PATH", os.defpath)
    assert find_java() == str(program)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ConfigError, match="JAVA_HOME=/nowhere has no bin/java"):
        check_spark()


@pytest.mark.parametrize(
    ("version", "said"), [(None, "pyspark, which is not installed"), ("3.5.1", "Spark 4, and pyspark 3.5.1")]
)
def test_no_pyspark_or_an_old_one_is_said_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, version: str | None, said: str
) -> None:
    monkeypatch.setattr(session, "_find_pyspark", lambda: version)
    with pytest.raises(ConfigError, match=said) as error:
        check_spark()
    assert "pip install 'tailrace[spark]'" in str(error.value)


def test_the_installed_version_is_found_without_importing_it() -> None:
    code = (
        "import sys; from tailrace.spark.pipelines.session import _find_pyspark as find; "
        "print(find()); assert 'pyspark' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(session.__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    try:
        assert done.stdout.strip() == metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        assert done.stdout.strip() == "None"


def test_two_sparks_at_once_are_refused() -> None:
    with (
        pytest.raises(ConfigError, match="--master and --remote exclude each other"),
        open_session(SparkSettings(master="local", remote="sc://host"), name="x"),
    ):
        pass


@pytest.mark.parametrize("master", ["local[2]", "spark://head:7077"])
def test_no_task_runs_twice_at_once(master: str, tmp_path: Path) -> None:
    assert session._defaults(master, name="x", place=tmp_path)["spark.speculation"] == "false"


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4), ("local[*]", os.cpu_count())]
)
def test_a_local_master_tells_its_cores(master: str, cores: int) -> None:
    assert session._cores(master) == cores


@pytest.mark.parametrize(("master", "partitions"), [("local", "2"), ("local[3]", "3")])
def test_shuffles_of_a_local_spark_have_as_many_partitions_as_it_has_cores(
    master: str, partitions: str, tmp_path: Path
) -> None:
    assert session._defaults(master, name="x", place=tmp_path)[session.SHUFFLE_PARTITIONS] == partitions


@pytest.mark.parametrize(
    ("master", "cores", "conf", "partitions"),
    [
        ("spark://head:7077", 12, {}, "12"),
        ("spark://head:7077", 1, {}, "2"),
        ("spark://head:7077", 12, {session.SHUFFLE_PARTITIONS: "7"}, None),
        ("local[2]", 12, {}, None),  # it was told at its start
    ],
)
def test_shuffles_of_a_cluster_have_as_many_partitions_as_it_has_cores(
    master: str, cores: int, conf: dict[str, str], partitions: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, str] = {}
    running = SimpleNamespace(conf=SimpleNamespace(set=told.__setitem__))
    monkeypatch.setattr(session, "check_workers", lambda _session, **_: cores)
    session._settle(cast("SparkSession", running), SparkSettings(master=master, conf=conf), tell=print)
    assert told.get(session.SHUFFLE_PARTITIONS) == partitions


def test_what_a_process_said_last_explains_why_it_ended() -> None:
    log = session._JvmLog(show=False)
    program = (
        "import sys; sys.stderr.write('chatter\\n' * 50_000 + 'java.lang.Error: no room\\n'); sys.exit(1)"
    )

    def start() -> None:
        with log.follow() as stderr:
            subprocess.run([sys.executable, "-c", program], stderr=stderr, check=True)

    with pytest.raises(subprocess.CalledProcessError):
        start()
    assert log.last_words() == " | java.lang.Error: no room"
    assert len(log._lines) == 200
