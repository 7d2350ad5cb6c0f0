"""Source, sink and pipelines against a broker that asks for a login, as Spark's users write it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.certificates import certificates
from tests.interop.server import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USER, WORD = "alice", "open sesame, 42"
RUN_S = 240
JAAS = (
    f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{WORD}";'
)


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A broker with one user, whose listeners have TLS and ask for it; ca.crt is beside its directory."""
    from tailrace.cli.main import main

    directory = tmp_path / "data"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(WORD.encode())))
    assert main(["user", "create", USER, "--data-dir", str(directory)]) == 0
    files = certificates(tmp_path).server()
    listeners = [
        {
            "name": each,
            "protocol": each,
            "address": "127.0.0.1:0",
            "sasl": ["SCRAM-SHA-512", "SCRAM-SHA-256"],
            "tls": {"cert": str(files.cert), "key": str(files.key)},
        }
        for each in ("kafka", "native")
    ]
    with ServerProcess(directory, listeners=listeners) as running:
        yield running


def ca(server: ServerProcess) -> Path:
    return server.data_dir.parent / "ca.crt"


def options(server: ServerProcess, **login: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": server.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        **{f"kafka.sasl.{name.replace('_', '.')}": value for name, value in login.items()},
    }


def test_rows_go_in_and_come_out_with_a_login(spark: SparkSession, secured: ServerProcess) -> None:
    by_name = options(secured, mechanism="SCRAM-SHA-512", username=USER, password=WORD)
    by_name["kafka.ssl.ca.location"] = str(ca(secured))
    by_jaas = options(secured, mechanism="SCRAM-SHA-256", jaas_config=JAAS)
    by_jaas |= {"kafka.ssl.truststore.location": str(ca(secured)), "kafka.ssl.truststore.type": "PEM"}
    rows = spark.createDataFrame([(b"k", b"%d" % number) for number in range(20)], "key binary, value binary")
    rows.write.format("tailrace").mode("append").options(**by_name).option("topic", "orders").save()
    found = spark.read.format("tailrace").options(**by_jaas).option("subscribe", "orders").load()
    assert found.count() == 20


def test_a_wrong_password_is_named_and_not_shown(spark: SparkSession, secured: ServerProcess) -> None:
    wrong = options(secured, mechanism="SCRAM-SHA-512", username=USER, password="wrong-secret-word")
    wrong["kafka.ssl.ca.location"] = str(ca(secured))
    reader = spark.read.format("tailrace").options(**wrong).option("subscribe", "orders")
    with pytest.raises(Exception, match="the user name or the password is wrong") as raised:
        reader.load().count()
    assert "wrong-secret-word" not in str(raised.value)


def test_a_broker_of_another_ca_is_not_trusted(spark: SparkSession, secured: ServerProcess) -> None:
    login = options(secured, mechanism="SCRAM-SHA-512", username=USER, password=WORD)
    reader = spark.read.format("tailrace").options(**login).option("subscribe", "orders")
    with pytest.raises(Exception, match="not of a CA that is trusted here"):
        reader.load().count()


@pytest.mark.heavy
def test_a_pipeline_logs_in_as_its_environment_says(secured: ServerProcess, tmp_path: Path) -> None:
    login = {"TAILRACE_USER": USER, "TAILRACE_PASSWORD": WORD, "TAILRACE_TLS_CA": str(ca(secured))}
    run = [sys.executable, "-m", "tailrace"]

    def call(*words: str, **more: str) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "TAILRACE_BOOTSTRAP": secured.bootstrap, **more}
        return subprocess.run(
            [*run, *words],
            capture_output=True,
            timeout=RUN_S,
            check=False,
            env=environment,
            input=b"one\ntwo\n",
        )

    produced = call("produce", "orders", **login)
    assert produced.returncode == 0, produced.stderr
    lake = str(tmp_path / "lake")
    archive = ("pipeline", "run", "archive", "--topic", "orders", "--to", lake, "--once")
    done = call(*archive, **login)
    assert done.returncode == 0, done.stderr
    assert list(Path(lake).rglob("*.parquet"))
    assert call(*archive).returncode != 0
