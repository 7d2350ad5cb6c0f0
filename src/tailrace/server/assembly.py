"""What each part of a node goes by, out of the one configuration. Pure: nothing is opened here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.broker import BrokerConfig, Node
from tailrace.broker.configs import BROKER_CONFIGS, TOPIC_CONFIGS
from tailrace.kafka import KafkaConfig
from tailrace.model import BrokerId, ConfigError
from tailrace.model.address import Address, unix_address
from tailrace.model.session import Principal, read_principal
from tailrace.native import NativeConfig
from tailrace.net.budget import QUICK_BYTES
from tailrace.server.config import ServerConfig
from tailrace.server.engines import ENGINES

if TYPE_CHECKING:
    from tailrace.http.config import HttpConfig
    from tailrace.telemetry.config import TelemetryConfig

NODE_ID = BrokerId(1)


def request_bytes_max(config: ServerConfig) -> int:
    """The bytes of requests that the node holds at most."""
    return broker_number(config, "queued.max.request.bytes")


def queue_bytes_max(config: ServerConfig) -> int:
    """The bytes that wait for their commit at most: more than the node reads, so that no append is refused.

    What is read may exceed the budget by one request and QUICK_BYTES (`net/budget.py`). A sixth on top is for
    what the node writes itself: offsets, cursors, dead letters.
    """
    most = request_bytes_max(config) + broker_number(config, "socket.request.max.bytes") + QUICK_BYTES
    return most + most // 6


def broker_config(config: ServerConfig) -> BrokerConfig:
    """What the broker goes by, and tells clients that ask."""
    return BrokerConfig.read(node_values(config))


def kafka_config(config: ServerConfig) -> KafkaConfig:
    """What the Kafka listener goes by; what was not set is the listener's own to choose."""
    given = config.broker
    made = KafkaConfig()
    if "max.connections" in given:
        made = replace(made, connections_max=int(given["max.connections"]))
    if "connections.max.idle.ms" in given:
        made = replace(made, idle_timeout_s=int(given["connections.max.idle.ms"]) / 1000)
    if "socket.request.max.bytes" in given:
        made = replace(made, frame_bytes_max=int(given["socket.request.max.bytes"]))
    return made


def native_config(config: ServerConfig) -> NativeConfig:
    """What the native listener goes by; bounds that Kafka has names for hold for both listeners."""
    made = NativeConfig(heartbeat_interval_ms=config.native_heartbeat_ms)
    if "max.connections" in config.broker:
        made = replace(made, connections_max=int(config.broker["max.connections"]))
    return made


def native_addresses(config: ServerConfig) -> list[Address]:
    """Where the native listener serves: its port, and its Unix socket if there is one."""
    tcp = config.listeners_of("native")[0].address
    return [tcp, unix_address(config.native_socket)] if config.native_socket else [tcp]


def session_ms_max(config: ServerConfig) -> int:
    """How long a login of a Kafka client holds; 0: for ever."""
    return broker_number(config, "connections.max.reauth.ms")


def http_config(config: ServerConfig) -> HttpConfig:
    """What the HTTP listener goes by; the address that it listens on is one that it may be called by."""
    from tailrace.http.config import HttpConfig

    hosts = [each.address.host for each in config.listeners_of("http")] or [config.host]
    made = HttpConfig(allowed_hosts=(*config.http_allowed_hosts, *hosts))
    if "max.connections" in config.broker:
        made = replace(made, connections_max=int(config.broker["max.connections"]))
    return made


def telemetry_config(config: ServerConfig) -> TelemetryConfig | None:
    """What is sent to whom; None if there is nobody, or nothing. ConfigError if it cannot be sent."""
    if not config.telemetry_endpoint or not (config.telemetry_traces or config.telemetry_metrics):
        return None
    from tailrace.telemetry.config import TelemetryConfig, check_endpoint, check_installed

    try:
        check_endpoint(config.telemetry_endpoint)
    except ValueError as error:
        raise ConfigError(
            f"telemetry.otlp_endpoint = {config.telemetry_endpoint!r} must be the address of an "
            "OpenTelemetry collector, such as http://127.0.0.1:4318"
        ) from error
    check_installed()
    return TelemetryConfig(
        endpoint=config.telemetry_endpoint,
        traces=config.telemetry_traces,
        metrics=config.telemetry_metrics,
        interval_s=config.telemetry_interval_s,
        sample_one_in=config.telemetry_sample_one_in,
    )


def node_values(config: ServerConfig) -> dict[str, str]:
    """Everything that was set, under node-wide names: a topic's retention.ms is log.retention.ms."""
    directory = ENGINES[config.engine].describe(config).directory
    advertised = "auto" if config.advertised is None else f"{config.advertised[0]}:{config.advertised[1]}"
    values = {
        "broker.id": str(NODE_ID),
        "listeners": ",".join(
            f"{each.security_protocol}://{each.address}" for each in config.listeners_of("kafka")
        ),
        "advertised.listeners": advertised,
        "log.dirs": str(Path(directory).absolute()) if directory else "",
        "fsync": str(config.fsync),
    }
    for name, text in config.topic_defaults.items():
        node_wide = TOPIC_CONFIGS[name].server_default
        assert node_wide is not None, name
        values[node_wide] = text
    return {**values, **config.broker}


def nodes(config: ServerConfig) -> dict[BrokerId, Node]:
    """This node, as clients are told of it; without an address they get the one by which they came."""
    host, port = config.advertised or ("", 0)
    return {NODE_ID: Node(node_id=NODE_ID, host=host, port=port)}


def super_users(config: ServerConfig) -> frozenset[Principal] | None:
    """Who may do everything where access is controlled; None where every client may."""
    if config.authorizer == "off":
        return None
    return frozenset(read_principal(each) for each in config.super_users)


def broker_number(config: ServerConfig, name: str) -> int:
    """A whole number of the table [broker]."""
    return int(config.broker.get(name, BROKER_CONFIGS[name].default))
