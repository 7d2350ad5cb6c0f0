"""kcat: the command line around an older librdkafka, one process for each thing it does.

It has no explicit commits and no admin calls but looking up offsets. It reads messages from its standard
input between delimiters, so a run of messages with the same headers and partition is one process.
"""

from __future__ import annotations

import itertools
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO

from tests.interop.clients.cache import need_program
from tests.interop.clients.partitioners import crc32_partition
from tests.interop.clients.port import (
    PLAIN,
    Admin,
    Client,
    ClientError,
    Consumer,
    Feature,
    Group,
    Headers,
    Message,
    Placed,
    Producing,
    Reading,
    Record,
    TopicPartition,
)

_KEY_END, _MESSAGE_END = b"<key|ends>", b"<message|ends>"
_FORMAT = r"%t %p %o %T %K %S\n%h\n%k%s\n"
_CODES = {"Message size too large": 10, "Static consumer fenced": 82}
_END_S = 60
_RUN_S = 120
_LACKS = {
    Feature.PLACED: "it prints no offsets",
    Feature.TIMESTAMPS: "it has no option",
    Feature.NULL_HEADERS: "it has no notation",
    Feature.PACE: "it reads all of its input first",
    Feature.COMMIT: "it commits by itself only",
    Feature.FENCED: "it does not end",
    **dict.fromkeys(
        (
            Feature.TOPICS,
            Feature.DELETE_TOPICS,
            Feature.PARTITIONS,
            Feature.CONFIGS,
            Feature.GROUP_ADMIN,
            Feature.DELETE_GROUPS,
            Feature.DELETE_RECORDS,
        ),
        "it is no admin tool",
    ),
}


def start(bootstrap: str) -> Client:
    """Nothing is started before it is asked for something."""
    return KcatClient(need_program("kcat"), bootstrap)


