"""Backups of a real broker while it is written to, cleaned and killed; restored, and compared with an oracle.

The oracle is what producers were told: every record acknowledged before a backup began is in what is restored
from it, with its offset. Groups and subscriptions go on where they stood.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.cluster.reading import read_metadata_file
from tailrace.cluster.record import read_image
from tailrace.cluster.store import METADATA

DEADLINE_S = 120.0
PAUSE_S = 0.02
SETTINGS = """
[broker]
"retention.check.interval.ms" = "50"
[topic_defaults]
"segment.bytes" = "20000"
"""
TOPICS: dict[str, dict[str, str]] = {
    "orders": {},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
    "short": {"retention.bytes": "30000"},
}


class Server:
    """`tailrace up` on a data directory, and an HTTP client of it."""

    def __init__(self, directory: Path, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._directory = directory

    def __enter__(self) -> Server:
        config = self._directory / "tailrace.toml"
        config.write_text(SETTINGS)
        flags = ("--kafka-port", "0", "--native-port", "0", "--http-port", "0", "--config", str(config))
        with open(self._directory / "broker.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tailrace", "up", "--data-dir", str(self.data_dir), *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        if not any(line == "ready\n" for line in self._process.stdout):
            self._process.communicate(timeout=DEADLINE_S)
            raise AssertionError(f"the broker did not start:\n{self.last_words()}")
        ports = json.loads((self.data_dir / "tailrace.ports.json").read_text())
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{ports['http']}/api/v1", timeout=DEADLINE_S, trust_env=False
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._process.terminate()
        self._process.communicate(timeout=DEADLINE_S)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=DEADLINE_S)

    def last_words(self) -> str:
        return (self._directory / "broker.log").read_text()[-3000:]

    def send(self, method: str, path: str, **body: Any) -> Any:
        answer = self.client.request(method, path, json=body or None)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def create_topics(self) -> None:
        for name, configs in TOPICS.items():
            self.send("POST", "/topics", name=name, partitions=2, configs=configs)

    def records(self, topic: str) -> dict[tuple[int, int], str]:
        """Every record by partition and offset."""
        found: dict[tuple[int, int], str] = {}
        for partition in range(2):
            details = self.send("GET", f"/topics/{topic}")["partition_details"][partition]
            offset = details["start_offset"]
            while offset < details["end_offset"]:
                query = f"?partition={partition}&offset={offset}&limit=500"
                answer = self.client.get(f"/topics/{topic}/records{query}")
                if answer.status_code == 416:  # retention was quicker
                    offset = answer.json()["error"]["details"]["start_offset"]
                    continue
                assert answer.status_code == 200, answer.text
                page = answer.json()
                found |= {(each["partition"], each["offset"]): each["value"] for each in page["records"]}
                offset = page["next_offset"]
        return found


class Producers:
    """Threads that write, create and delete topics until they are stopped; `acknowledged` is the oracle."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stopping = threading.Event()
        self._threads = [
            *(threading.Thread(target=self._produce, args=(topic,)) for topic in TOPICS),
            threading.Thread(target=self._churn),
        ]
        self.acknowledged: dict[str, list[tuple[int, int, str]]] = {topic: [] for topic in TOPICS}
        self.failures: list[BaseException] = []

    def __enter__(self) -> Producers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def count(self) -> dict[str, int]:
        return {topic: len(records) for topic, records in self.acknowledged.items()}

    def wait_for(self, more: int) -> None:
        """Until every topic has got so many more records."""
        wanted = {topic: count + more for topic, count in self.count().items()}
        wait_until(lambda: self.failures or all(self.count()[topic] >= wanted[topic] for topic in TOPICS))
        assert not self.failures, self.failures

    def _produce(self, topic: str) -> None:
        number = 0
        try:
            while not self._stopping.is_set():
                values = [f"{topic}-{number + each}-{'x' * 200}" for each in range(10)]
                number += 10
                records = [{"key": key_of(value), "value": value} for value in values]
                answer = self._server.send("POST", f"/topics/{topic}/records", records=records)
                places = [(each["partition"], each["offset"]) for each in answer["offsets"]]
                told = [(*place, value) for place, value in zip(places, values, strict=True)]
                self.acknowledged[topic] += told
        except (AssertionError, httpx.HTTPError) as error:
            self.failures.append(error)

    def _churn(self) -> None:
        number = 0
        try:
            while not self._stopping.is_set():
                number += 1
                name = f"churn-{number}"
                self._server.send("POST", "/topics", name=name, partitions=3)
                self._server.send("POST", f"/topics/{name}/records", records=[{"value": "v"}])
                if number > 3:
                    self._server.send("DELETE", f"/topics/churn-{number - 3}")
        except (AssertionError, httpx.HTTPError) as error:
            self.failures.append(error)


