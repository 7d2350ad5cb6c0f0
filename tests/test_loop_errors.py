"""What a test leaves behind in the event loop or unclosed fails it, in a pytest of its own."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.loop_errors  # asyncio has one logger for the inner and the outer run

LEFT_BEHIND = {
    "a coroutine that is not awaited": "asyncio.sleep(0)",
    "a task that fails unseen": "asyncio.create_task(fail()); await asyncio.sleep(0)",
    "a callback that fails": "asyncio.get_running_loop().call_soon(int, 'x'); await asyncio.sleep(0)",
    "a future that fails unseen": "asyncio.get_running_loop().create_future().set_exception(ValueError())",
    "a file": "open(__file__)",
    "a socket": "socket.socket()",
    "a transport": "await connect()",
    "a thread that fails": "thread = threading.Thread(target=int, args='x'); thread.start(); thread.join()",
}


@pytest.fixture(autouse=True)
def collect_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `scripts/test --full` does."""
    monkeypatch.setenv("TAILRACE_COLLECT_GARBAGE", "1")


def run(pytester: pytest.Pytester, body: str, *, marks: str = "") -> pytest.RunResult:
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    pytester.makepyfile(
        f"""
import asyncio, gc, pytest, socket, threading

async def fail():
    raise ValueError

async def connect():
    one, other = socket.socketpair()
    other.close()
    await asyncio.open_connection(sock=one)

async def main():
    {body}

{marks}
def test_it():
    asyncio.run(main())
    gc.collect()
"""
    )
    return pytester.runpytest_inprocess("-p", "tests.loop_errors", "-p", "no:cacheprovider")


@pytest.mark.parametrize("body", LEFT_BEHIND.values(), ids=LEFT_BEHIND)
def test_what_is_left_behind_fails_the_test(pytester: pytest.Pytester, body: str) -> None:
    outcomes = run(pytester, body).parseoutcomes()
    assert outcomes.get("failed", 0) + outcomes.get("errors", 0) == 1


def test_a_slow_callback_is_no_warning(pytester: pytest.Pytester) -> None:
    """Only a busy machine makes the callbacks of most tests slow."""
    pytester.makepyfile(
        """
import asyncio, time

async def main():
    time.sleep(0.15)

def test_it(caplog):
    asyncio.run(main(), debug=True)
    assert not caplog.records
"""
    )
    result = pytester.runpytest_inprocess("-p", "tests.loop_errors", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)


def test_nothing_left_behind_is_fine(pytester: pytest.Pytester) -> None:
    run(pytester, "await asyncio.sleep(0)").assert_outcomes(passed=1)


def test_a_test_of_broken_code_may_have_logged_errors(pytester: pytest.Pytester) -> None:
    body = LEFT_BEHIND["a task that fails unseen"]
    run(pytester, body, marks="@pytest.mark.loop_errors").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("left_behind", "fails"), [("a future that fails unseen", False), ("a callback that fails", True)]
)
def test_without_collecting_garbage_only_errors_of_the_moment_count(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, left_behind: str, fails: bool
) -> None:
    monkeypatch.delenv("TAILRACE_COLLECT_GARBAGE")
    outcomes = run(pytester, LEFT_BEHIND[left_behind]).parseoutcomes()
    assert outcomes.get("failed", 0) + outcomes.get("errors", 0) == fails
