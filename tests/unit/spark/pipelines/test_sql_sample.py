"""The records by which a query's types are guessed, from a real broker."""

from __future__ import annotations

import pytest

import tailrace
from tailrace.client import MessageProducer, ProducerRecord
from tailrace.spark.link import close_links, link_to

pytest.importorskip("pyarrow")


def test_a_sample_has_committed_records_alone() -> None:
    from tailrace.spark.pipelines.sql_view import sample_values

    with tailrace.Broker() as broker:
        broker.create_topic("orders", partitions=1)
        properties = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shop"}
        try:
            with MessageProducer(properties) as producer:
                producer.init_transactions()
                for value, commit in ((b"committed", True), (b"aborted", False)):
                    producer.begin_transaction()
                    producer.send(ProducerRecord("orders", value)).result(timeout=60)
                    if commit:
                        producer.commit_transaction()
                    else:
                        producer.abort_transaction()
                producer.begin_transaction()
                producer.send(ProducerRecord("orders", b"open")).result(timeout=60)
                assert list(sample_values(link_to(broker.bootstrap_servers), "orders")) == [b"committed"]
                producer.abort_transaction()
        finally:
            close_links()