def key_of(value: str) -> str:
    """One of seven, so that compaction has work."""
    return f"k{int(value.split('-')[1]) % 7}"


def wait_until(condition: Any) -> None:
    """Ask until it is so: what other processes do cannot wake us."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(PAUSE_S)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tailrace", *map(str, arguments)]


def tailrace(*arguments: object, code: int = 0) -> Any:
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if "json" in arguments and done.stdout else done.stdout + done.stderr


@contextmanager
def restored(tmp_path: Path, backup: Path, name: str) -> Iterator[Server]:
    tailrace("restore", backup, "--data-dir", tmp_path / name)
    assert "all as it was written" in tailrace("log", "verify", tmp_path / name)
    with Server(tmp_path, tmp_path / name) as server:
        yield server


def check_acknowledged(
    server: Server, oracle: dict[str, list[tuple[int, int, str]]], count: dict[str, int]
) -> None:
    """Everything acknowledged before the backup is there, but for what retention and compaction took."""
    for topic in TOPICS:
        found = server.records(topic)
        promised = oracle[topic][: count[topic]]
        missing = [each for each in promised if found.get(each[:2]) != each[2]]
        assert all(each[:2] not in found for each in missing), "another record has its offset"
        for partition, offset, value in missing:
            later = {
                key_of(each) for (index, at), each in found.items() if index == partition and at > offset
            }
            oldest = min(at for index, at in found if index == partition)
            taken = {"compacted": key_of(value) in later, "short": offset < oldest}
            assert taken.get(topic, False), f"{topic}-{partition} lacks offset {offset}"


@pytest.mark.slow
def test_a_backup_beside_everything_holds_what_was_acknowledged_before_it(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    with Server(tmp_path, tmp_path / "data") as server:
        server.create_topics()
        counts = []
        with Producers(server) as producers:
            for _ in range(2):
                producers.wait_for(60)
                counts.append(producers.count())
                row = tailrace("backup", backups, "--data-dir", server.data_dir, "-o", "json")
                assert row["problems"] == []
            assert not producers.failures
        assert row["linked_bytes"] > 0  # segments that have not changed since
        assert not list(server.data_dir.glob("cut-*"))
        names = [each["name"] for each in tailrace("backup", "list", backups, "-o", "json")]
    assert len(names) == 2 and (backups / "latest").resolve().name == names[-1]
    for name, count in zip(names, counts, strict=True):
        tailrace("backup", "verify", backups / name)
        with restored(tmp_path, backups / name, f"restored-{name}") as server:
            check_acknowledged(server, producers.acknowledged, count)
            server.send("POST", "/topics/orders/records", records=[{"value": "goes on"}])


@pytest.mark.slow
def test_groups_subscriptions_and_topic_ids_go_on_where_they_stood(tmp_path: Path) -> None:
    def offsets(server: Server) -> Any:
        return server.send("GET", "/consumer-groups/readers/offsets")["offsets"]

    def epochs(data_dir: Path) -> list[int]:
        rows = read_metadata_file(data_dir / METADATA).rows
        return [each.leader_epoch for topic in read_image(rows.entries).topics for each in topic.partitions]

    with Server(tmp_path, tmp_path / "data") as server:
        server.create_topics()
        for number in range(20):
            server.send("POST", "/topics/orders/records", records=[{"value": f"v{number}", "partition": 0}])
        server.send("POST", "/subscriptions", name="workers", topic="orders", start="earliest")
        moved = [{"topic": "orders", "partition": 0, "offset": 7}]
        server.send("PUT", "/consumer-groups/readers/offsets", offsets=moved)
        pulled = server.send("POST", "/subscriptions/workers/pull", max=5)["messages"]
        server.send("POST", "/subscriptions/workers/ack", ack_ids=[each["ack_id"] for each in pulled])
        group, topic_id = offsets(server), server.send("GET", "/topics/orders")["topic_id"]
        tailrace("backup", tmp_path / "backups", "--data-dir", server.data_dir)
    before = epochs(tmp_path / "data")
    with restored(tmp_path, tmp_path / "backups", "restored") as server:
        assert offsets(server) == group
        assert server.send("GET", "/topics/orders")["topic_id"] == topic_id
        values = {each["value"] for each in pulled}
        rest = server.send("POST", "/subscriptions/workers/pull", max=100)["messages"]
        assert {each["value"] for each in rest} == {f"v{number}" for number in range(20)} - values
    assert min(epochs(tmp_path / "restored")) > max(before)


@pytest.mark.slow
def test_a_killed_backup_is_resumed_and_is_never_taken_for_a_whole_one(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    with Server(tmp_path, tmp_path / "data") as server:
        server.create_topics()
        value = "x" * 50_000
        for _ in range(20):
            server.send("POST", "/topics/orders/records", records=[{"value": value}] * 4)
        slow = subprocess.Popen(
            command("backup", backups, "--data-dir", server.data_dir, "--rate", "1MB"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: len(list(backups.glob("partial/data/*/*.log"))) > 4)
        slow.send_signal(signal.SIGKILL)
        slow.wait(timeout=DEADLINE_S)
        assert [each["name"] for each in tailrace("backup", "list", backups, "-o", "json")] == ["partial"]
        tailrace("backup", "verify", backups, code=1)
        tailrace("restore", backups, "--data-dir", tmp_path / "none", code=1)
        would = tailrace("backup", backups, "--data-dir", server.data_dir, "--dry-run", "-o", "json")
        assert would["copied_bytes"] < would["bytes"]  # what the killed one had copied is kept
        assert tailrace("backup", backups, "--data-dir", server.data_dir, "-o", "json")["problems"] == []
    with restored(tmp_path, backups, "restored") as server:
        assert len(server.records("orders")) == 80


@pytest.mark.slow
def test_a_broker_killed_during_a_backup_costs_the_backup_and_nothing_else(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    server = Server(tmp_path, tmp_path / "data")
    with server:
        server.create_topics()
        value = "x" * 50_000
        for _ in range(20):
            server.send("POST", "/topics/orders/records", records=[{"value": value}] * 4)
        slow = subprocess.Popen(
            command("backup", backups, "--data-dir", server.data_dir, "--rate", "100kB"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_until(lambda: list(backups.glob("partial/data/*/*.log")))
        assert list(server.data_dir.glob("cut-*"))
        server.kill()
        words, _ = slow.communicate(timeout=DEADLINE_S)
        assert slow.returncode == 1 and "the broker is gone" in words and "Run it again" in words
    with server:
        wait_until(lambda: not list(server.data_dir.glob("cut-*")))
        assert len(server.records("orders")) == 80
        tailrace("backup", backups, "--data-dir", server.data_dir)
    with restored(tmp_path, backups, "restored") as server:
        assert len(server.records("orders")) == 80


@pytest.mark.slow
def test_a_directory_that_nobody_serves_is_backed_up_as_a_crash_left_it(tmp_path: Path) -> None:
    server = Server(tmp_path, tmp_path / "data")
    with server:
        server.create_topics()
        for number in range(30):
            server.send("POST", "/topics/orders/records", records=[{"value": f"v{number}"}])
        server.kill()
    tailrace("backup", tmp_path / "backups", "--data-dir", server.data_dir)
    with restored(tmp_path, tmp_path / "backups", "restored") as server:
        assert sorted(server.records("orders").values()) == sorted(f"v{number}" for number in range(30))


@pytest.mark.slow
def test_a_killed_restore_serves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    backups, target = tmp_path / "backups", tmp_path / "restored"
    with Server(tmp_path, tmp_path / "data") as server:
        server.create_topics()
        value = "x" * 50_000
        for _ in range(10):
            server.send("POST", "/topics/orders/records", records=[{"value": value}] * 4)
        tailrace("backup", backups, "--data-dir", server.data_dir)
    code = (
        "import os, signal, sys\n"
        "from tailrace.storage.backup import restoring\n"
        "from tailrace.cli.main import main\n"
        "copy, left = restoring.copy_file, [5]\n"
        "def dying(*args, **options):\n"
        "    left[0] -= 1\n"
        "    if not left[0]:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return copy(*args, **options)\n"
        "restoring.copy_file = dying\n"
        "main(sys.argv[1:])\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, "restore", str(backups), "--data-dir", str(target)],
        timeout=DEADLINE_S,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL and (target / "RESTORING").exists()
    assert "restore into it was interrupted" in tailrace(
        "up", "--data-dir", target, "--kafka-port", 0, "--native-port", 0, "--http-port", 0, code=1
    )
    with restored(tmp_path, backups, "restored") as server:
        assert len(server.records("orders")) == 40
    tailrace("backup", "verify", backups)  # what is served now shares no file with it