class KcatClient:
    """Runs kcat."""

    name = "kcat"
    lacks: Mapping[Feature, str] = _LACKS

    def __init__(self, program: str, bootstrap: str) -> None:
        self._command = (program, "-b", bootstrap, "-X", "log_level=2", "-X", "reconnect.backoff.max.ms=500")
        self._program = program
        self._bootstrap = bootstrap
        self._consumers: list[KcatConsumer] = []
        self._others: list[KcatClient] = []

    def partition_of(self, key: bytes, *, partitions: int) -> int:
        return crc32_partition(key, partitions)

    def produce(self, topic: str, messages: Sequence[Message], how: Producing = PLAIN) -> list[Placed]:
        settings = {
            "acks": how.acks,
            "enable.idempotence": str(how.idempotent).lower(),
            "linger.ms": how.linger_ms,
            "message.max.bytes": how.bytes_max,
            "delivery.timeout.ms": how.timeout_ms,
        }
        options = ["-P", "-t", topic, "-z", how.codec, *_settings(settings)]
        for shape, alike in itertools.groupby(messages, _shape):
            headers, partition, keyed, null = shape
            words = [f"-H{name}={(value or b'').decode()}" for name, value in headers]
            words += ["-p", str(partition)] if partition is not None else []
            words += ["-K", _KEY_END.decode()] if keyed else []
            words += ["-Z"] if null else []
            self._run([*options, "-D", _MESSAGE_END.decode(), *words], _input(list(alike)))
        return []

    def open(self, reading: Reading) -> Consumer:
        settings: dict[str, object] = {
            "session.timeout.ms": reading.session_ms,
            "heartbeat.interval.ms": 500,
            "auto.offset.reset": reading.reset,
            "partition.assignment.strategy": reading.strategy,
            "topic.metadata.refresh.interval.ms": 1000,
            "fetch.message.max.bytes": reading.fetch_bytes_max or 1_048_576,
        }
        if reading.instance_id is not None:
            settings["group.instance.id"] = reading.instance_id
        options = [*self._command, "-u", "-f", _FORMAT, *_settings(settings)]
        if reading.assign is None:
            assert reading.group is not None
            topics = reading.topics or ["^" + (reading.pattern or "").removeprefix("^")]
            commands = [[*options, "-G", reading.group, *topics]]
        else:
            commands = [
                [
                    *options,
                    "-C",
                    "-t",
                    where.topic,
                    "-p",
                    str(where.partition),
                    "-o",
                    str(self._start(where, at)),
                ]
                for where, at in reading.assign.items()
            ]
        consumer = KcatConsumer(commands)
        self._consumers.append(consumer)
        return consumer

    def _start(self, where: TopicPartition, at: int | str) -> int | str:
        # "end" would be looked up when nobody knows; a consumer is at its position when it is open.
        if at == "earliest":
            return "beginning"
        return self.offset_at(where, at) if at == "latest" else at

    def another(self) -> Client:
        other = KcatClient(self._program, self._bootstrap)
        self._others.append(other)
        return other

    def kill(self) -> None:
        for consumer in self._consumers:
            consumer.end(signal.SIGKILL)
        self._consumers.clear()

    def close(self) -> None:
        for other in self._others:
            other.close()
        self.kill()

    @property
    def admin(self) -> Admin:
        return self

    def offset_at(self, where: TopicPartition, at: int | str) -> int:
        time_ms = {"earliest": -2, "latest": -1}.get(str(at), at)
        found = self._run(["-Q", "-t", f"{where.topic}:{where.partition}:{time_ms}"]).decode()
        matched = re.search(r"\[\d+\] offset (-?\d+)", found)
        assert matched is not None, found
        return int(matched[1])

    def _run(self, words: Sequence[str], data: bytes = b"") -> bytes:
        done = subprocess.run(
            [*self._command, *words], input=data, capture_output=True, timeout=_RUN_S, check=False
        )
        said = done.stderr.decode(errors="replace")
        if done.returncode != 0 or "Delivery failed" in said:
            raise _error(said)
        return done.stdout

    # The rest of the port, which `lacks` keeps every test from.
    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        raise NotImplementedError

    def delete_topic(self, topic: str) -> None:
        raise NotImplementedError

    def topics(self) -> dict[str, int]:
        raise NotImplementedError

    def add_partitions(self, topic: str, *, total: int) -> None:
        raise NotImplementedError

    def configs(self, topic: str) -> dict[str, str]:
        raise NotImplementedError

    def set_config(self, topic: str, *, name: str, value: str) -> None:
        raise NotImplementedError

    def delete_records(self, where: TopicPartition, *, before: int) -> int:
        raise NotImplementedError

    def groups(self) -> set[str]:
        raise NotImplementedError

    def describe_group(self, group: str) -> Group:
        raise NotImplementedError

    def group_offsets(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        raise NotImplementedError

    def delete_group(self, group: str) -> None:
        raise NotImplementedError


class KcatConsumer:
    """One kcat for a group, or one for each assigned partition."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._records: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._assigned: set[TopicPartition] = set()
        self._revoked: list[TopicPartition] = []
        self._said: deque[str] = deque(maxlen=40)
        self._threads: list[threading.Thread] = []
        self._processes = [self._start(command) for command in commands]

    def take(self, count: int, *, within_s: float = 60) -> list[Record]:
        records = self._take(count, within_s)
        if len(records) < count:
            raise TimeoutError(
                f"{len(records)} of {count} records came within {within_s} s\n{''.join(self._said)}"
            )
        return records

    def take_all(self, *, within_s: float) -> list[Record]:
        return self._take(1_000_000_000, within_s)

    def _take(self, count: int, within_s: float) -> list[Record]:
        end = time.monotonic() + within_s
        records: list[Record] = []
        while len(records) < count:
            try:
                records.append(self._records.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                break
        return records

    def assignment(self) -> set[TopicPartition]:
        return set(self._assigned)

    def revoked(self) -> list[TopicPartition]:
        return list(self._revoked)

    def commit(self, offsets: Mapping[TopicPartition, int], *, metadata: str = "") -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.end(signal.SIGTERM)

    def end(self, how: signal.Signals) -> None:
        """Every process of it."""
        for process in self._processes:
            process.send_signal(how)
        for process in self._processes:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_END_S)
        for thread in self._threads:
            thread.join(_END_S)
        for process in self._processes:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.close()
            process.stderr.close()
        self._processes = []

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
        )
        for target, pipe in ((self._read, process.stdout), (self._listen, process.stderr)):
            thread = threading.Thread(target=target, args=(pipe,), daemon=True)
            thread.start()
            self._threads.append(thread)
        return process

    def _read(self, pipe: IO[bytes]) -> None:
        while head := pipe.readline():
            topic, *numbers = head.decode().split()
            partition, offset, timestamp_ms, key_size, value_size = map(int, numbers)
            headers = pipe.readline().decode().rstrip("\n")
            key, value = _sized(pipe, key_size), _sized(pipe, value_size)
            pipe.read(1)
            pairs = [pair.partition("=") for pair in headers.split(",")] if headers else []
            record = Record(
                topic=topic,
                partition=partition,
                offset=offset,
                key=key,
                value=value,
                headers=tuple((name, text.encode()) for name, _, text in pairs),
                timestamp_ms=timestamp_ms,
            )
            self._records.put(record)

    def _listen(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            said = line.decode(errors="replace")
            self._said.append(said)
            listed = {TopicPartition(topic, int(n)) for topic, n in re.findall(r"(\S+) \[(\d+)\]", said)}
            if "assigned: " in said or "incremental assignment" in said:
                self._assigned = self._assigned | listed
            elif "revoked: " in said or "incremental revoke" in said:
                self._assigned = self._assigned - listed
                self._revoked += sorted(listed)


def _shape(message: Message) -> tuple[Headers, int | None, bool, bool]:
    return (message.headers, message.partition, message.key is not None, message.value is None)


def _input(messages: Sequence[Message]) -> bytes:
    return _MESSAGE_END.join(
        (b"" if message.key is None else message.key + _KEY_END) + (message.value or b"")
        for message in messages
    )


def _settings(settings: Mapping[str, object]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]


def _sized(pipe: IO[bytes], size: int) -> bytes | None:
    return None if size < 0 else pipe.read(size)


def _error(said: str) -> ClientError:
    code = next((code for text, code in _CODES.items() if text in said), None)
    return ClientError(code, said.strip())
