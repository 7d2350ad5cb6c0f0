"""Writes a golden directory: what a broker, archives and a Spark query of this build leave behind.

    python -m tests.golden.write_data tests/golden/data-<version>

Everything is written through the public surface: a `tailrace up` process, clients of three authors, requests
written by hand where no client does it, `tailrace pipeline run archive`, and a real Spark. The story:

    1. topics of every kind are filled, groups commit, subscriptions settle; a restart lets compaction work
    2. two lakes and a stream follow `orders`; the stream fails in its third batch; more records come
       -> the server is stopped:      stopped.tar.xz, lake.tar.xz, delta.tar.xz, checkpoint.tar.xz
    3. the server starts again, more of everything happens, and it is killed while rounds are not applied
       -> the server is killed:       killed.tar.xz

manifest.json tells what must be served of each. Bytes are observed in the server that wrote them; which
messages must still be delivered is told by this program's own account of what it published and acknowledged.
A directory that exists is never written again.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from tests.golden import wire
from tests.golden.observation import observe, observe_partition, observe_subscription
from tests.golden.opening import (
    BROKER_SETTINGS,
    VARIANTS,
    clock_at,
    get,
    server_on,
    unpack,
    verify,
)
from tests.golden.story import Record, Story, place_of
from tests.interop.deadline import wait_until
from tests.interop.raw import connect

from tailrace.client import BrokerClient

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z: the time of the first record
YEAR_2099_MS = 4_070_908_800_000
CENTURY_MS = 100 * 365 * 24 * 3600 * 1000
WORKPLACE = Path("/tmp/tailrace-golden")
_KILLS_MAX = 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def values(name: str, count: int) -> list[bytes]:
    return [b"%s %d " % (name.encode(), number) * 3 for number in range(count)]


def keyed(name: str, count: int) -> list[Record]:
    """Records with keys and values of all kinds: absent, empty, text, not text."""
    return [
        (
            (None, b"", b"key %d" % (number % 3), bytes([255, number]))[number % 4],
            (b"%s %d" % (name.encode(), number), None, b"", b"\x00\xff%d" % number)[(number // 2) % 4],
        )
        for number in range(count)
    ]


# ---- 1. everything there is


def fill_topics(story: Story) -> None:
    story.create("orders", 3, segment_bytes="400", index_interval_bytes="150")
    for partition in range(3):
        for step, codec in enumerate(CODECS):
            at_ms = START_MS + 60_000 * (5 * partition + step)
            records = keyed(f"{codec} {partition}", 8)
            story.produce_confluent("orders", partition, records, at_ms=at_ms, codec=codec)
    story.create("arrivals", 2, message_timestamp_type="LogAppendTime", max_message_bytes="200000")
    story.produce_kafka_python("arrivals", 0, values("kafka-python", 6))
    story.produce_own("arrivals", 1, values("own client", 6))
    # Acknowledged before it is synced: entries of the journal that a power cut may take.
    story.create("metrics", 1, flush_ms="1000", segment_ms="86400000000")
    story.produce_raw("metrics", 0, values("small", 2), at_ms=START_MS)
    story.produce_raw("metrics", 0, [b"m" * 9000], at_ms=START_MS + 1000)
    story.create("large", 1, index_interval_bytes="1024")
    story.produce_raw("large", 0, [b"L" * 90_000], at_ms=START_MS)  # too large for the journal: by reference
    story.create("empty", 2)


def fill_trimmed(story: Story) -> None:
    story.create("audit", 1, segment_bytes="600", retention_bytes="1000000")
    for step in range(6):
        story.produce_raw("audit", 0, values(f"audit {step}", 5), at_ms=START_MS + 1000 * step)
    story.delete_records("audit", 0, 12)  # in the middle of a batch


def fill_compacted(story: Story) -> None:
    story.create(
        "prices", 1, cleanup_policy="compact", segment_bytes="700", delete_retention_ms=str(CENTURY_MS)
    )
    for step in range(6):
        records: list[Record] = [
            (b"item %d" % item, b"price %d at step %d" % (item * 10, step))
            for item in range(6)
            if item < 5 or step < 4  # the newest one of item 5 is in a batch of lz4
        ]
        story.produce_confluent("prices", 0, records, at_ms=START_MS + 1000 * step, codec=CODECS[step % 5])
    gone: list[Record] = [(b"item 0", None), (b"item 1", None)]
    story.produce_confluent("prices", 0, gone, at_ms=START_MS + 7000)
    late: list[Record] = [(b"item %d" % item, b"newest" * 20) for item in (2, 3, 4, 6, 7, 8)]
    story.produce_confluent("prices", 0, late, at_ms=START_MS + 8000)


def fill_idempotent(story: Story) -> None:
    story.create("payments", 2, min_insync_replicas="1", segment_bytes="800")
    story.produce_confluent("payments", 0, keyed("pay", 6), at_ms=START_MS, codec="lz4", idempotent=True)
    with connect(story.server.bootstrap) as connection:
        producer = wire.init_producer_id(connection)
    for number in range(7):  # more than a broker remembers of a producer
        story.produce_raw(
            "payments",
            1,
            values(f"p{number}", 3),
            at_ms=START_MS + number,
            producer=producer,
            sequence=3 * number,
        )


def fill_deleted(story: Story) -> None:
    story.create("gone", 2)
    story.produce_confluent("gone", 1, keyed("gone", 5), at_ms=START_MS)
    story.commit("readers", [TopicPartition("gone", 1, 3)])
    with story.client() as client:
        client.create_subscription("gone-readers", "gone")
    story.command("topic", "delete", "gone", "--yes")


def commit_groups(story: Story) -> None:
    story.commit(
        "readers",
        [
            TopicPartition("orders", 0, 17, metadata="half way"),
            TopicPartition("orders", 1, 40, metadata="done ✓"),
            TopicPartition("arrivals", 0, 2),
        ],
    )
    story.commit("billing/eu", [TopicPartition("payments", 0, 1, metadata="")])
    story.commit("billing/eu", [TopicPartition("payments", 0, 4, metadata="second")])
    story.join("shoppers", "payments", {0: 2, 1: 5}).close()


def settle_subscriptions(story: Story) -> None:
    story.create("events", 2)
    with story.client() as client:
        for number in range(24):
            story.publish(
                client,
                "events",
                f"event {number}",
                key=f"k{number % 5}",
                partition=number % 2,
                properties={"number": str(number)},
            )
        settle_shared(story, client)
        settle_one_by_one(story, client)
        settle_dead(story, client)
        client.create_subscription("reader", "orders")  # every codec, decoded by the broker
        story.account.subscribed("reader", "orders")
    story.lose_held()


def settle_shared(story: Story, client: BrokerClient) -> None:
    """A done prefix, done ranges beyond it, and a refused message."""
    client.create_subscription("workers", "events", backoff_ms=0, ack_timeout_ms=600_000, unacked_max=500)
    story.account.subscribed("workers", "events")
    taken = story.pull(client, "workers", 20)
    for message in taken:
        if message.offset in (0, 1, 2, 4, 5, 8):
            story.acknowledge(message)
        elif message.offset == 3:
            story.refuse(message, reason="not now")


def settle_one_by_one(story: Story, client: BrokerClient) -> None:
    client.create_subscription("auditor", "events", start_offset=4, mode="exclusive")
    story.account.subscribed("auditor", "events", start=4)
    for message in story.pull(client, "auditor", 3):
        story.acknowledge(message)
    client.create_subscription("standby", "events", mode="failover", order="timestamp")
    story.account.subscribed("standby", "events")
    for message in story.pull(client, "standby", 2):
        story.acknowledge(message)
    client.create_subscription("by-key", "events", mode="key_shared")
    story.account.subscribed("by-key", "events")
    for message in story.pull(client, "by-key", 2):
        story.acknowledge(message)
    client.create_subscription("sampled", "events", delivery="at_most_once")
    story.account.subscribed("sampled", "events")
    for message in story.pull(client, "sampled", 4):  # passed when they leave
        story.account.settled("sampled", place_of(message))
    client.create_subscription("moved", "events", priority=True)
    client.seek("moved", "offset:9")
    story.account.subscribed("moved", "events", start=9)


def settle_dead(story: Story, client: BrokerClient) -> None:
    """Three dead letters, of which one is to be delivered again."""
    story.create("fragile", 1)
    story.create("fragile-letters", 1)
    for number in range(6):
        story.publish(client, "fragile", f"glass {number}", properties={"colour": "green"})
    story.publish(client, "fragile", "too late", ttl_ms=1)  # expired whenever it is looked at
    client.create_subscription(
        "handlers", "fragile", max_deliveries=2, backoff_ms=0, dead_letter_topic="fragile-letters"
    )
    story.account.subscribed("handlers", "fragile")
    story.account.settled("handlers", ("fragile", 0, 6))
    for delivery in (1, 2):
        for message in story.pull(client, "handlers", 6 if delivery == 1 else 3):
            if message.offset in (1, 3, 4):
                story.refuse(message, reason=f"broken {message.offset}", is_dead=delivery == 2)
            elif message.offset == 0:
                story.acknowledge(message)
    wait_until(
        lambda: client.describe_subscription("handlers")["dead"] == 3, within_s=60, what="no dead letters"
    )
    assert client.redrive("handlers", 1) == 1
    letter = get(f"{story.http}/topics/fragile-letters/records?partition=0&offset=0&limit=1")["records"][0]
    headers = [(each["name"], each["value"].encode()) for each in letter["headers"]]
    story.account.redriven("handlers", ("fragile-letters", 0, 0), letter["value"].encode(), headers)


def delay(story: Story) -> None:
    """Messages for 2099: delays have a bound, so the server must believe that the year before has come."""
    with clock_at(YEAR_2099_MS - 1_000_000), story.server, story.client() as client:
        story.create("reminders", 2)
        story.publish(client, "reminders", "at once", partition=0)
        client.create_subscription("reminded", "reminders")
        story.account.subscribed("reminded", "reminders")
        for number in range(4):
            due_ms, partition, text = YEAR_2099_MS + number, number % 2, f"happy new year {number}"
            client.publish("reminders", text, deliver_at=due_ms, partition=partition, key="later")
            story.account.delayed("reminders", partition, due_ms, b"later", text.encode())


# ---- 2. what follows a topic


def follow(story: Story) -> None:
    """Two lakes and a stream, each of them behind the topic by the records that come afterwards."""
    for name, format_ in (("lake", "parquet"), ("delta", "delta")):
        options = ("--topic", "orders", "--to", name, "--once", "--format", format_)
        story.command("pipeline", "run", "archive", *options, "--master", "local[2]")
    stream(story)
    for partition in range(3):
        story.produce_confluent(
            "orders", partition, keyed(f"late {partition}", 4), at_ms=START_MS + 7_200_000, codec="zstd"
        )


def stream(story: Story) -> None:
    """A query that finishes two batches and fails in the third: its range is planned, and not committed."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import DataFrame, SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(story.place / "local"))
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )

    def use(rows: DataFrame, number: int) -> None:
        found = sorted([row.partition, row.offset] for row in rows.select("partition", "offset").collect())
        if number == 2:
            story.account.stream_planned = found
            raise RuntimeError("the golden query ends here")
        story.account.stream_done += found

    options = {
        "kafka.bootstrap.servers": story.server.bootstrap,
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "20",
    }
    query = (
        spark.readStream.format("tailrace")
        .options(**options)
        .load()
        .writeStream.foreachBatch(use)
        .option("checkpointLocation", str(story.place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with suppress(StreamingQueryException):
        query.awaitTermination(120)
    assert "the golden query ends here" in str(query.exception())
    assert story.account.stream_planned
    spark.stop()


# ---- 3. and everything once more, until the kill


def go_on(story: Story, client: BrokerClient) -> Callable[[], None]:
    """More of everything, all in the journal above the checkpoint; returns what is done last, and at once."""
    story.create("late", 1, segment_bytes="2000")
    story.produce_confluent("late", 0, keyed("late", 5), at_ms=START_MS + 9_000_000, codec="gzip")
    story.create("doomed", 1)
    story.produce_raw("doomed", 0, values("doomed", 2), at_ms=START_MS)
    story.command("topic", "delete", "doomed", "--yes")
    story.delete_records("audit", 0, 18)
    story.command("topic", "alter", "arrivals", "--config", "max.message.bytes=300000")
    story.produce_confluent("orders", 0, keyed("killed", 6), at_ms=START_MS + 8_000_000, codec="snappy")
    story.produce_own("arrivals", 1, values("own client again", 3))
    story.produce_raw("metrics", 0, [b"m" * 9000], at_ms=START_MS + 2000)
    story.produce_raw("large", 0, [b"M" * 90_000], at_ms=START_MS + 1)
    story.commit("readers", [TopicPartition("orders", 0, 21, metadata="a little further")])
    taken = sorted(story.pull(client, "workers", 8), key=place_of)
    for message in taken[2:4]:
        story.acknowledge(message)
    story.refuse(taken[5], reason="not now either")
    client.create_subscription("newcomer", "late", start_offset=2)
    story.account.subscribed("newcomer", "late", start=2)
    client.delete_subscription("sampled")
    story.account.unsubscribed("sampled")
    member = story.join("shoppers", "payments", {0: 3, 1: 6})
    with connect(story.server.bootstrap) as connection:
        producer = wire.init_producer_id(connection)
    story.produce_raw("payments", 1, values("before", 3), at_ms=START_MS + 99, producer=producer, sequence=0)

    def last() -> None:
        story.acknowledge(taken[0])
        at_ms = START_MS + 100
        story.produce_raw("payments", 1, [b"last words"], at_ms=at_ms, producer=producer, sequence=3)
        assert member.memberid(), "a member of a group is there to the end"

    return last


# ---- the machinery


def wait_compacted(story: Story) -> None:
    """Until superseded prices are gone and the tombstones have their horizon."""

    def compacted() -> bool:
        with connect(story.server.bootstrap) as connection:
            batches = wire.fetch_batches(connection, "prices", 0, 0)
        return sum(batch.count for batch in batches) < 20 and any(batch.attributes & 64 for batch in batches)

    wait_until(compacted, within_s=60, what="prices are not compacted")


def pack(directory: Path, archive: Path) -> None:
    """A tar that keeps holes as holes: journal files are 16 MiB, almost all of it unused."""
    with archive.open("wb") as out:
        tar = [
            "tar",
            "--format=gnu",
            "--sparse",
            "--hole-detection=raw",
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
        ]
        listed = subprocess.run(
            [*tar, "-C", str(directory.parent), "-c", directory.name], check=True, capture_output=True
        )
        subprocess.run(["xz", "-9e", "--threads=1"], input=listed.stdout, stdout=out, check=True)


def variant(story: Story, observed: dict[str, Any]) -> dict[str, Any]:
    return {
        **observed,
        "pending": story.account.pending(),
        "delayed": story.account.delayed_messages,
        "producers": last_batches(observed),
    }


def last_batches(observed: dict[str, Any]) -> list[dict[str, Any]]:
    """The newest batch of every idempotent producer in every partition."""
    found: dict[tuple[str, int, str], dict[str, Any]] = {}
    for topic, described in observed["topics"].items():
        for index, partition in enumerate(described["partitions"]):
            for line in partition["batches"]:
                if " producer " in line:
                    words = line.split()
                    producer_id, epoch = words[words.index("producer") + 1].split("/")
                    first, last = words[0].split("-")
                    sequence = int(words[words.index("sequence") + 1])
                    found[topic, index, producer_id] = {
                        "topic": topic,
                        "partition": index,
                        "producer_id": int(producer_id),
                        "epoch": int(epoch),
                        "base_sequence": sequence,
                        "last_sequence": sequence + int(last) - int(first),
                        "base_offset": int(first),
                    }
    return list(found.values())


def kill_copy(stopped: Story, place: Path) -> dict[str, Any] | None:
    """Go on with a copy of the stopped directory, and kill it: what it served, None if the kill was late.

    The last writes, a look at what they changed, and the kill come within the time that the applier waits for
    more, which is 50 ms.
    """
    place.mkdir()
    shutil.copytree(stopped.server.data_dir, place / "data")
    story = Story(place, account=deepcopy(stopped.account))
    story.server = server_on(place / "data")
    with story.server, story.client() as client:
        last = go_on(story, client)
        observed = observe(story.server.bootstrap, story.server.data_dir)
        with connect(story.server.bootstrap) as connection:
            last()
            payments = observe_partition(connection, "payments", 1)
            workers = observe_subscription(get(f"{story.http}/subscriptions/workers"))
        story.server.kill()
    logs = story.server.data_dir.glob("*/*.log")
    if any(b"last words" in path.read_bytes() for path in logs):
        return None
    observed["topics"]["payments"]["partitions"][1] = payments
    observed["subscriptions"]["workers"] = workers
    return variant(story, observed)


def main(target: Path) -> None:
    assert not target.exists(), f"{target} exists. A golden directory is never written again: name a new one"
    shutil.rmtree(WORKPLACE, ignore_errors=True)
    WORKPLACE.mkdir(parents=True)
    story = Story(WORKPLACE)
    data_dir = story.server.data_dir
    with story.server:
        fill_topics(story)
        fill_trimmed(story)
        fill_compacted(story)
        fill_idempotent(story)
        commit_groups(story)
        fill_deleted(story)
        settle_subscriptions(story)
        story.server.restart()  # a checkpoint, above which nothing is compacted
        wait_compacted(story)
    story.server = server_on(data_dir)
    delay(story)
    manifest: dict[str, Any] = {"written_by": written_by(), "settings": {"broker": BROKER_SETTINGS}}
    with story.server:
        follow(story)
        manifest["stopped"] = variant(story, observe(story.server.bootstrap, data_dir))
    manifest["lake"] = {"0": 40, "1": 40, "2": 40}  # where its partitions end
    manifest["stream"] = {"done": story.account.stream_done, "planned": story.account.stream_planned}
    packed = WORKPLACE / "packed"
    packed.mkdir()
    for name in ("data", "lake", "delta", "checkpoint"):
        pack(WORKPLACE / name, packed / f"{'stopped' if name == 'data' else name}.tar.xz")
    for attempt in range(_KILLS_MAX):
        if (killed := kill_copy(story, WORKPLACE / f"killed-{attempt}")) is not None:
            break
    assert killed is not None, "the machine is too slow: every round was applied before the kill"
    manifest["killed"] = killed
    pack(WORKPLACE / f"killed-{attempt}" / "data", packed / "killed.tar.xz")
    (packed / "manifest.json").write_text(laid_out(manifest) + "\n", encoding="utf-8")
    check(packed, manifest)
    shutil.copytree(packed, target)


def check(packed: Path, manifest: Any) -> None:
    """What the writing servers served is what comes back."""
    for name in VARIANTS:
        data_dir = unpack(packed / f"{name}.tar.xz", WORKPLACE / "check" / name)
        code, printed = verify(data_dir)
        assert code == 0, printed
        with server_on(data_dir) as server:
            again = observe(server.bootstrap, data_dir)
        assert again == {key: manifest[name][key] for key in again}, name


def laid_out(value: Any, indent: str = "") -> str:
    """JSON for people: what fits stands on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) <= 118 or not isinstance(value, dict | list) or not value:
        return line
    inner = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + laid_out(each, inner) for each in value) + f"\n{indent}]"
    lines = [f"{inner}{json.dumps(key)}: {laid_out(each, inner)}" for key, each in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def written_by() -> dict[str, str]:
    """Which programs wrote the directory."""
    commit = subprocess.run(
        ["git", "log", "-1", "--format=%H", "--", "src"], check=True, capture_output=True, text=True
    )
    names = ("tailrace", "confluent-kafka", "kafka-python", "pyspark", "pyarrow", "deltalake")
    return {
        "commit": commit.stdout.strip(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
