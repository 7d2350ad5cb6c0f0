"""A client library behind a driver program: one JSON object per line in, one per line out.

The programs in ../drivers all speak this, whatever language they are written in:

    in   {"op": "produce", ...}                   bytes are base64, null is null
    out  {"ok": ...}  or  {"error": "text", "code": 10}

A driver does one command after the other; its consumers read in the background into queues of their own, so a
group keeps its members alive while nobody asks. What a driver writes to stderr is shown when it fails.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from tests.interop.clients.partitioners import murmur2_partition
from tests.interop.clients.port import (
    PLAIN,
    Admin,
    Client,
    ClientError,
    Consumer,
    Feature,
    Group,
    Message,
    Placed,
    Producing,
    Reading,
    Record,
    TopicPartition,
)

REPOSITORY = Path(__file__).resolve().parents[3]
_END_S = 60
_ANSWER_S = 180  # more than any wait that a command itself names


class DriverClient:
    """One driver process and what a scenario asks of it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        bootstrap: str,
        *,
        lacks: Mapping[Feature, str] | None = None,
        partitioner: Callable[[bytes, int], int] = murmur2_partition,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process; it connects when it is first asked for something."""
        self.name = name
        self.lacks = lacks or {}
        self._command = tuple(command)
        self._bootstrap = bootstrap
        self._partitioner = partitioner
        self._environment = dict(environment or {})
        self._handles = itertools.count()
        self._others: list[DriverClient] = []
        self._lines = _Lines([*command, bootstrap], self._environment)

    def partition_of(self, key: bytes, *, partitions: int) -> int:
        return self._partitioner(key, partitions)

    def produce(self, topic: str, messages: Sequence[Message], how: Producing = PLAIN) -> list[Placed]:
        packed = [_pack(message) for message in messages]
        answer = self.ask("produce", topic=topic, messages=packed, **asdict(how))
        return [Placed(*placed) for placed in answer]

    def open(self, reading: Reading) -> Consumer:
        handle = f"c{next(self._handles)}"
        assign = None
        if reading.assign is not None:
            assign = [[where.topic, where.partition, start] for where, start in reading.assign.items()]
        self.ask(
            "open",
            handle=handle,
            assign=assign,
            topics=list(reading.topics),
            pattern=reading.pattern,
            group=reading.group,
            instance_id=reading.instance_id,
            strategy=reading.strategy,
            reset=reading.reset,
            session_ms=reading.session_ms,
            fetch_bytes_max=reading.fetch_bytes_max,
        )
        return DriverConsumer(self, handle)

    def another(self) -> Client:
        other = DriverClient(
            self.name,
            self._command,
            self._bootstrap,
            lacks=self.lacks,
            partitioner=self._partitioner,
            environment=self._environment,
        )
        self._others.append(other)
        return other

    @property
    def admin(self) -> Admin:
        return DriverAdmin(self)

    def kill(self) -> None:
        self._lines.kill()

    def close(self) -> None:
        for other in self._others:
            other.close()
        self._others.clear()
        self._lines.close()

    def ask(self, op: str, **arguments: object) -> Any:
        """One command, one answer."""
        answer = self._lines.exchange({"op": op, **arguments})
        if "error" in answer:
            raise ClientError(answer.get("code"), answer["error"])
        return answer["ok"]


class DriverConsumer:
    """A consumer inside a driver, known there by its handle."""

    def __init__(self, client: DriverClient, handle: str) -> None:
        self._client = client
        self._handle = handle

    def take(self, count: int, *, within_s: float = 60) -> list[Record]:
        records = self._poll(count, within_s)
        if len(records) < count:
            raise TimeoutError(f"{len(records)} of {count} records came within {within_s} s")
        return records

    def take_all(self, *, within_s: float) -> list[Record]:
        return self._poll(1_000_000_000, within_s)

    def _poll(self, count: int, within_s: float) -> list[Record]:
        timeout_ms = int(within_s * 1000)
        answer = self._client.ask("poll", handle=self._handle, count=count, timeout_ms=timeout_ms)
        return [_unpack(record) for record in answer]

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(*pair) for pair in self._client.ask("assignment", handle=self._handle)}

    def revoked(self) -> list[TopicPartition]:
        return [TopicPartition(*pair) for pair in self._client.ask("revoked", handle=self._handle)]

    def commit(self, offsets: Mapping[TopicPartition, int], *, metadata: str = "") -> None:
        rows = [[where.topic, where.partition, offset, metadata] for where, offset in offsets.items()]
        self._client.ask("commit", handle=self._handle, offsets=rows)

    def close(self) -> None:
        self._client.ask("close", handle=self._handle)


class DriverAdmin:
    """The administrative commands."""

    def __init__(self, client: DriverClient) -> None:
        self._ask = client.ask

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self._ask(
            "create_topic",
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or {}),
        )

    def delete_topic(self, topic: str) -> None:
        self._ask("delete_topic", topic=topic)

    def topics(self) -> dict[str, int]:
        return dict(self._ask("topics"))

    def add_partitions(self, topic: str, *, total: int) -> None:
        self._ask("add_partitions", topic=topic, total=total)

    def configs(self, topic: str) -> dict[str, str]:
        return dict(self._ask("configs", topic=topic))

    def set_config(self, topic: str, *, name: str, value: str) -> None:
        self._ask("set_config", topic=topic, name=name, value=value)

    def offset_at(self, where: TopicPartition, at: int | str) -> int:
        return int(self._ask("offset_at", topic=where.topic, partition=where.partition, at=at))

    def delete_records(self, where: TopicPartition, *, before: int) -> int:
        answer = self._ask("delete_records", topic=where.topic, partition=where.partition, before=before)
        return int(answer)

    def groups(self) -> set[str]:
        return set(self._ask("groups"))

    def describe_group(self, group: str) -> Group:
        return Group(**self._ask("describe_group", group=group))

    def group_offsets(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        rows = self._ask("group_offsets", group=group)
        return {TopicPartition(topic, partition): (offset, text) for topic, partition, offset, text in rows}

    def delete_group(self, group: str) -> None:
        self._ask("delete_group", group=group)


class _Lines:
    """The process, its two pipes, and the last of what it complained about."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, **environment},
        )
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._complaints: deque[str] = deque(maxlen=40)
        self._readers = [
            threading.Thread(target=self._read_answers, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_complaints, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def exchange(self, command: Mapping[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._readers[1].join(_END_S)
            raise AssertionError(f"the driver ended:\n{self._last_words()}") from None
        try:
            line = self._answers.get(timeout=_ANSWER_S)
        except queue.Empty:
            self.kill()
            raise AssertionError(f"no answer to {command['op']}:\n{self._last_words()}") from None
        if not line:
            self._readers[1].join(_END_S)
            raise AssertionError(f"the driver ended in {command['op']}:\n{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._finish()

    def close(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()  # the end of its input ends a driver
                self._process.wait(_END_S)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self._process.kill()
        self._finish()

    def _finish(self) -> None:
        self._process.wait(_END_S)
        for reader in self._readers:
            reader.join(_END_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def _read_answers(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            self._answers.put(line)
        self._answers.put(b"")

    def _read_complaints(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            self._complaints.append(line.decode(errors="replace"))

    def _last_words(self) -> str:
        return "".join(self._complaints)


def _pack(message: Message) -> dict[str, object]:
    return {
        "key": _encode(message.key),
        "value": _encode(message.value),
        "headers": [[name, _encode(value)] for name, value in message.headers],
        "timestamp_ms": message.timestamp_ms,
        "partition": message.partition,
    }


def _unpack(row: Mapping[str, Any]) -> Record:
    return Record(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        key=_decode(row["key"]),
        value=_decode(row["value"]),
        headers=tuple((name, _decode(value)) for name, value in row["headers"]),
        timestamp_ms=row["timestamp_ms"],
    )


def _encode(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
