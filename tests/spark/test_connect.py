"""Pipelines on somebody else's Spark: a Spark Connect server in its own process, and the command line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.testing.port import free_port

pytestmark = pytest.mark.heavy

START_S = 180
RUN_S = 240


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that runs for as long as the tests of this file."""
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install 'pyspark[connect]'")
    place, port = tmp_path_factory.mktemp("connect"), free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": place / "local",
        "spark.sql.warehouse.dir": place / "warehouse",
        "spark.ui.enabled": "false",
    }
    command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with open(place / "log", "wb") as log:
        server = subprocess.Popen([*command, "spark-internal"], env=env, stdout=log, stderr=log, cwd=place)
    try:
        wait_listening(port, server, place / "log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def wait_listening(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)


def pipeline(*words: str) -> dict[str, object]:
    """What `tailrace pipeline run` prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "pipeline", "run", *words, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_archive_and_replay_run_on_spark_connect(
    remote: str, broker: tailrace.Broker, tmp_path: Path
) -> None:
    for number in range(500):
        broker.produce("orders", b"value %d" % number, key=b"%d" % (number % 7))
    lake, at = str(tmp_path / "lake"), ["-b", broker.bootstrap_servers, "--remote", remote]
    pipeline("archive", "--topic", "orders", "--to", lake, "--once", *at)
    pipeline("replay", "--from", lake, "--topic", "orders", "--to-topic", "again", *at)
    originals = [(each.key, each.value, each.timestamp) for each in broker.read("orders")]
    assert [(each.key, each.value, each.timestamp) for each in broker.read("again")] == originals
    assert len(originals) == 500
