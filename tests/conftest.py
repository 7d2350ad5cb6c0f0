"""Settings that every test shares."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no bug: generated tests are bounded by their number of examples and not by the clock. On a
# failure the blob lets anybody replay the one example. A default run always generates the same examples, and
# fails for its change alone; `scripts/test --full` generates others.
settings.register_profile(
    "tailrace",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("full", settings.get_profile("tailrace"), derandomize=False, max_examples=1000)
settings.load_profile("tailrace")

pytest_plugins = [
    "tests.groups",
    "tests.loop_errors",
    "tests.postgres",
    "tests.redis",
    "tests.summary",
    "tests.time_limit",
]

_HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in its background with Ctrl-C ignored, and so would begin every process that a
    # test starts in order to interrupt it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_CONF_DIR", str(_HERE / "spark" / "conf"))


@pytest.hookimpl(tryfirst=True)  # tests/groups.py asks which are slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE / "spark" in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory for Unix sockets: the paths in `tmp_path` are too long for them on some systems."""
    with tempfile.TemporaryDirectory(prefix="tailrace-", dir="/tmp") as name:
        yield Path(name)


def pytest_collection_finish() -> None:
    """Spare every later garbage collection the modules and the thousands of tests, which stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()
