"""One local Spark for all tests that need one, and a broker for each test that needs one."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tailrace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The shared session: two cores, UTC, nothing on the network but loopback, nothing outside its folder."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not here. On Debian: apt-get install openjdk-17-jre-headless")
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install 'tailrace[spark]'")
    _keep_logs_plain()
    place = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session: SparkSession = (
        sql.SparkSession.builder.master("local[2]")
        .appName("tailrace tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(place / "local"))
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.sql.streaming.stopTimeout", "60000")
        # Spark's own Kafka sink keeps producers, which ask for their topics at ports that others have by then
        .config("spark.kafka.producer.cache.timeout", "1s")
        .config("spark.kafka.producer.cache.evictorThreadRunInterval", "1s")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()


def _keep_logs_plain() -> None:
    """pytest lends its handler to every logger that does not propagate. A logger of pyspark's makes whatever
    handler it is given write JSON, and pytest's would do so for every later test of this process."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.addHandler = logging.Logger.addHandler  # type: ignore[method-assign, assignment]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tailrace.Broker]:
    """A broker on free loopback ports that keeps its data for as long as the test runs."""
    with tailrace.Broker(data_dir=tmp_path / "broker") as running:
        yield running
