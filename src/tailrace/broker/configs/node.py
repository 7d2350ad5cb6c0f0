"""The settings of a node, under Kafka's own names where Kafka has one.

Every topic setting with a node-wide default appears here too, under the name of that default. A client may
change those while the node runs, and every key whose `read_only` is off (KIP-226). All others are read at the
start, and a change is refused with the way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tailrace.broker.configs.key import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigType,
    Layers,
    find_key,
    node_synonyms,
    table_of,
)
from tailrace.broker.configs.settings import NodeSettings
from tailrace.broker.configs.topic import PRODUCER_IDLE, TOPIC_CONFIGS
from tailrace.model import BrokerError, ErrorCode
from tailrace.storage.api import Fsync

_LONG_MAX = (1 << 63) - 1


def _number(
    name: str,
    default: int,
    *,
    doc: str,
    at_least: int,
    type: ConfigType = ConfigType.INT,
    read_only: bool = True,
) -> ConfigKey:
    return ConfigKey(
        name=name, type=type, default=str(default), doc=doc, at_least=at_least, read_only=read_only
    )


def _text(name: str, *, doc: str) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.STRING, default="", doc=doc, read_only=True)


def _flag(name: str, default: str, *, doc: str) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.BOOLEAN, default=default, doc=doc, read_only=True)


def _topic_defaults() -> list[ConfigKey]:
    return [
        replace(
            key,
            name=key.server_default,
            doc=f"Default of the topic setting {key.name}. {key.doc}",
            read_only=False,
            server_default=None,
        )
        for key in TOPIC_CONFIGS.values()
        if key.server_default is not None
    ]


BROKER_CONFIGS: Mapping[str, ConfigKey] = table_of(
    *_topic_defaults(),
    _number("broker.id", -1, doc="Number of this node in its cluster.", at_least=-1),
    _text("broker.rack", doc="Where this node stands, for placing replicas apart."),
    _text("log.dirs", doc="The data directory."),
    _text("listeners", doc="The addresses this node listens on."),
    _text("advertised.listeners", doc="The addresses clients are told; auto is the one they connected to."),
    _number("num.partitions", 4, doc="Partitions of a topic whose creator names no number.", at_least=1),
    _number(
        "max.partitions",
        20_000,
        doc="How many partitions all topics may have together; topics past that are refused.",
        at_least=1,
    ),
    _number(
        "default.replication.factor",
        1,
        doc="Replicas of a topic whose creator names no number.",
        at_least=1,
        type=ConfigType.SHORT,
    ),
    _flag("auto.create.topics.enable", "true", doc="Whether a topic is created when it is first asked for."),
    _flag("delete.topic.enable", "true", doc="Topics can be deleted; it cannot be switched off."),
    ConfigKey(
        name="fsync",
        type=ConfigType.STRING,
        default="commit",
        doc="When a write of a topic without flush settings counts as durable: commit, interval:<ms>, or os.",
        check=Fsync.parse,
        read_only=True,
    ),
    _number(
        "retention.check.interval.ms",
        300_000,
        doc="How often retention and expiry are looked after.",
        at_least=1,
        type=ConfigType.LONG,
    ),
    _number(
        "log.cleaner.backoff.ms",
        15_000,
        doc="How long compaction waits before it looks for logs again.",
        at_least=1,
        type=ConfigType.LONG,
        read_only=False,
    ),
    *(
        _number(
            name,
            _LONG_MAX,
            doc="Accepted for compatibility, without effect: " + why,
            at_least=0,
            type=ConfigType.LONG,
            read_only=False,
        )
        for name, why in (
            ("leader.replication.throttled.rate", "replication is not throttled."),
            ("follower.replication.throttled.rate", "replication is not throttled."),
            ("replica.alter.log.dirs.io.max.bytes.per.second", "a node has one data directory."),
        )
    ),
    _number(
        "disk.free.min",
        64 << 20,
        doc="With fewer free bytes on the disk, writes are refused and reads go on.",
        at_least=0,
        type=ConfigType.LONG,
    ),
    PRODUCER_IDLE,
    _number(
        "connections.max.reauth.ms",
        0,
        doc="How long a login of a Kafka client holds; the client logs in again before that. 0: for ever.",
        at_least=0,
        type=ConfigType.LONG,
    ),
    _number(
        "group.initial.rebalance.delay.ms",
        0,
        doc="How long the first rebalance of an empty group waits for more members.",
        at_least=0,
    ),
    _number(
        "group.min.session.timeout.ms", 6_000, doc="The shortest session a member may ask for.", at_least=1
    ),
    _number(
        "group.max.session.timeout.ms", 1_800_000, doc="The longest session a member may ask for.", at_least=1
    ),
    _number("group.max.size", 10_000, doc="How many members a group may have.", at_least=1),
    _number(
        "offsets.retention.minutes",
        7 * 24 * 60,
        doc="How long the offsets of a group without members are kept.",
        at_least=1,
    ),
    _number(
        "offsets.topic.num.partitions",
        8,
        doc="Partitions of the internal topic that keeps the offsets of groups.",
        at_least=1,
    ),
    _number(
        "offset.metadata.max.bytes",
        4096,
        doc="The longest text that may be committed with an offset.",
        at_least=0,
    ),
    _number(
        "transaction.max.timeout.ms",
        900_000,
        doc="The longest time that a producer may ask to keep a transaction open.",
        at_least=1,
    ),
    _number(
        "transactional.id.expiration.ms",
        7 * 24 * 3600 * 1000,
        doc="A transactional id that was unused for so long is forgotten.",
        at_least=1,
    ),
    _number(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        doc="How often transactional ids are looked for that were unused for long.",
        at_least=1,
    ),
    _number(
        "transaction.state.log.num.partitions",
        8,
        doc="Partitions of the internal topic that keeps the state of transactions.",
        at_least=1,
    ),
    _number(
        "connections.max.idle.ms",
        600_000,
        doc="A connection that was silent for so long is closed.",
        at_least=1,
        type=ConfigType.LONG,
    ),
    _number(
        "max.connections", 10_000, doc="How many connections are open at once; more are refused.", at_least=1
    ),
    _number("socket.request.max.bytes", 100 << 20, doc="The largest request that is read.", at_least=1),
    _number(
        "queued.max.request.bytes",
        192 << 20,
        doc="How many bytes of requests wait at once in the whole node: half shared by all listeners, a "
        "sixth kept for each; at the bound, sockets are not read.",
        at_least=1,
        type=ConfigType.LONG,
    ),
)


def check_broker_configs(values: Mapping[str, str]) -> None:
    """INVALID_CONFIG for the first setting that is unknown or has a value that is not accepted."""
    for name, text in values.items():
        find_key(BROKER_CONFIGS, name, kind="broker").parse(text)


def check_changeable(name: str) -> ConfigKey:
    """The row of a setting that a client may change while the node runs; else INVALID_CONFIG."""
    key = find_key(BROKER_CONFIGS, name, kind="broker")
    if key.read_only:
        raise BrokerError(
            f"{name} is read at the start. Set it in the node's configuration and start the node again",
            code=ErrorCode.INVALID_CONFIG,
        )
    return key


def check_changed_configs(values: Mapping[str, str]) -> None:
    """INVALID_CONFIG for the first setting that a client may not give this value while the node runs."""
    for name, text in values.items():
        check_changeable(name).parse(text)


def describe_broker(settings: NodeSettings) -> list[ConfigEntry]:
    """Every setting of a node, by name, with the value in force and where it comes from."""
    return [_describe(key, settings.layers) for key in BROKER_CONFIGS.values()]


def describe_all_brokers(settings: NodeSettings) -> list[ConfigEntry]:
    """The settings that clients gave all nodes at once."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    layers = {source: settings.layers[source]}
    return [_describe(key, layers) for key in BROKER_CONFIGS.values() if key.name in layers[source]]


def _describe(key: ConfigKey, layers: Layers) -> ConfigEntry:
    synonyms = tuple(node_synonyms(key, key.name, layers))
    return ConfigEntry(
        name=key.name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        type=key.type,
        read_only=key.read_only,
        sensitive=key.sensitive,
        doc=key.doc,
        synonyms=synonyms,
    )
