"""ListConfigResources: what has settings, by type and name (KIP-1142).

v0  client metrics (type 16), of which there are none
v1  topics (2), nodes (4), loggers of nodes (8), client metrics and groups (32); no type means all of them

A type that does not exist is UNSUPPORTED_VERSION. Loggers and client metrics have no settings here. Of topics
and groups only those are told that the client may describe, and of groups only those with settings.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

KEY = 74

_TYPES = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)


def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    cluster = call.access.cluster(Operation.DESCRIBE_CONFIGS)
    types = [CLIENT_METRICS] if call.version == 0 else request.resource_types or _TYPES
    for each in types:
        if each not in _TYPES:
            raise BrokerError(f"there is no resource of type {each}", code=ErrorCode.UNSUPPORTED_VERSION)
    found = []
    if TOPIC in types:
        found += [ConfigResource(topic.name, TOPIC) for topic in call.access.topics(Operation.DESCRIBE)]
    if BROKER in types:
        found += [ConfigResource(str(node), BROKER) for node in sorted(cluster.nodes)]
    if GROUP in types:
        found += [ConfigResource(name, GROUP) for name in call.access.groups_with_settings()]
    return ListConfigResourcesResponse(config_resources=found)
