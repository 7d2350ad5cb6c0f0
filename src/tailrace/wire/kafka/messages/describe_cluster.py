"""DescribeCluster (API 60), versions 0-1.

The cluster id, the controller and the brokers (KIP-700). From version 1 on a client says whether it asks for
brokers (1) or controllers (2).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[Int8, "1+"] = 1


class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, "1+"] = 1
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -(2**31)


class DescribeClusterBroker(Message):
    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
