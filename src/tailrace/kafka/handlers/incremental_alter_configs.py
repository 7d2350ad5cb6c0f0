"""IncrementalAlterConfigs: settings of topics, groups and nodes are changed one by one (KIP-339).

Versions differ in nothing but their encoding. Of a node those settings can be
changed that it need not read at its start; they are kept.
"""

from __future__ import annotations

from collections import Counter

from tailrace.broker.configs import ConfigChange
from tailrace.kafka.call import Call
from tailrace.kafka.resources import ConfigResource, alter
from tailrace.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

KEY = 44


async def handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    named = Counter(map(_resource, request.resources))
    responses = []
    for asked in request.resources:
        code, message = await alter(
            call,
            _resource(asked),
            [ConfigChange(config.name, config.value, config.config_operation) for config in asked.configs],
            named=named,
            replace=False,
            validate_only=request.validate_only,
        )
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


def _resource(asked: AlterConfigsResource) -> ConfigResource:
    return ConfigResource(asked.resource_type, asked.resource_name)
