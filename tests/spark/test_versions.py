"""Source and sink under other releases of Spark, batch and stream, each release in a process of its own.

A release is fetched by pip into the user's cache and put before everything else on the path, so all but
pyspark is what the tests run with. What cannot be fetched is skipped, with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import tailrace

RELEASES = ("4.0.5", "4.2.1")
_FETCH_S = 900
_RUN_S = 300
SPREAD = 30  # records in the topic, over three partitions

pytestmark = pytest.mark.heavy


def _pyspark(release: str) -> Path:
    """A folder to import that release from; nothing else comes with it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = (Path(base) if base else Path.home() / ".cache") / "tailrace-test"
    ready = root / f"pyspark-{release}"
    if not ready.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=".pyspark-") as made:
            target = Path(made) / "packages"
            _pip("install", "--target", str(target), "--no-deps", f"pyspark=={release}", "py4j==0.10.9.9")
            target.rename(ready)
    return ready


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip took more than {_FETCH_S} s")
    if done.returncode:
        pytest.skip(f"pip failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}")


@pytest.mark.parametrize("release", RELEASES)
def test_source_and_sink_work_under_another_release(
    broker: tailrace.Broker, tmp_path: Path, release: str
) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not here")
    broker.create_topic("from", 3)
    for number in range(SPREAD):
        headers = [("h", b"1")] if number % 2 else ()
        broker.produce("from", b"v%d" % number, b"k%d" % number, headers=headers, partition=number % 3)
    for topic in ("batch", "stream", "again"):
        broker.create_topic(topic, 2)

    found = _smoke(release, broker.bootstrap_servers, tmp_path)

    assert found["version"] == release
    assert found["schema"] == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert found["rows"] == SPREAD
    assert found["headers"] == SPREAD // 2
    assert found["some"] == [["v3", 1], ["v4", 1]]
    expected = sorted((b"k%d" % number, b"v%d" % number) for number in range(SPREAD))
    for topic in ("batch", "stream"):
        assert sorted((record.key, record.value) for record in broker.read(topic)) == expected
    # The stream went on where its checkpoint ended, with what had come meanwhile.
    assert [record.value for record in broker.read("again")] == [b"late 0", b"late 1"]


def _smoke(release: str, bootstrap: str, place: Path) -> dict[str, Any]:
    """Run the lower half of this file with that release."""
    path = os.pathsep.join([str(_pyspark(release)), str(Path(tailrace.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    environment.pop("SPARK_HOME", None)
    done = subprocess.run(
        [sys.executable, __file__, bootstrap, str(place)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


# ---- in the other process


def main(bootstrap: str, place: str) -> None:
    from pyspark import __version__ as version
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "from", "includeHeaders": "true"}
    frame = spark.read.format("tailrace").options(**options).load()
    some = {
        "startingOffsets": '{"from":{"0":1,"1":1,"2":10}}',
        "endingOffsets": '{"from":{"0":2,"1":2,"2":-1}}',
    }
    ranged = spark.read.format("tailrace").options(**options, **some).load()
    found = {
        "version": version,
        "schema": frame.schema.simpleString(),
        "rows": frame.count(),
        "headers": frame.where("size(headers) = 1").count(),
        "some": [[bytes(row.value).decode(), row.offset] for row in ranged.orderBy("partition").collect()],
    }
    to = {"kafka.bootstrap.servers": bootstrap}
    frame.select("key", "value").write.format("tailrace").options(**to, topic="batch").mode("append").save()
    _stream(spark, options, to, topic="stream", checkpoint=f"{place}/checkpoint")
    late = spark.createDataFrame([("k", "late 0"), ("k", "late 1")], "key string, value string").coalesce(1)
    late.write.format("tailrace").options(**to, topic="from").mode("append").save()
    _stream(spark, options, to, topic="again", checkpoint=f"{place}/checkpoint")
    print(json.dumps(found))
    spark.stop()


def _stream(spark: Any, options: dict[str, str], to: dict[str, str], *, topic: str, checkpoint: str) -> None:
    given = {"startingOffsets": "earliest", **options}
    query = (
        spark.readStream.format("tailrace")
        .options(**given)
        .load()
        .select("key", "value")
        .writeStream.format("tailrace")
        .options(**to, topic=topic, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(120):
        raise TimeoutError("the stream did not end")


if __name__ == "__main__":
    main(*sys.argv[1:])
