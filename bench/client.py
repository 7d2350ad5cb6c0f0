"""One side of a real client, confluent-kafka, in a process of its own.

It reads its job as a line of JSON, connects, says `ready`, waits for `go`, and prints what it found:

produce   as many records as it can for some seconds, then waits until all are acknowledged
consume   reads a number of records from the beginning; the clock starts with the first that come
emit      a record every so often, each holding the time at which it was due: a producer that falls behind
          makes the latency longer, not the load smaller
receive   reads until it has them all; the latency of each is now minus that time

Both clocks are the system's monotonic one, which all processes of a machine share.
"""

from __future__ import annotations

import json
import random
import struct
import sys
import time
from array import array
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tailrace.bench.wire.latency import percentiles

Row = dict[str, object]
_TIMEOUT_S = 60.0
_DUE = struct.Struct(">Q")
_VALUES = 256
_QUEUE_BACKOFF_MS = 10
_WORDS = ("order", "payment", "click", "alpha", "beta", "gamma", "delta", "2026", "true", "null", "0.5", "17")


class Job:
    """What this side is told."""

    def __init__(self, row: Row) -> None:
        self.role = str(row["role"])
        self.bootstrap = str(row["bootstrap"])
        self.topic = str(row["topic"])
        self.partitions = int(str(row["partitions"]))
        self.record_bytes = int(str(row["record_bytes"]))
        self.compression = str(row.get("compression", "none"))
        self.seconds = float(str(row.get("seconds", 0)))
        self.count = int(str(row.get("count", 0)))
        self.per_s = int(str(row.get("per_s", 0)))


def values_of(size: int) -> list[bytes]:
    """Different values of one size, of words: they compress, but not to nothing, as records do."""
    source = random.Random(size)
    made = []
    for _ in range(_VALUES):
        text = ""
        while len(text) < size:
            text += f'"{source.choice(_WORDS)}":{source.randrange(1_000_000)},'
        made.append(text[:size].encode())
    return made


def _producer(job: Job, **more: object) -> Producer:
    settings = {
        "bootstrap.servers": job.bootstrap,
        "acks": "all",
        "compression.type": job.compression,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 512 * 1024,
        "message.timeout.ms": int(_TIMEOUT_S * 1000),
        **more,
    }
    producer = Producer(settings)
    producer.list_topics(job.topic, timeout=_TIMEOUT_S)
    return producer


def produce(job: Job, go: Callable[[], None]) -> Row:
    producer = _producer(job)
    values = values_of(job.record_bytes)
    failures: list[str] = []
    go()
    began = time.monotonic()
    deadline = began + job.seconds
    count = 0
    send, topic = producer.produce, job.topic
    while time.monotonic() < deadline:
        for value in values:
            while True:
                try:
                    send(topic, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        count += len(values)
    left = producer.flush(_TIMEOUT_S)
    if left:
        failures.append(f"{left} of {count} records were not acknowledged")
    return _rate(count, job, time.monotonic() - began, failures)


def _consumer(job: Job) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": f"{job.topic}-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # By default it stops fetching for a whole second whenever 100,000 records wait to be taken: the
            # quicker the broker, the more often, and a figure would tell how often it was.
            "fetch.queue.backoff.ms": _QUEUE_BACKOFF_MS,
        }
    )
    consumer.list_topics(job.topic, timeout=_TIMEOUT_S)
    return consumer


def consume(job: Job, go: Callable[[], None]) -> Row:
    consumer = _consumer(job)
    go()
    consumer.assign([TopicPartition(job.topic, each, 0) for each in range(job.partitions)])
    seen = first = 0
    began = last = time.monotonic()
    while seen < job.count and time.monotonic() - last < _TIMEOUT_S / 2:
        got = consumer.consume(min(1_000, job.count - seen), 0.2)
        if got:
            last = time.monotonic()
            if not seen:
                began, first = last, len(got)
            seen += len(got)
            _check(got[0].error())
    consumer.close()
    if seen < job.count:
        return {"error": f"{seen} of {job.count} records came"}
    row = _rate(max(seen - first, 1), job, max(last - began, 1e-9), [])
    return {**row, "count": seen}  # the processor time is that of all of them


def emit(job: Job, go: Callable[[], None]) -> Row:
    producer = _producer(job, **{"linger.ms": 0})
    rest = bytes(job.record_bytes - _DUE.size)
    total = int(job.per_s * job.seconds)
    go()
    began = time.monotonic_ns()
    for number in range(total):
        due = began + number * 1_000_000_000 // job.per_s
        while (ahead := due - time.monotonic_ns()) > 0:
            # Waiting inside poll lets librdkafka's own work go on; a record is late by a millisecond at most.
            producer.poll(ahead / 1e9)
        producer.produce(job.topic, _DUE.pack(due) + rest)
    left = producer.flush(_TIMEOUT_S)
    return _rate(total, job, job.seconds, [f"{left} records were not acknowledged"] if left else [])


def receive(job: Job, go: Callable[[], None]) -> Row:
    consumer = _consumer(job)
    consumer.assign([TopicPartition(job.topic, each, 0) for each in range(job.partitions)])
    consumer.poll(0.5)  # the first fetch is under way before the first record
    go()
    latencies = array("Q")
    last = time.monotonic()
    while len(latencies) < job.count and time.monotonic() - last < _TIMEOUT_S / 2:
        message = consumer.poll(0.2)
        if message is None:
            continue
        last = time.monotonic()
        _check(message.error())
        value = message.value()
        assert isinstance(value, bytes)
        latencies.append(max(time.monotonic_ns() - _DUE.unpack_from(value)[0], 0))
    consumer.close()
    if len(latencies) < job.count:
        return {"error": f"{len(latencies)} of {job.count} records came"}
    warm = job.count // 10  # connections, and a virtual machine's first steps
    seen = percentiles(latencies[warm:])
    assert seen is not None
    return {"count": len(latencies) - warm, **seen.as_row()}


def _check(error: KafkaError | None) -> None:
    if error is not None:
        raise KafkaException(error)


def _rate(count: int, job: Job, seconds: float, failures: list[str]) -> Row:
    if failures:
        return {"error": failures[0]}
    mb = count * job.record_bytes / 1e6
    return {"count": count, "seconds": seconds, "per_s": count / seconds, "mb_per_s": mb / seconds}


ROLES: dict[str, Callable[[Job, Callable[[], None]], Row]] = {
    "produce": produce,
    "consume": consume,
    "emit": emit,
    "receive": receive,
}


def _wait_go() -> None:
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        sys.exit("nobody said go")


def main() -> None:
    job = Job(json.loads(sys.stdin.readline()))
    try:
        found = ROLES[job.role](job, _wait_go)
    except KafkaException as error:
        found = {"error": str(error)}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
