"""IncrementalAlterConfigs: settings of a topic are set, deleted, appended to, subtracted from (KIP-339).

Versions differ in nothing but their encoding. A setting of a node cannot be changed while it runs.
"""

from __future__ import annotations

from tailrace.broker.configs import ConfigChange
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import alter, invalid_request, repeated
from tailrace.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

KEY = 44


async def handle(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    twice = repeated((each.resource_type, each.resource_name) for each in request.resources)
    responses = []
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        responses.append(response)
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise invalid_request("the resource is named more than once")
            await _alter(call, resource, validate_only=request.validate_only)
        except ANSWERABLE as error:
            response.error_code, response.error_message = error_of(error)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(call: Call, resource: AlterConfigsResource, *, validate_only: bool) -> None:
    await alter(
        call,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        changes=[
            ConfigChange(config.name, config.value, config.config_operation) for config in resource.configs
        ],
        replace=False,
        validate_only=validate_only,
    )
