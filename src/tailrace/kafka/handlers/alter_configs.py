"""AlterConfigs: the whole new set of overrides of a topic or group.

What is not named goes back to its default.

Versions differ in nothing but their encoding. Of a node those settings can be
changed that it need not read at its start; they are kept.
"""

from __future__ import annotations

from collections import Counter

from tailrace.broker.configs import ConfigChange
from tailrace.kafka.call import Call
from tailrace.kafka.resources import ConfigResource, alter
from tailrace.wire.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

KEY = 33


async def handle(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    named = Counter(map(_resource, request.resources))
    responses = []
    for asked in request.resources:
        code, message = await alter(
            call,
            _resource(asked),
            [ConfigChange(config.name, config.value) for config in asked.configs],
            named=named,
            replace=True,
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
    return AlterConfigsResponse(responses=responses)


def _resource(asked: AlterConfigsResource) -> ConfigResource:
    return ConfigResource(asked.resource_type, asked.resource_name)
