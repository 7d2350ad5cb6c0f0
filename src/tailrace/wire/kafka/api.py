"""The table of the Kafka APIs: which versions are served and known, and where the flexible encoding begins.

The maxima are those of one release (Kafka 3.9), because some clients infer the release from a few of them;
the minimums are low. Produce 12, EndTxn 5 and TxnOffsetCommit 5 are of Kafka 4.0: together they are
transactions with an epoch each (KIP-890 part 2). ListConfigResources is of Kafka 4.1: clients ask for it only
when they need it. Every range is contiguous, since KafkaJS looks at maxima alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple

from tailrace.wire.kafka.schema import Message

FRAME_BYTES_MAX = 100 * 1024 * 1024  # upstream's socket.request.max.bytes
LISTS_BYTES_MAX = (
    16 * 1024 * 1024
)  # for one that may name every partition there is, or carry a group's shares
OTHER_BYTES_MAX = 2 * 1024 * 1024
NEVER = 0x7FFF  # flexible_from of an API that has no flexible version


class Api(NamedTuple):
    """One API. Served from min_version to max_version; ApiVersions says advertised_min and advertised_max.

    The two minimums differ for Produce alone: librdkafka before 2.11.1 stops compressing when 0 is not in its
    range. The maximums differ for InitProducerId alone: what version 6 adds is found by a feature, and
    clients that take the highest version there is have no use for it. The codec reads and writes up to
    known_max, which is higher where a client of ours may meet a newer broker, or where the listener does not
    serve a version yet.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    advertised_min: int
    known_max: int
    advertised_max: int

    @property
    def request_bytes_max(self) -> int:
        """The largest frame worth reading. Records apart, a request is lists of small structs, each of which
        costs many times its bytes in memory, and a time during which nobody else is served."""
        if self.key == PRODUCE:
            return FRAME_BYTES_MAX
        return LISTS_BYTES_MAX if self.key in _LONG else OTHER_BYTES_MAX

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def knows(self, version: int) -> bool:
        return self.min_version <= version <= self.known_max

    def flexible(self, version: int) -> bool:
        return version >= self.flexible_from


PRODUCE = 0
FETCH = 1
API_VERSIONS = 18
_LONG = frozenset((FETCH, 8, 9, 11, 14))  # and OffsetCommit, OffsetFetch, JoinGroup, SyncGroup

# key, name, first and last version, first flexible version. An API without a handler is not advertised.
_TABLE = (
    (0, "Produce", 3, 12, 9),
    (1, "Fetch", 4, 17, 12),
    (2, "ListOffsets", 1, 9, 6),
    (3, "Metadata", 0, 12, 9),
    (8, "OffsetCommit", 2, 9, 8),
    (9, "OffsetFetch", 1, 9, 6),
    (10, "FindCoordinator", 0, 6, 3),
    (11, "JoinGroup", 0, 9, 6),
    (12, "Heartbeat", 0, 4, 4),
    (13, "LeaveGroup", 0, 5, 4),
    (14, "SyncGroup", 0, 5, 4),
    (15, "DescribeGroups", 0, 5, 5),
    (16, "ListGroups", 0, 5, 3),
    (17, "SaslHandshake", 0, 1, NEVER),
    (18, "ApiVersions", 0, 4, 3),
    (19, "CreateTopics", 2, 7, 5),
    (20, "DeleteTopics", 1, 6, 4),
    (21, "DeleteRecords", 0, 2, 2),
    (22, "InitProducerId", 0, 6, 2),
    (23, "OffsetForLeaderEpoch", 2, 4, 4),
    (24, "AddPartitionsToTxn", 0, 3, 3),
    (25, "AddOffsetsToTxn", 0, 4, 3),
    (26, "EndTxn", 0, 5, 3),
    (27, "WriteTxnMarkers", 1, 1, 1),
    (28, "TxnOffsetCommit", 0, 5, 3),
    (29, "DescribeAcls", 1, 3, 2),
    (30, "CreateAcls", 1, 3, 2),
    (31, "DeleteAcls", 1, 3, 2),
    (32, "DescribeConfigs", 1, 4, 4),
    (33, "AlterConfigs", 0, 2, 2),
    (34, "AlterReplicaLogDirs", 1, 2, 2),
    (35, "DescribeLogDirs", 1, 4, 2),
    (36, "SaslAuthenticate", 0, 2, 2),
    (37, "CreatePartitions", 0, 3, 2),
    (38, "CreateDelegationToken", 1, 3, 2),
    (39, "RenewDelegationToken", 1, 2, 2),
    (40, "ExpireDelegationToken", 1, 2, 2),
    (41, "DescribeDelegationToken", 1, 3, 2),
    (42, "DeleteGroups", 0, 2, 2),
    (43, "ElectLeaders", 0, 2, 2),
    (44, "IncrementalAlterConfigs", 0, 1, 1),
    (45, "AlterPartitionReassignments", 0, 1, 0),
    (46, "ListPartitionReassignments", 0, 0, 0),
    (47, "OffsetDelete", 0, 0, NEVER),
    (48, "DescribeClientQuotas", 0, 1, 1),
    (49, "AlterClientQuotas", 0, 1, 1),
    (50, "DescribeUserScramCredentials", 0, 0, 0),
    (51, "AlterUserScramCredentials", 0, 0, 0),
    (55, "DescribeQuorum", 0, 2, 0),
    (60, "DescribeCluster", 0, 1, 0),
    (61, "DescribeProducers", 0, 0, 0),
    (65, "DescribeTransactions", 0, 0, 0),
    (66, "ListTransactions", 0, 1, 0),
    (74, "ListConfigResources", 0, 1, 0),
    (75, "DescribeTopicPartitions", 0, 0, 0),
)
_ADVERTISED_MIN = {PRODUCE: 0}
_ADVERTISED_MAX = {22: 5}
_KNOWN_MAX = {24: 5}


def _api(key: int, name: str, first: int, last: int, flexible_from: int) -> Api:
    advertised_min, known_max = _ADVERTISED_MIN.get(key, first), _KNOWN_MAX.get(key, last)
    return Api(
        key, name, first, last, flexible_from, advertised_min, known_max, _ADVERTISED_MAX.get(key, last)
    )


APIS: Mapping[int, Api] = MappingProxyType({row[0]: _api(*row) for row in _TABLE})


def request_type(key: int) -> type[Message]:
    """The class of an API's requests; its module is imported on first use.

    KeyError for an API that is not in the table, and for Produce and Fetch, which have functions of their
    own.
    """
    return _load(key, "Request")


def response_type(key: int) -> type[Message]:
    """The class of an API's responses; as `request_type`."""
    return _load(key, "Response")


def _load(key: int, direction: str) -> type[Message]:
    if key in (PRODUCE, FETCH):
        raise KeyError(key)
    name = APIS[key].name
    module = "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)[1:]
    loaded: type[Message] = getattr(import_module(f"tailrace.wire.kafka.messages.{module}"), name + direction)
    return loaded
