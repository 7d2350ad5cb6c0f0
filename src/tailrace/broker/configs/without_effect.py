"""Settings of a topic that Kafka has and that have no effect here: accepted, kept, shown.

Tools copy all settings of a topic from one cluster to another (MirrorMaker 2), and would fail for one that is
refused. The description of each says why it changes nothing. The names are those of Kafka 4, with some that
older clients still send.
"""

from __future__ import annotations

from tailrace.broker.configs.key import ConfigKey, ConfigType
from tailrace.model import ConfigError

_LONG_MAX = (1 << 63) - 1
_NO_EFFECT = "Accepted for compatibility, without effect: "
_NOT_COMPRESSED_HERE = (
    _NO_EFFECT + "batches are kept, and sent to consumers, as the producer compressed them."
)
_NOT_TIERED = (
    _NO_EFFECT + "all records are kept in the data directory, under retention.ms and retention.bytes."
)


def _check_gzip_level(text: str) -> None:
    if text.lstrip("+-").isdecimal() and int(text) == 0:
        raise ConfigError("compression.gzip.level = 0 is not a level: 1 to 9 are, and -1 for the default")


def _level(codec: str, default: int, *, at_least: int, at_most: int) -> ConfigKey:
    return ConfigKey(
        name=f"compression.{codec}.level",
        type=ConfigType.INT,
        default=str(default),
        doc=_NOT_COMPRESSED_HERE,
        at_least=at_least,
        at_most=at_most,
        check=_check_gzip_level if codec == "gzip" else None,
        server_default=f"compression.{codec}.level",
    )


def _tiered_number(name: str, default: int, *, at_least: int, server_default: str | None = None) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.LONG,
        default=str(default),
        doc=_NOT_TIERED,
        at_least=at_least,
        server_default=server_default,
    )


def _tiered_flag(name: str) -> ConfigKey:
    return ConfigKey(name=name, type=ConfigType.BOOLEAN, default="false", doc=_NOT_TIERED)


WITHOUT_EFFECT: tuple[ConfigKey, ...] = (
    ConfigKey(
        name="compression.type",
        type=ConfigType.STRING,
        default="producer",
        doc=_NOT_COMPRESSED_HERE,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        server_default="compression.type",
    ),
    _level("gzip", -1, at_least=-1, at_most=9),
    _level("lz4", 9, at_least=1, at_most=17),
    _level("zstd", 3, at_least=-131_072, at_most=22),
    _tiered_number("local.retention.bytes", -2, at_least=-2, server_default="log.local.retention.bytes"),
    _tiered_number("local.retention.ms", -2, at_least=-2, server_default="log.local.retention.ms"),
    _tiered_number("remote.copy.lag.bytes", 0, at_least=-1),
    _tiered_number("remote.copy.lag.ms", 0, at_least=-1),
    _tiered_flag("remote.log.copy.disable"),
    _tiered_flag("remote.log.delete.on.disable"),
    _tiered_flag("remote.storage.enable"),
    ConfigKey(
        name="unclean.leader.election.enable",
        type=ConfigType.BOOLEAN,
        default="false",
        doc="Whether a replica that lacks acknowledged records may become leader when no other is left. "
        "Without effect on a single node.",
        server_default="unclean.leader.election.enable",
    ),
    ConfigKey(
        name="file.delete.delay.ms",
        type=ConfigType.LONG,
        default="60000",
        doc=_NO_EFFECT + "a file is removed as soon as no reader has it open.",
        at_least=0,
        server_default="log.segment.delete.delay.ms",
    ),
    ConfigKey(
        name="follower.replication.throttled.replicas",
        type=ConfigType.LIST,
        default="",
        doc=_NO_EFFECT + "replication is not throttled.",
    ),
    ConfigKey(
        name="leader.replication.throttled.replicas",
        type=ConfigType.LIST,
        default="",
        doc=_NO_EFFECT + "replication is not throttled.",
    ),
    ConfigKey(
        name="message.downconversion.enable",
        type=ConfigType.BOOLEAN,
        default="true",
        doc=_NO_EFFECT + "every client that is served reads the one record format there is.",
        server_default="log.message.downconversion.enable",
    ),
    ConfigKey(
        name="message.format.version",
        type=ConfigType.STRING,
        default="3.0-IV1",
        doc=_NO_EFFECT + "records are always kept in format 2.",
        server_default="log.message.format.version",
    ),
    ConfigKey(
        name="message.timestamp.after.max.ms",
        type=ConfigType.LONG,
        default=str(_LONG_MAX),
        doc=_NO_EFFECT + "a record may carry any time.",
        at_least=0,
        server_default="log.message.timestamp.after.max.ms",
    ),
    ConfigKey(
        name="message.timestamp.before.max.ms",
        type=ConfigType.LONG,
        default=str(_LONG_MAX),
        doc=_NO_EFFECT + "a record may carry any time.",
        at_least=0,
        server_default="log.message.timestamp.before.max.ms",
    ),
    ConfigKey(
        name="message.timestamp.difference.max.ms",
        type=ConfigType.LONG,
        default=str(_LONG_MAX),
        doc=_NO_EFFECT + "a record may carry any time.",
        at_least=0,
        server_default="log.message.timestamp.difference.max.ms",
    ),
    ConfigKey(
        name="preallocate",
        type=ConfigType.BOOLEAN,
        default="false",
        doc=_NO_EFFECT + "segments are always given room ahead, in steps.",
        server_default="log.preallocate",
    ),
    ConfigKey(
        name="segment.index.bytes",
        type=ConfigType.INT,
        default=str(10 << 20),
        doc=_NO_EFFECT + "an index is as large as its segment needs.",
        at_least=4,
        server_default="log.index.size.max.bytes",
    ),
    ConfigKey(
        name="segment.jitter.ms",
        type=ConfigType.LONG,
        default="0",
        doc=_NO_EFFECT + "segments are sealed at segment.ms.",
        at_least=0,
        server_default="log.roll.jitter.ms",
    ),
)
