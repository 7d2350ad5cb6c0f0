"""What the owner of a node decided about the broker: the node's settings, read once.

`values` are texts under the node-wide names of `broker.configs` (`num.partitions`, `log.retention.ms`); what
is absent has the default that stands there. The broker goes by the typed fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.broker.configs import BROKER_CONFIGS, check_broker_configs
from tailrace.broker.groups import GroupConfig
from tailrace.broker.transactions.limits import TransactionConfig

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of a broker, in force for its whole life; `BrokerConfig.read` makes one."""

    values: Mapping[str, str]
    num_partitions: int
    replication_factor: int
    auto_create_topics: bool
    maintenance_interval_ms: int
    offsets_partitions: int
    partitions_total_max: int  # of all topics but internal ones
    transactions_partitions: int
    groups: GroupConfig
    transactions: TransactionConfig
    partitions_max: int = 10_000  # of one topic

    @classmethod
    def read(cls, values: Mapping[str, str] | None = None) -> BrokerConfig:
        """The settings that `values` make; INVALID_CONFIG for one that is unknown or wrong."""
        values = dict(values or {})
        check_broker_configs(values)

        def number(name: str) -> int:
            value = BROKER_CONFIGS[name].parse(values.get(name, BROKER_CONFIGS[name].default))
            assert isinstance(value, int)
            return value

        return cls(
            values=values,
            num_partitions=number("num.partitions"),
            replication_factor=number("default.replication.factor"),
            auto_create_topics=bool(number("auto.create.topics.enable")),
            maintenance_interval_ms=number("retention.check.interval.ms"),
            offsets_partitions=number("offsets.topic.num.partitions"),
            transactions_partitions=number("transaction.state.log.num.partitions"),
            partitions_total_max=number("max.partitions"),
            groups=GroupConfig(
                session_timeout_ms_min=number("group.min.session.timeout.ms"),
                session_timeout_ms_max=number("group.max.session.timeout.ms"),
                initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
                group_size_max=number("group.max.size"),
                offset_metadata_bytes_max=number("offset.metadata.max.bytes"),
                offsets_retention_ms=number("offsets.retention.minutes") * _MINUTE_MS,
            ),
            transactions=TransactionConfig(
                timeout_ms_max=number("transaction.max.timeout.ms"),
                expiration_ms=number("transactional.id.expiration.ms"),
                expiration_check_ms=number("transaction.remove.expired.transaction.cleanup.interval.ms"),
            ),
        )


def cleaner_backoff_ms(settings: Mapping[str, str]) -> int:
    """How long compaction waits before it looks for logs again; a client may change it at any time."""
    key = BROKER_CONFIGS["log.cleaner.backoff.ms"]
    value = key.parse(settings.get(key.name, key.default))
    assert isinstance(value, int)
    return value
