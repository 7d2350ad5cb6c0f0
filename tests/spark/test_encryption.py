"""Encrypted messages in Spark: from Kafka clients to Spark, from Spark to native clients, columns and SQL."""

from __future__ import annotations

import asyncio
import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.client import BrokerClient, Encryption, KafkaClient, Producer
from tailrace.model import ConfigError
from tailrace.security.messages.envelope import ENVELOPE
from tailrace.spark.encryption import SparkEncryption, encryption_settings, key_files
from tailrace.spark.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = bytes(range(32))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "k1.key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return path


def produce(broker: tailrace.Broker, topic: str, *records: tuple[bytes | None, bytes | None, Any]) -> None:
    async def work() -> None:
        async with (
            KafkaClient(broker.bootstrap_servers) as client,
            Producer(client, encryption=Encryption(keys={"k1": KEY})) as producer,
        ):
            for key, value, headers in records:
                await (await producer.send(topic, value, key=key, headers=headers))

    asyncio.run(work())


def read(spark: SparkSession, broker: tailrace.Broker, topic: str, **options: object) -> DataFrame:
    reader = spark.read.format("tailrace").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.option("subscribe", topic).load()


def forge(broker: tailrace.Broker, topic: str) -> None:
    """Append a copy of the first record under another key."""
    first = next(iter(broker.read(topic)))
    broker.produce(topic, first.value, key=b"forged", headers=list(first.headers))


def test_kafka_to_spark_to_native(spark: SparkSession, broker: tailrace.Broker, key_file: Path) -> None:
    produce(broker, "orders", (b"k", b"secret", [("colour", b"red")]), (b"", None, []), (None, b"", []))
    keys = f"k1={key_file}"
    rows = read(spark, broker, "orders", encryption__keys=keys, includeHeaders="true")
    found = [
        (r.key, r.value, [(h.key, h.value) for h in r.headers]) for r in rows.orderBy("offset").collect()
    ]
    assert found == [(b"k", b"secret", [("colour", b"red")]), (b"", None, []), (None, b"", [])]
    assert read(spark, broker, "orders", encryption__keys=keys).count() == 3
    (
        rows.selectExpr("key", "CAST(value AS STRING) AS value", "headers")
        .write.format("tailrace")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .options(**{"topic": "copies", "encryption.keys": keys})
        .mode("append")
        .save()
    )
    assert all(b"secret" not in (record.value or b"") for record in broker.read("copies"))
    with BrokerClient(port=broker.native_port, encryption=Encryption(keys={"k1": KEY})) as client:
        client.create_subscription("workers", "copies")
        messages = client.pull("workers", 3, wait_ms=20_000)
        while len(messages) < 3:
            messages += client.pull("workers", 3 - len(messages), wait_ms=20_000)
    seen = {(m.key, None if m.is_tombstone else m.body, tuple(m.headers)) for m in messages}
    assert seen == {(b"k", b"secret", (("colour", b"red"),)), (b"", None, ()), (None, b"", ())}


def test_a_forged_record_fails_the_query_or_is_skipped(
    spark: SparkSession, broker: tailrace.Broker, key_file: Path
) -> None:
    produce(broker, "orders", (b"k", b"secret", []))
    forge(broker, "orders")
    keys = f"k1={key_file}"
    with pytest.raises(
        Exception, match=r"orders-0 offset 1 is not handed out: it does not verify with key k1"
    ):
        read(spark, broker, "orders", encryption__keys=keys).collect()
    rows = read(spark, broker, "orders", encryption__keys=keys, encryption__onFailure="skip").collect()
    assert [row.value for row in rows] == [b"secret"]


