"""A SPARK_HOME of links, made from the installed pyspark and from made-up ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines import spark_home
from tailrace.spark.pipelines.spark_home import cache_dir, make_spark_home


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up pyspark."""
    place = tmp_path / "site" / "pyspark"
    for name in ("bin", "jars", "python/lib", "sql"):
        (place / name).mkdir(parents=True)
    (place / "sql" / "__init__.py").touch()
    (place / "__init__.py").touch()
    (place / "python" / "lib" / "py4j-0.10-src.zip").touch()
    monkeypatch.setattr(spark_home, "_find_package", lambda name: place if name == "pyspark" else None)
    return place


def test_the_zip_is_a_folder_with_the_installed_package(package: Path, tmp_path: Path) -> None:
    home = make_spark_home("4.3.0", cache=tmp_path / "cache")
    assert (home / "python" / "lib" / "pyspark.zip").is_dir()
    assert (home / "python" / "lib" / "pyspark.zip" / "pyspark").resolve() == package
    assert (home / "python" / "pyspark").resolve() == package
    assert (home / "python" / "lib" / "py4j-0.10-src.zip").resolve().is_file()
    assert sorted(os.listdir(home)) == ["bin", "jars", "python"], "packages of Python are no part of it"


def test_one_that_is_complete_is_left_alone(package: Path, tmp_path: Path) -> None:
    home = make_spark_home("4.3.0", cache=tmp_path)
    (home / "mark").touch()
    assert make_spark_home("4.3.0", cache=tmp_path) == home
    assert (home / "mark").exists()


def test_one_that_lacks_something_is_made_again(package: Path, tmp_path: Path) -> None:
    home = make_spark_home("4.3.0", cache=tmp_path)
    (home / "jars").unlink()
    assert make_spark_home("4.3.0", cache=tmp_path) == home
    assert (home / "jars").resolve() == package / "jars"
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_another_release_or_place_has_another_folder(package: Path, tmp_path: Path) -> None:
    assert make_spark_home("4.3.0", cache=tmp_path) != make_spark_home("4.2.0", cache=tmp_path)


def test_a_pyspark_without_spark_is_refused(package: Path, tmp_path: Path) -> None:
    (package / "jars").rmdir()
    with pytest.raises(ConfigError, match="has no Spark in it"):
        make_spark_home("4.3.0", cache=tmp_path)


def test_the_cache_is_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_dir() == Path("/somewhere/tailrace")


def test_a_python_with_the_folder_on_its_path_imports_pyspark_from_files(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")
    home = make_spark_home("x", cache=tmp_path)
    lib = home / "python" / "lib"
    path = os.pathsep.join([str(lib / "pyspark.zip"), *map(str, lib.glob("py4j-*"))])
    code = "import pyspark, py4j; print(pyspark.__file__, py4j.__file__, pyspark.__cached__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],  # without what is installed
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    pyspark, py4j, cached = done.stdout.split()
    assert pyspark == str(lib / "pyspark.zip" / "pyspark" / "__init__.py")
    assert py4j.startswith(str(lib / "py4j-"))
    assert cached.endswith(".pyc")
