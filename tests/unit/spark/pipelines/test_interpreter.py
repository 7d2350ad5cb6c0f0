"""Which Python Spark is told to run, and how the driver's machine finds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines.interpreter import make_interpreter, plan_name


@pytest.mark.parametrize(
    ("environment", "conf", "is_local", "name"),
    [
        ({}, {}, True, sys.executable),
        ({}, {}, False, "python3"),
        ({"PYSPARK_PYTHON": "/opt/p"}, {"spark.pyspark.python": "/opt/q"}, False, "/opt/p"),
        ({}, {"spark.pyspark.python": "/opt/q"}, False, "/opt/q"),
        ({"PYSPARK_DRIVER_PYTHON": "jupyter"}, {}, False, "python3"),
    ],
)
def test_one_rule_names_the_interpreter(
    environment: dict[str, str], conf: dict[str, str], is_local: bool, name: str
) -> None:
    assert plan_name(environment, conf, is_local=is_local) == name


def test_the_jvm_never_has_a_second_name(tmp_path: Path) -> None:
    given = {"PYSPARK_DRIVER_PYTHON": "jupyter", "PYSPARK_PYTHON": "x", "HOME": "/h", "PATH": "/bin"}
    made = make_interpreter(sys.executable, cache=tmp_path).environment(given)
    assert made == {"PYSPARK_PYTHON": sys.executable, "HOME": "/h", "PATH": "/bin"}


def run(program: str, *, environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """What a shell finds under that name; Java looks names up in the same way."""
    command = ["/bin/sh", "-c", f"exec {program} -c 'import sys; print(sys.prefix)'"]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_bare_name_is_this_interpreter_on_this_machine(tmp_path: Path) -> None:
    made = make_interpreter("python3.99", cache=tmp_path)
    assert (made.name, made.start_dir) == ("python3.99", None)
    assert run("python3.99", environment=made.environment(os.environ)) == sys.prefix


def test_a_relative_path_is_this_interpreter_where_the_jvm_starts(tmp_path: Path) -> None:
    made = make_interpreter("./environment/bin/python", cache=tmp_path)
    assert (made.name, made.path_dir) == ("./environment/bin/python", None)
    assert run(made.name, cwd=made.start_dir) == sys.prefix


def test_a_relative_path_that_is_here_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert make_interpreter("./bin/python", cache=tmp_path / "cache").start_dir is None
    assert not (tmp_path / "cache").exists()


def test_an_absolute_path_must_be_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PYSPARK_PYTHON=/nowhere/python is not on this machine") as error:
        make_interpreter("/nowhere/python", cache=tmp_path)
    assert f"ln -s {sys.executable} /nowhere/python" in str(error.value)


def test_a_path_out_of_the_executor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Give an absolute path"):
        make_interpreter("../x/python", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_script_that_is_there_is_kept(tmp_path: Path) -> None:
    first = make_interpreter("python3", cache=tmp_path)
    assert first.path_dir is not None
    before = (first.path_dir / "python3").stat().st_ino
    assert make_interpreter("python3", cache=tmp_path) == first
    assert (first.path_dir / "python3").stat().st_ino == before
