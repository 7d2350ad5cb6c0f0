"""Errors that an event loop only logs fail the test in which they are logged.

asyncio logs the errors that it can raise nowhere: a task that failed and whose result nothing asked for, a
task that was destroyed while it waited, an exception in a callback. Errors in `__del__` and in threads fail a
test through pytest's own plugins, because warnings are errors here: a coroutine that was never awaited, a
transport, a socket or a file that was never closed.

What the garbage collector finds (a result that nothing asked for, a task that was destroyed) is logged
whenever it runs, often in a later test. So it fails a test only with `scripts/test --full`, which runs the
collector after each test.

In debug mode asyncio also warns of callbacks that took over 0.1 s. On a busy machine any callback may take so
long. These warnings are dropped: a test that counts warnings does not see them.

`@pytest.mark.loop_errors` is for tests of broken code, whose errors are what is tested.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator

import pytest

_COLLECT = "TAILRACE_COLLECT_GARBAGE"  # set by `scripts/test --full`
_FOUND_IN_GARBAGE = (
    "Future exception was never retrieved",
    "Task exception was never retrieved",
    "Task was destroyed but it is pending!",
)


class _Errors(logging.Handler):
    """Keeps the errors that asyncio logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if _COLLECT in os.environ or not text.startswith(_FOUND_IN_GARBAGE):
            self.texts.append(text)


class _NoSlowCallbacks(logging.Filter):
    """Drops the warnings of callbacks that took long."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.levelno == logging.WARNING and str(record.msg).startswith("Executing "))


_errors = pytest.StashKey[_Errors]()
_no_slow_callbacks = pytest.StashKey[_NoSlowCallbacks]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "loop_errors: the errors that asyncio logs are part of the test")
    config.stash[_errors] = _Errors()
    logging.getLogger("asyncio").addHandler(config.stash[_errors])
    config.stash[_no_slow_callbacks] = _NoSlowCallbacks()
    logging.getLogger("asyncio").addFilter(config.stash[_no_slow_callbacks])


def pytest_unconfigure(config: pytest.Config) -> None:
    logging.getLogger("asyncio").removeHandler(config.stash[_errors])
    logging.getLogger("asyncio").removeFilter(config.stash[_no_slow_callbacks])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    yield
    if _COLLECT in os.environ:
        gc.collect()
    errors = item.config.stash[_errors]
    texts, errors.texts = errors.texts, []
    if texts and item.get_closest_marker("loop_errors") is None:
        pytest.fail("asyncio logged errors:\n" + "\n".join(texts), pytrace=False)
