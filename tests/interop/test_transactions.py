"""A producer that wants transactions hears at once that there are none, and does not ask for ever."""

from __future__ import annotations

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")

_PATIENCE_S = 60


def test_librdkafka_gives_up_with_the_reason(bootstrap: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments"})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.init_transactions(_PATIENCE_S)
    error = caught.value.args[0]
    assert error.fatal() and not error.retriable()
    assert error.code() == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "has no transactions" in error.str()
