"""Tests that share something run in one process: of a file, of the browser, of a Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.groups import group_of

pytest_plugins = ["pytester"]

_SPARK = "tests/spark/"


def test_the_tests_of_a_file_run_in_one_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    code = """
import os
import pytest

@pytest.mark.parametrize("number", range(8))
def test_it(number):
    with open("ran", "a") as file:
        print(os.path.basename(__file__), os.environ["PYTEST_XDIST_WORKER"], file=file)
"""
    pytester.makepyfile(test_first=code, test_second=code, test_third=code)
    options = ("-p", "tests.groups", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile")
    pytester.runpytest_subprocess(*options, timeout=100).assert_outcomes(passed=24)
    ran = Counter(Path("ran").read_text().splitlines())
    assert sorted(ran.values()) == [8, 8, 8]


def test_files_that_share_a_spark_are_as_many_groups_as_there_are_sparks() -> None:
    files = [f"tests/spark/{each.name}" for each in Path(__file__).parent.joinpath("spark").glob("test_*.py")]
    groups = Counter(group_of(f"{each}::test_it[a::b]") for each in files)
    shared = {group: count for group, count in groups.items() if not group.startswith(_SPARK)}
    assert set(shared) == {"spark 0", "spark 1"} and min(shared.values()) > 5
    assert group_of("tests/spark/test_examples.py::test_it") == "tests/spark/test_examples.py"


def test_the_browser_is_one_group() -> None:
    files = [f"tests/browser/{name}.py" for name in ("test_console", "test_console_tail")]
    assert len({group_of(f"{file}::test_it") for file in files}) == 1
