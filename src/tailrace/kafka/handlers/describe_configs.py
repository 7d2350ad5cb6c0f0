"""DescribeConfigs: every setting of topics, groups and this node, with its value and where that comes from.

v1  sources and, if asked for, all the places that a value could come from
v3  types and, if asked for, descriptions (KIP-569)

Null keys are all settings, an empty list is none. Of all nodes at once (a node without a name) only the
settings are told that clients gave them.
"""

from __future__ import annotations

from tailrace.broker.configs import (
    ConfigEntry,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
)
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import ALL_BROKERS, BROKER, GROUP, TOPIC, check_node, invalid_request
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

KEY = 32


def handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        results.append(result)
        try:
            entries = _entries(call, resource)
        except ANSWERABLE as error:
            result.error_code, result.error_message = error_of(error)
            continue
        keys = resource.configuration_keys
        result.configs = [_config(entry, request) for entry in entries if keys is None or entry.name in keys]
    return DescribeConfigsResponse(results=results)


def _entries(call: Call, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    access = call.access
    if resource.resource_type == TOPIC:
        topic = access.topic(resource.resource_name, Operation.DESCRIBE_CONFIGS)
        return describe_topic(topic.configs, access.topic_defaults)
    if resource.resource_type == BROKER:
        cluster = access.cluster(Operation.DESCRIBE_CONFIGS)
        check_node(cluster, resource.resource_name)
        if resource.resource_name == ALL_BROKERS:
            return describe_all_brokers(cluster.settings)
        return describe_broker(cluster.settings)
    if resource.resource_type == GROUP:
        return describe_group(access.group_settings(resource.resource_name))
    raise invalid_request(f"resources of type {resource.resource_type} have no settings here")


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(
                name=synonym.name,
                value=None if entry.sensitive else synonym.value,
                source=synonym.source,
            )
            for synonym in entry.synonyms
        ]
    if request.include_documentation:
        result.documentation = entry.doc
    return result
