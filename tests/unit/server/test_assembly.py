"""What each part of a node goes by: every setting reaches a part, under the name that clients know."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.broker.config import cleaner_backoff_ms
from tailrace.broker.configs import TOPIC_CONFIGS, log_config, topic_settings
from tailrace.kafka import KafkaConfig
from tailrace.net.budget import QUICK_BYTES, REQUEST_BYTES_MAX
from tailrace.server.assembly import (
    NODE_ID,
    broker_config,
    kafka_config,
    node_values,
    nodes,
    request_bytes_max,
    session_ms_max,
)
from tailrace.server.config import ServerConfig
from tailrace.server.engines import ENGINES
from tailrace.server.engines.segment import directory_config, metadata_path
from tailrace.server.setting import settings
from tailrace.storage.api import OS

BROKER_NAMES = sorted(key.removeprefix("broker.") for key in settings() if key.startswith("broker."))


def other_value(name: str) -> str:
    """A value that is allowed and not the default."""
    default = settings()[f"broker.{name}"].default
    return "false" if default == "true" else str(int(default) + 1)


@pytest.mark.parametrize("name", BROKER_NAMES)
def test_every_broker_setting_reaches_a_part(name: str) -> None:
    plain, changed = ServerConfig(), ServerConfig(broker={name: other_value(name)})
    broker, other = broker_config(plain), broker_config(changed)
    fields = [field for field in broker.__slots__ if field != "values"]
    assert (
        any(getattr(broker, field) != getattr(other, field) for field in fields)
        or kafka_config(plain) != kafka_config(changed)
        or directory_config(plain) != directory_config(changed)
        or topic_settings({}, broker.values) != topic_settings({}, other.values)
        or session_ms_max(plain) != session_ms_max(changed)
        or cleaner_backoff_ms(broker.values) != cleaner_backoff_ms(other.values)
    )


def test_clients_are_told_what_was_set() -> None:
    config = ServerConfig(
        data_dir=Path("/data"), fsync=OS, broker={"num.partitions": "7"}, topic_defaults={"retention.ms": "5"}
    )
    values = node_values(config)
    assert values["num.partitions"] == "7"
    assert values["log.retention.ms"] == "5"
    assert values["fsync"] == "os"
    assert values["log.dirs"] == "/data"
    assert values["advertised.listeners"] == "auto"
    assert broker_config(config).values == values


def test_topic_defaults_reach_the_logs() -> None:
    values = node_values(ServerConfig(topic_defaults={"retention.ms": "5", "cleanup.policy": "compact"}))
    assert log_config({}, values).retention_ms == 5
    assert log_config({}, values).compact
    assert log_config({"retention.ms": "6"}, values).retention_ms == 6


def test_every_topic_default_has_a_node_wide_name() -> None:
    names = [key.removeprefix("topic_defaults.") for key in settings() if key.startswith("topic_defaults.")]
    assert "retention.ms" in names
    assert all(TOPIC_CONFIGS[name].server_default for name in names)


def test_the_listener_keeps_its_own_bounds_unless_they_are_set() -> None:
    assert kafka_config(ServerConfig()) == KafkaConfig()
    made = kafka_config(ServerConfig(broker={"connections.max.idle.ms": "1500", "max.connections": "3"}))
    assert (made.idle_timeout_s, made.connections_max) == (1.5, 3)


def test_the_fsync_of_the_directory_is_the_node_s() -> None:
    config = directory_config(ServerConfig(fsync=OS, broker={"disk.free.min": "123"}))
    assert (config.fsync, config.free_bytes_min) == (OS, 123)


def test_the_budget_of_requests_is_the_node_s_and_the_commit_queue_holds_all_of_it() -> None:
    plain, small = ServerConfig(), ServerConfig(broker={"queued.max.request.bytes": "600"})
    assert request_bytes_max(plain) == REQUEST_BYTES_MAX and request_bytes_max(small) == 600
    passes = (
        kafka_config(plain).frame_bytes_max + QUICK_BYTES
    )  # of requests that grow although there is no room
    assert directory_config(plain).queue_bytes_max == (REQUEST_BYTES_MAX + passes) * 7 // 6
    assert directory_config(small).queue_bytes_max == (600 + passes) * 7 // 6


def test_clients_are_sent_where_they_came_from_or_where_they_should_go() -> None:
    (node,) = nodes(ServerConfig()).values()
    assert (node.node_id, node.host, node.port) == (NODE_ID, "", 0)
    (node,) = nodes(ServerConfig(advertised=("broker.lan", 19092))).values()
    assert (node.host, node.port) == ("broker.lan", 19092)


def test_metadata_lie_beside_the_log_or_nowhere() -> None:
    assert metadata_path(ServerConfig(data_dir=Path("/data"))) == Path("/data/metadata.sqlite")
    assert ENGINES["memory"].describe(ServerConfig(engine="memory", data_dir=Path("/data"))).directory == ""
