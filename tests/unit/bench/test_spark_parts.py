"""The parts of `tailrace bench spark` that need no Spark: records, jars, codec rates, memory of workers."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tailrace[spark]'")

from tailrace.bench.spark import connector
from tailrace.bench.spark.codec import measure_twin
from tailrace.bench.spark.connector import NoConnector, find_connector, project_file, release_for
from tailrace.bench.spark.filling import BATCH_BYTES, batches, count_records, fill_topic, random_rows
from tailrace.bench.spark.memory import Peak, watch_workers, worker_sizes
from tailrace.records import read_batch

# ---- records


def test_records_are_as_many_and_as_large_as_was_asked_for_and_none_is_like_another() -> None:
    made = [read_batch(bytes(batch)) for batch in batches(25_000, value_bytes=50)]
    values = [bytes(record.value or b"") for batch in made for record in batch.records()]
    assert len(values) == len(set(values)) == 25_000
    assert {len(value) for value in values} == {50}


def test_batches_are_those_of_an_ordinary_producer() -> None:
    sizes = [len(batch) for batch in batches(2_000)]
    assert max(sizes) <= BATCH_BYTES
    assert min(sizes[:-1]) > BATCH_BYTES / 2


def test_the_same_seed_makes_the_same_rows() -> None:
    first, again, other = (random_rows(10, value_bytes=5, seed=seed) for seed in (1, 1, 2))
    assert first.equals(again) and not first.equals(other)


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.mark.parametrize(("records", "shares"), [(1_001, [501, 500]), (1, [1, 0])])
def test_a_topic_is_filled_evenly(broker: tailrace.Broker, records: int, shares: list[int]) -> None:
    topic = f"filled-{records}"
    broker.create_topic(topic, 2)
    fill_topic(broker.bootstrap_servers, topic, partitions=2, records=records)
    assert [len(list(broker.read(topic, partition=each))) for each in range(2)] == shares
    assert count_records(broker.bootstrap_servers, topic, partitions=2) == records


def test_partitions_have_different_records(broker: tailrace.Broker) -> None:
    broker.create_topic("different", 2)
    fill_topic(broker.bootstrap_servers, "different", partitions=2, records=200)
    assert len({record.value for record in broker.read("different")}) == 200


# ---- jars


@pytest.mark.parametrize(
    ("spark", "wanted"),
    [("4.0.0", "4.0.0"), ("4.1.4", "4.0.0"), ("4.2.0", "4.2.0"), ("4.10.1", "4.2.0"), ("5.0.0", "4.2.0")],
)
def test_every_release_of_spark_has_its_jars(spark: str, wanted: str) -> None:
    assert release_for(spark).connector == wanted


@pytest.mark.parametrize("version", ["", "4", "four.two", "v4.2"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(NoConnector, match="no version of Spark"):
        release_for(version)


def test_maven_is_asked_for_four_jars_and_nothing_that_they_name() -> None:
    text = project_file(release_for("4.3.0"))
    assert text.count("<dependency>") == text.count("<exclusions>") == 4
    assert "<artifactId>kafka-clients</artifactId><version>3.9.1</version>" in text


def _fake_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A program called mvn that finds the folder it should fill as $OUT."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\nfor word; do case $word in -DoutputDirectory=*) OUT=${word#*=};; esac; done\n" + script
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "cache"


def test_jars_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    cache = _fake_maven(
        tmp_path,
        monkeypatch,
        f"echo x >> {calls}; mkdir $OUT; touch $OUT/a.jar $OUT/b.jar $OUT/c.jar $OUT/d.jar",
    )
    found = [find_connector("4.3.0", cache=cache) for _ in range(2)]
    assert [jar.name for jar in found[0].jars] == ["a.jar", "b.jar", "c.jar", "d.jar"]
    assert found[0] == found[1] and found[0].version == "4.2.0"
    assert calls.read_text() == "x\n"
    assert [each.name for each in cache.iterdir()] == ["spark-kafka-4.2.0"]  # nothing half-made beside it


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo '[INFO] so'; echo '[ERROR] no such jar'; exit 1", "no such jar"),
        ("exit 7", "status 7"),
        ("mkdir $OUT; touch $OUT/a.jar", "3 jars are missing"),
    ],
)
def test_jars_that_cannot_be_had_are_an_error_that_says_why_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    cache = _fake_maven(tmp_path, monkeypatch, script)
    with pytest.raises(NoConnector, match=told):
        find_connector("4.3.0", cache=cache)
    assert list(cache.iterdir()) == []


def test_without_maven_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoConnector, match="apt-get install maven"):
        find_connector("4.3.0", cache=tmp_path / "cache")


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert connector.cache_directory() == tmp_path / "tailrace-bench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert connector.cache_directory() == tmp_path / ".cache" / "tailrace-bench"


# ---- codec


@pytest.mark.parametrize("pure", [True, False])
def test_either_twin_has_its_rates(pure: bool) -> None:
    rates = measure_twin(pure=pure, seconds=0.1)
    if rates is None:
        pytest.skip("the compiled twin is not built")
    assert rates.accelerated != pure
    assert rates.decode_per_s > 0 and rates.encode_per_s > 0


# ---- memory


def _process(proc: Path, pid: int, *, parent: int, pages: int, words: list[str]) -> None:
    entry = proc / str(pid)
    entry.mkdir(parents=True)
    fields = ["S", str(parent), *["0"] * 19, str(pages), "0"]
    (entry / "stat").write_text(f"{pid} (a (b) c) {' '.join(fields)}")
    (entry / "cmdline").write_bytes("\0".join(words).encode() + b"\0")


def test_workers_are_the_pythons_of_pyspark_below_us(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    _process(tmp_path, 1, parent=0, pages=9, words=["python", "-m", "pyspark.daemon"])  # us: not below us
    _process(tmp_path, 2, parent=1, pages=99, words=["/usr/bin/java", "pyspark-shell"])
    _process(tmp_path, 3, parent=2, pages=10, words=["/venv/bin/python3.11", "-m", "pyspark.daemon"])
    _process(tmp_path, 4, parent=3, pages=30, words=["/venv/bin/python3.11", "-m", "pyspark.daemon"])
    _process(tmp_path, 5, parent=2, pages=50, words=["python", "other.py"])
    _process(tmp_path, 6, parent=0, pages=70, words=["python", "-m", "pyspark.daemon"])  # somebody else's
    (tmp_path / "7").mkdir()  # one that ended while we looked
    assert sorted(worker_sizes(1, proc=tmp_path)) == [10 * page, 30 * page]
    assert worker_sizes(8, proc=tmp_path) == []
    assert worker_sizes(1, proc=tmp_path / "nowhere") == []


def test_a_peak_keeps_the_most_of_everything() -> None:
    peak = Peak()
    for sizes in ([5, 1], [4, 4], []):
        peak.add(sizes)
    assert (peak.worker_bytes, peak.total_bytes, peak.workers) == (5, 8, 2)


def test_a_worker_that_runs_meanwhile_is_seen() -> None:
    # Below a shell of its own: beside it there may be the workers of a Spark that other tests use.
    worker = f"'{sys.executable}' -c 'import sys; print(flush=True); sys.stdin.read()' pyspark.daemon; true"
    with subprocess.Popen(["sh", "-c", worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert isinstance(shell.stdout, io.BufferedReader) and shell.stdin is not None
        shell.stdout.readline()
        with watch_workers(shell.pid) as peak:
            deadline_s = time.monotonic() + 60
            while not peak.workers:
                assert time.monotonic() < deadline_s, "nobody looked"
                time.sleep(0.005)  # the watching thread has no event for us
        shell.stdin.close()
    assert peak.workers == 1
    assert peak.worker_bytes == peak.total_bytes > 1_000_000
