"""The time limit of tests, in a pytest of its own: a test that hangs fails, whatever it does to go on."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from tests import time_limit
from tests.time_limit import deadline

pytest_plugins = ["pytester"]

_IN_THIS_PROCESS = ("-p", "tests.time_limit", "-p", "no:cacheprovider")


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_AGAIN_S", 0.1)


def write_tests(pytester: pytest.Pytester, text: str) -> None:
    """Writes a test file in which every phase of a test may take a second: what is right needs far less."""
    pytester.makepyfile(
        f"""
import asyncio, pytest, signal, threading, time
import tests.time_limit
pytestmark = pytest.mark.time_limit(1)
{text}
"""
    )


def test_a_test_that_hangs_fails_at_the_line_where_it_hangs_and_the_next_one_runs(
    pytester: pytest.Pytester,
) -> None:
    write_tests(
        pytester,
        """
def test_hangs():
    time.sleep(60)

def test_next():
    pass
""",
    )
    result = pytester.runpytest_inprocess(*_IN_THIS_PROCESS)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["*TimeLimitExceeded: call takes over 1 s", "*---- thread MainThread", "*time.sleep(60)"]
    )


def test_stacks_of_other_threads_and_of_waiting_tasks_are_shown(pytester: pytest.Pytester) -> None:
    write_tests(
        pytester,
        """
async def wait_for_ever():
    await wait_inside()

async def wait_inside():
    await asyncio.get_running_loop().create_future()

async def main():
    event = threading.Event()
    thread = threading.Thread(target=event.wait, name="the other thread")
    thread.start()
    try:
        await asyncio.create_task(wait_for_ever(), name="the other task")
    finally:
        event.set()
        thread.join()

def test_hangs():
    asyncio.run(main())
""",
    )
    result = pytester.runpytest_inprocess(*_IN_THIS_PROCESS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines_random(
        [
            "*---- thread the other thread",
            "*---- task the other task",
            "*await asyncio.get_running_loop().create_future()*",
        ]
    )


@pytest.mark.parametrize("caught", ["BaseException", "TimeLimitExceeded"])
def test_catching_the_exception_does_not_help(pytester: pytest.Pytester, caught: str) -> None:
    write_tests(
        pytester,
        f"""
from tests.time_limit import TimeLimitExceeded

def test_hangs():
    for _ in range(3):
        try:
            time.sleep(60)
        except {caught}:
            pass
""",
    )
    result = pytester.runpytest_inprocess(*_IN_THIS_PROCESS)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*TimeLimitExceeded: call takes over 1 s, and went on"])


@pytest.mark.parametrize(("before", "after"), [("time.sleep(60)", "pass"), ("pass", "time.sleep(60)")])
def test_fixtures_have_the_limit_too(pytester: pytest.Pytester, before: str, after: str) -> None:
    write_tests(
        pytester,
        f"""
@pytest.fixture
def thing():
    {before}
    yield
    {after}

def test_with_it(thing):
    pass
""",
    )
    result = pytester.runpytest_inprocess(*_IN_THIS_PROCESS)
    result.assert_outcomes(errors=1, passed=int(before == "pass"))


def test_a_test_that_no_signal_reaches_ends_with_its_process(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tests(
        pytester,
        """
tests.time_limit._GRACE_S = 0.1

def test_hangs():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(60)
""",
    )
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    result = pytester.runpytest_subprocess(*_IN_THIS_PROCESS, timeout=50)
    assert result.ret == 1
    result.stderr.fnmatch_lines(["*Timeout*", "*in test_hangs"])
    assert "1 failed" not in result.stdout.str()


@pytest.mark.parametrize(
    ("marks", "limit_s"),
    [("", 120), ("@pytest.mark.slow", 300), ("@pytest.mark.slow\n@pytest.mark.heavy", 2400)],
)
def test_slow_and_heavy_tests_have_more(pytester: pytest.Pytester, marks: str, limit_s: int) -> None:
    pytester.makeini("[pytest]\nmarkers =\n  slow\n  heavy\n")
    pytester.makepyfile(
        f"""
import pytest, signal

{marks}
def test_it():
    assert {limit_s} - 30 < signal.getitimer(signal.ITIMER_REAL)[0] <= {limit_s}
"""
    )
    pytester.runpytest_inprocess(*_IN_THIS_PROCESS).assert_outcomes(passed=1)


@pytest.mark.parametrize(("marks", "code"), [("", 4), ("@pytest.mark.heavy", 0)])
def test_only_a_heavy_test_may_take_long(pytester: pytest.Pytester, marks: str, code: int) -> None:
    pytester.makeini("[pytest]\nmarkers =\n  heavy\n")
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.time_limit(301)\n{marks}\ndef test_it():\n    pass\n")
    result = pytester.runpytest_inprocess(*_IN_THIS_PROCESS)
    assert result.ret == code
    if code:
        result.stderr.fnmatch_lines(["ERROR: over 300 s and not marked heavy: *::test_it"])


def spin() -> None:
    while True:
        time.monotonic()


def test_a_deadline_inside_another_leaves_it_as_it_was() -> None:
    before, left_s = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]
    with deadline(20):
        with pytest.raises(AssertionError, match=r"still running after 0\.05 s"), deadline(0.05):
            spin()
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 20 - 0.04
    assert signal.getsignal(signal.SIGALRM) is before
    assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < left_s
