"""The table of APIs against the versions that were settled, written out once more, and its lazy modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tailrace.wire.kafka import APIS, FRAME_BYTES_MAX, request_type, response_type
from tailrace.wire.kafka.api import NEVER

# key: name, first version, last version, first flexible version
EXPECTED = {
    0: ("Produce", 3, 12, 9),
    1: ("Fetch", 4, 17, 12),
    2: ("ListOffsets", 1, 9, 6),
    3: ("Metadata", 0, 12, 9),
    8: ("OffsetCommit", 2, 9, 8),
    9: ("OffsetFetch", 1, 9, 6),
    10: ("FindCoordinator", 0, 6, 3),
    11: ("JoinGroup", 0, 9, 6),
    12: ("Heartbeat", 0, 4, 4),
    13: ("LeaveGroup", 0, 5, 4),
    14: ("SyncGroup", 0, 5, 4),
    15: ("DescribeGroups", 0, 5, 5),
    16: ("ListGroups", 0, 5, 3),
    17: ("SaslHandshake", 0, 1, NEVER),
    18: ("ApiVersions", 0, 4, 3),
    19: ("CreateTopics", 2, 7, 5),
    20: ("DeleteTopics", 1, 6, 4),
    21: ("DeleteRecords", 0, 2, 2),
    22: ("InitProducerId", 0, 6, 2),
    23: ("OffsetForLeaderEpoch", 2, 4, 4),
    24: ("AddPartitionsToTxn", 0, 3, 3),
    25: ("AddOffsetsToTxn", 0, 4, 3),
    26: ("EndTxn", 0, 5, 3),
    27: ("WriteTxnMarkers", 1, 1, 1),
    28: ("TxnOffsetCommit", 0, 5, 3),
    29: ("DescribeAcls", 1, 3, 2),
    30: ("CreateAcls", 1, 3, 2),
    31: ("DeleteAcls", 1, 3, 2),
    32: ("DescribeConfigs", 1, 4, 4),
    33: ("AlterConfigs", 0, 2, 2),
    34: ("AlterReplicaLogDirs", 1, 2, 2),
    35: ("DescribeLogDirs", 1, 4, 2),
    36: ("SaslAuthenticate", 0, 2, 2),
    37: ("CreatePartitions", 0, 3, 2),
    38: ("CreateDelegationToken", 1, 3, 2),
    39: ("RenewDelegationToken", 1, 2, 2),
    40: ("ExpireDelegationToken", 1, 2, 2),
    41: ("DescribeDelegationToken", 1, 3, 2),
    42: ("DeleteGroups", 0, 2, 2),
    43: ("ElectLeaders", 0, 2, 2),
    44: ("IncrementalAlterConfigs", 0, 1, 1),
    45: ("AlterPartitionReassignments", 0, 1, 0),
    46: ("ListPartitionReassignments", 0, 0, 0),
    47: ("OffsetDelete", 0, 0, NEVER),
    48: ("DescribeClientQuotas", 0, 1, 1),
    49: ("AlterClientQuotas", 0, 1, 1),
    50: ("DescribeUserScramCredentials", 0, 0, 0),
    51: ("AlterUserScramCredentials", 0, 0, 0),
    55: ("DescribeQuorum", 0, 2, 0),
    60: ("DescribeCluster", 0, 1, 0),
    61: ("DescribeProducers", 0, 0, 0),
    65: ("DescribeTransactions", 0, 0, 0),
    66: ("ListTransactions", 0, 1, 0),
    74: ("ListConfigResources", 0, 1, 0),
    75: ("DescribeTopicPartitions", 0, 0, 0),
}


def test_the_table_is_the_one_that_was_settled() -> None:
    table = {
        key: (api.name, api.min_version, api.max_version, api.flexible_from) for key, api in APIS.items()
    }
    assert table == EXPECTED
    assert all(key == api.key for key, api in APIS.items())


def test_only_produce_is_advertised_lower_than_it_is_served() -> None:
    lowered = {api.name: api.advertised_min for api in APIS.values() if api.advertised_min != api.min_version}
    assert lowered == {"Produce": 0}


def test_only_two_phase_commit_is_served_and_not_advertised() -> None:
    lowered = {api.name: api.advertised_max for api in APIS.values() if api.advertised_max != api.max_version}
    assert lowered == {"InitProducerId": 5}


def test_the_codec_knows_the_newer_versions_of_transactions() -> None:
    known = {api.name: api.known_max for api in APIS.values() if api.known_max != api.max_version}
    assert known == {"AddPartitionsToTxn": 5}


def test_only_produce_may_fill_a_whole_frame() -> None:
    assert APIS[0].request_bytes_max == FRAME_BYTES_MAX == 100 * 2**20
    long = {api.name for api in APIS.values() if api.request_bytes_max == 16 * 2**20}
    assert long == {"Fetch", "OffsetCommit", "OffsetFetch", "JoinGroup", "SyncGroup"}
    assert {api.request_bytes_max for key, api in APIS.items() if key and api.name not in long} == {2 * 2**20}


@pytest.mark.parametrize("key", [key for key in EXPECTED if key > 1])
def test_every_compiled_api_has_its_classes(key: int) -> None:
    assert request_type(key).__name__ == EXPECTED[key][0] + "Request"
    assert response_type(key).__name__ == EXPECTED[key][0] + "Response"


@pytest.mark.parametrize("key", [0, 1, 4, 5, 68, -1])
def test_an_api_without_classes_is_a_key_error(key: int) -> None:
    with pytest.raises(KeyError):
        request_type(key)
    with pytest.raises(KeyError):
        response_type(key)


def test_importing_the_codec_loads_no_message_module() -> None:
    script = "import sys, tailrace.wire.kafka; print(*(name for name in sys.modules if '.messages' in name))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert loaded.stdout.strip() == ""
