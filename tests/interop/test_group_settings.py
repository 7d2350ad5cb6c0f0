"""Settings of groups, set, read and listed by the administration of kafka-python and confluent-kafka."""

from __future__ import annotations

import pytest

_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
_PATIENCE_S = 60


def test_kafka_python_sets_reads_and_lists_settings_of_a_group(bootstrap: str, group: str) -> None:
    kafka = pytest.importorskip("kafka.admin")
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:

        def named(**configs: str) -> object:
            settings = {name.replace("_", "."): value for name, value in configs.items()}
            return kafka.ConfigResource(kafka.ConfigResourceType.GROUP, group, configs=settings or None)

        changed = admin.alter_configs([named(consumer_session_timeout_ms="50000")])
        assert changed == {"group": {group: "OK"}}
        told = admin.describe_configs([named()])["group"][group]
        assert {name: each["value"] for name, each in told.items()} == {_SESSION: "50000"}
        assert group in admin.list_config_resources()["group"]
        refused = admin.alter_configs([named(consumer_session_timeout_ms="5")])
        assert "InvalidConfigurationError" in refused["group"][group]
    finally:
        admin.close()


def test_librdkafka_sets_and_reads_settings_of_a_group(bootstrap: str, group: str) -> None:
    confluent = pytest.importorskip("confluent_kafka.admin")
    admin = confluent.AdminClient({"bootstrap.servers": bootstrap})
    entry = confluent.ConfigEntry(_HEARTBEAT, "6000", incremental_operation=confluent.AlterConfigOpType.SET)
    resource = confluent.ConfigResource(confluent.ResourceType.GROUP, group, incremental_configs=[entry])
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(_PATIENCE_S)
    asked = confluent.ConfigResource(confluent.ResourceType.GROUP, group)
    (told,) = admin.describe_configs([asked]).values()
    values = {name: each.value for name, each in told.result(_PATIENCE_S).items()}
    assert values == {_SESSION: "45000", _HEARTBEAT: "6000"}
