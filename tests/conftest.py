"""Settings that every test shares."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A slow machine is no bug: generated tests are bounded by their number of examples and not by the clock. On a
# failure the blob lets anybody replay the one example.
settings.register_profile(
    "tailrace", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tailrace")

pytest_plugins = ["tests.loop_errors", "tests.time_limit"]


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in its background with Ctrl-C ignored, and so would begin every process that a
    # test starts in order to interrupt it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # xdist looks for the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For a run on several cores: a file stays together, and so does everything that shares the one Spark."""
    spark = Path(__file__).parent / "spark"
    for item in items:
        with_spark = spark in item.path.parents
        item.add_marker(pytest.mark.xdist_group("spark" if with_spark else str(item.path)))
        if with_spark:
            item.add_marker(pytest.mark.slow)
