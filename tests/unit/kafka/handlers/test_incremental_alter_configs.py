"""IncrementalAlterConfigs, in every version, against a broker in memory: what is not named stays."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from .stage import Stage, play, versions

KEY = 44
TOPIC = 2
BROKER = 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(
    name: str, *configs: tuple[str, int, str | None], resource_type: int = TOPIC
) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ],
    )


async def alter(
    stage: Stage,
    *resources: AlterConfigsResource,
    validate_only: bool = False,
    version: int | None = None,
) -> list[AlterConfigsResourceResponse]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return (await stage.ask(request, IncrementalAlterConfigsResponse, version=version)).responses


@pytest.mark.parametrize("version", versions(KEY))
def test_what_is_named_changes_and_the_rest_stays(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", retention_ms="1000", segment_ms="2000", flush_ms="5")
        (response,) = await alter(
            stage,
            resource(
                "orders",
                ("retention.ms", SET, "5"),
                ("flush.ms", DELETE, None),
                ("cleanup.policy", APPEND, "compact"),
            ),
            version=version,
        )
        assert (response.error_code, response.error_message) == (0, None)
        assert (response.resource_type, response.resource_name) == (TOPIC, "orders")
        assert dict(topic.configs) == {
            "retention.ms": "5",
            "segment.ms": "2000",
            "cleanup.policy": "delete,compact",
        }
        assert topic.partitions[0].settings.compact

    play(scenario)


def test_validate_only_changes_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        (response,) = await alter(stage, resource("orders", ("retention.ms", SET, "5")), validate_only=True)
        assert response.error_code == 0
        assert dict(topic.configs) == {}

    play(scenario)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (resource("orders", ("retention.ms", SET, "soon")), ErrorCode.INVALID_CONFIG),
        (resource("orders", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
        (resource("orders", ("retention.ms", APPEND, "5")), ErrorCode.INVALID_REQUEST),
        (resource("orders", ("retention.ms", 4, "5")), ErrorCode.INVALID_REQUEST),
        (resource("orders", ("no.such", SET, "5")), ErrorCode.INVALID_CONFIG),
        (resource("orders", ("no.such", DELETE, None)), ErrorCode.INVALID_CONFIG),
        (resource("orders", ("cleanup.policy", APPEND, "shrink")), ErrorCode.INVALID_CONFIG),
        (resource("nobody", ("retention.ms", SET, "5")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource("1", ("fsync", SET, "os"), resource_type=BROKER), ErrorCode.INVALID_CONFIG),
        (resource("9", ("fsync", SET, "os"), resource_type=BROKER), ErrorCode.INVALID_REQUEST),
        (resource("orders", ("retention.ms", SET, "5"), resource_type=3), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(changed: AlterConfigsResource, code: ErrorCode) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", segment_ms="2000")
        (response,) = await alter(stage, changed)
        assert response.error_code == code
        assert response.error_message
        assert dict(topic.configs) == {"segment.ms": "2000"}

    play(scenario)


def test_a_resource_that_comes_twice_is_refused_in_both_places() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        responses = await alter(
            stage, resource("orders", ("retention.ms", SET, "5")), resource("orders", ("flush.ms", SET, "6"))
        )
        assert [response.error_code for response in responses] == [ErrorCode.INVALID_REQUEST] * 2
        assert dict(topic.configs) == {}

    play(scenario)


def test_changes_of_two_clients_at_once_are_both_kept() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        await asyncio.gather(
            alter(stage, resource("orders", ("retention.ms", SET, "5"))),
            alter(stage, resource("orders", ("segment.ms", SET, "6"))),
        )
        assert dict(topic.configs) == {"retention.ms": "5", "segment.ms": "6"}

    play(scenario)


def test_settings_of_a_node_change_at_once_for_topics_without_their_own() -> None:
    async def scenario(stage: Stage) -> None:
        plain, own = await stage.topic("plain"), await stage.topic("own", retention_ms="7")
        (response,) = await alter(stage, resource("1", ("log.retention.ms", SET, "5"), resource_type=BROKER))
        assert (response.error_code, response.error_message) == (0, None)
        assert plain.settings.log.retention_ms == plain.partitions[0].settings.log.retention_ms == 5
        assert own.settings.log.retention_ms == 7
        assert (await stage.topic("later")).settings.log.retention_ms == 5
        await alter(stage, resource("", ("log.retention.ms", SET, "6"), resource_type=BROKER))
        assert plain.settings.log.retention_ms == 5  # the node's own setting wins over that of all nodes
        await alter(stage, resource("1", ("log.retention.ms", DELETE, None), resource_type=BROKER))
        assert plain.settings.log.retention_ms == 6

    play(scenario)


@pytest.mark.parametrize("name", ["1", ""])
def test_a_change_of_a_node_that_is_only_tried_changes_nothing(name: str) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders")
        before = topic.settings
        changed = resource(name, ("log.retention.ms", SET, "5"), resource_type=BROKER)
        (response,) = await alter(stage, changed, validate_only=True)
        assert response.error_code == 0
        assert topic.settings == before and not stage.broker.cluster.settings.get("log.retention.ms")

    play(scenario)