def test_columns_are_decrypted_by_function_and_by_sql(
    spark: SparkSession, broker: tailrace.Broker, key_file: Path
) -> None:
    from tailrace.spark import decrypt, register_decrypt

    produce(broker, "orders", (b"k", b"secret", [("colour", b"red")]), (None, None, []))
    forge(broker, "orders")
    rows = read(spark, broker, "orders", includeHeaders="true")
    keys = f"k1={key_file}"
    column = decrypt("value", "key", "headers", "topic", keys=keys, on_failure="null")
    opened = rows.withColumn("value", column).orderBy("offset")
    assert [row.value for row in opened.collect()] == [b"secret", None, None]
    register_decrypt(spark, keys=keys)
    rows.createOrReplaceTempView("records")
    sql = "SELECT CAST(tailrace_decrypt(value, key, headers, topic) AS STRING) AS v FROM records"
    assert spark.sql(f"{sql} WHERE offset = 0").first().v == "secret"  # type: ignore[union-attr]
    with pytest.raises(Exception, match="a row of topic orders is not handed out: it does not verify"):
        spark.sql(sql).collect()
    shown = io.StringIO()
    with redirect_stdout(shown):
        opened.explain(True)
        spark.sql(sql).explain("formatted")
        read(spark, broker, "orders", encryption__keys=keys).explain(True)
    assert "tailrace_decrypt" in shown.getvalue()
    for secret in (KEY.hex(), repr(KEY)[2:-1]):
        assert secret not in shown.getvalue()


# ---- without Spark


def settings(**given: str) -> SparkEncryption | None:
    names = {name.replace("__", "."): value for name, value in given.items()}
    return encryption_settings(Options(names, known=names))


def test_options_become_names_of_files() -> None:
    assert settings() is None
    found = settings(
        encryption__keys="k1=/a/k1.key, k2=/a/k2.key", encryption__active="k2", encryption__mirrors="us, eu"
    )
    assert found == SparkEncryption(keys=("k1=/a/k1.key", "k2=/a/k2.key"), active="k2", mirrors=("us", "eu"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"encryption__active": "k1"}, "option encryption.active needs encryption.keys"),
        ({"encryption__keys": "k1"}, "encryption.keys is not ID=FILE"),
        ({"encryption__keys": "k;=f"}, "key id 'k;' is not"),
        ({"encryption__keys": "k1=f", "encryption__onFailure": "dead-letter"}, "may run twice"),
        ({"encryption__keys": "k1=f", "encryption__policy": "x"}, "encryption.policy='x' is not possible"),
    ],
)
def test_options_that_make_no_sense_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        settings(**given)


def test_a_key_in_an_option_is_refused_and_not_repeated() -> None:
    for text in (f"k1={KEY.hex()}", KEY.hex()):
        with pytest.raises(ConfigError) as caught:
            key_files(text)
        assert KEY.hex() not in str(caught.value)


def test_what_is_shipped_has_no_key(key_file: Path) -> None:
    import pickle

    found = settings(encryption__keys=f"k1={key_file}")
    assert found is not None and found.encryption().keys.get("k1") == KEY
    assert KEY not in pickle.dumps(found) and ENVELOPE.encode() not in pickle.dumps(found)


def test_a_replay_names_the_topic_that_encrypted_rows_come_from() -> None:
    import pyarrow as pa

    from tailrace.security.messages import Opener, Sealer, envelope, origin
    from tailrace.spark import encryption
    from tailrace.spark.codec import HEADERS_TYPE

    assert (encryption._ENVELOPE, encryption._ORIGIN) == (envelope.ENVELOPE, envelope.ORIGIN)
    assert encryption._REPLAY == origin.REPLAY
    handed = Encryption(keys={"k1": KEY})
    (sealed, added), (_, elsewhere) = (
        Sealer(handed).seal(topic, None, b"v") for topic in ("orders", "other")
    )
    given = [[], None, added, elsewhere]
    listed = [
        None if each is None else [{"key": name, "value": value} for name, value in each] for each in given
    ]
    columns = [pa.array([b"x", b"y", sealed, b"z"]), pa.array(listed, HEADERS_TYPE)]
    rows = pa.RecordBatch.from_arrays(columns, names=["value", "headers"])
    named = encryption.name_origin(rows, "orders").column("headers").to_pylist()
    assert (named[0], named[1], named[3]) == (listed[0], listed[1], listed[3])
    pairs = [(each["key"], each["value"]) for each in named[2]]
    assert Opener(handed).open("orders-replay", None, sealed, pairs)[0] == b"v"
    assert encryption.name_origin(rows.slice(0, 2), "orders").equals(rows.slice(0, 2))
