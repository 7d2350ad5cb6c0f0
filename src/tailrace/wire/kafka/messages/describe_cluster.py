"""DescribeCluster (API 60), version 0.

The cluster id, the controller and the brokers (KIP-700).
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Int32, Message


class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = False


class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -(2**31)


class DescribeClusterBroker(Message):
    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
