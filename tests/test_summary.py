"""The end of a run, in a pytest of its own: the slowest files, and commands that repeat what failed."""

from __future__ import annotations

import pytest
from tests.summary import _plain

pytest_plugins = ["pytester"]

_OPTIONS = ("-p", "tests.summary", "-p", "no:cacheprovider")


@pytest.fixture(autouse=True)
def _two_files(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_good="def test_good():\n    pass",
        test_bad="""
import pytest

@pytest.fixture
def broken():
    raise ValueError

@pytest.mark.parametrize("word", ["it's", "b"])
def test_bad(word):
    assert word == "b"

def test_error(broken):
    pass
""",
    )


def test_each_test_that_failed_has_a_command_that_repeats_it(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*_OPTIONS)
    result.assert_outcomes(passed=2, failed=1, errors=1)
    said = [line for line in result.outlines if ".venv/bin/pytest " in line]
    assert [line.partition(".venv/bin/pytest ")[2] for line in said] == [
        "'test_bad.py::test_bad[it'\"'\"'s]'",
        "test_bad.py::test_error",
    ]


def test_a_run_without_failures_has_nothing_to_repeat(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*_OPTIONS, "test_good.py")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*to repeat*")


def test_the_files_that_took_longest_are_told_on_request(pytester: pytest.Pytester) -> None:
    asked = pytester.runpytest_inprocess(*_OPTIONS, "--durations=1")
    asked.stdout.fnmatch_lines_random(["* s test_good.py", "* s test_bad.py"])
    pytester.runpytest_inprocess(*_OPTIONS).stdout.no_fnmatch_line("*slowest*files*")


@pytest.mark.parametrize(
    ("nodeid", "plain"),
    [
        ("tests/a.py::test_b", "tests/a.py::test_b"),
        ("tests/a.py::test_b@spark", "tests/a.py::test_b"),
        ("tests/a.py::test_b[c@d]", "tests/a.py::test_b[c@d]"),
        ("tests/a.py::test_b[c@d]@/x/tests/a.py", "tests/a.py::test_b[c@d]"),
    ],
)
def test_the_group_of_a_test_is_no_part_of_its_name(nodeid: str, plain: str) -> None:
    assert _plain(nodeid) == plain
