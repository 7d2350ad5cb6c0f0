"""AlterConfigs, in every version, against a broker in memory: the new set replaces the old one."""

from __future__ import annotations

import pytest

from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

from .stage import Stage, play, versions

KEY = 33
TOPIC = 2
BROKER = 4


def resource(name: str, *configs: tuple[str, str | None], resource_type: int = TOPIC) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in configs],
    )


async def alter(
    stage: Stage,
    *resources: AlterConfigsResource,
    validate_only: bool = False,
    version: int | None = None,
) -> list[AlterConfigsResourceResponse]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return (await stage.ask(request, AlterConfigsResponse, version=version)).responses


@pytest.mark.parametrize("version", versions(KEY))
def test_the_new_set_replaces_the_old_one(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", retention_ms="1000", segment_ms="2000")
        (response,) = await alter(stage, resource("orders", ("retention.ms", "5")), version=version)
        assert (response.error_code, response.error_message) == (0, None)
        assert (response.resource_type, response.resource_name) == (TOPIC, "orders")
        assert dict(topic.configs) == {"retention.ms": "5"}
        assert topic.partitions[0].settings.log.retention_ms == 5

    play(scenario)


def test_an_empty_set_goes_back_to_the_defaults() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", retention_ms="1000")
        await alter(stage, resource("orders"))
        assert dict(topic.configs) == {}

    play(scenario)


def test_validate_only_changes_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("orders", retention_ms="1000")
        await stage.topic("other")
        good, bad = await alter(
            stage,
            resource("orders", ("retention.ms", "5")),
            resource("other", ("retention.ms", "x")),
            validate_only=True,
        )
        assert (good.error_code, bad.error_code) == (0, ErrorCode.INVALID_CONFIG)
        assert dict(topic.configs) == {"retention.ms": "1000"}

    play(scenario)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (resource("orders", ("retention.ms", "soon")), ErrorCode.INVALID_CONFIG),
        (resource("orders", ("retention.msec", "5")), ErrorCode.INVALID_CONFIG),
        (resource("orders", ("retention.ms", None)), ErrorCode.INVALID_REQUEST),
        (resource("orders", ("retention.ms", "5"), ("retention.ms", "6")), ErrorCode.INVALID_REQUEST),
        (resource("nobody", ("retention.ms", "5")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (resource("no/slash", ("retention.ms", "5")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (resource("1", ("num.partitions", "5"), resource_type=BROKER), ErrorCode.INVALID_CONFIG),
        (resource("", ("num.partitions", "5"), resource_type=BROKER), ErrorCode.INVALID_CONFIG),
        (resource("1", ("no.such", "5"), resource_type=BROKER), ErrorCode.INVALID_CONFIG),
        (resource("2", ("num.partitions", "5"), resource_type=BROKER), ErrorCode.INVALID_REQUEST),
        (resource("orders", resource_type=8), ErrorCode.INVALID_REQUEST),
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


def test_no_change_of_the_node_is_no_error() -> None:
    async def scenario(stage: Stage) -> None:
        (response,) = await alter(stage, resource("1", resource_type=BROKER))
        assert response.error_code == 0

    play(scenario)


def test_a_resource_that_comes_twice_is_refused_in_both_places_and_the_others_change() -> None:
    async def scenario(stage: Stage) -> None:
        twin, single = await stage.topic("twin"), await stage.topic("single")
        responses = await alter(
            stage,
            resource("twin", ("retention.ms", "5")),
            resource("single", ("retention.ms", "6")),
            resource("twin", ("retention.ms", "7")),
        )
        assert [response.error_code for response in responses] == [
            ErrorCode.INVALID_REQUEST,
            0,
            ErrorCode.INVALID_REQUEST,
        ]
        assert dict(twin.configs) == {}
        assert dict(single.configs) == {"retention.ms": "6"}

    play(scenario)


@pytest.mark.parametrize("version", versions(KEY))
def test_the_longest_words_there_can_be_are_answered_in_few(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        long = "\0" * 32_767
        responses = await alter(
            stage,
            resource("orders", ("retention.ms", long)),
            resource(long, ("retention.ms", "5")),
            resource("1", (long, long), resource_type=BROKER),
            version=version,
        )
        assert all(response.error_code for response in responses)
        assert all(len(response.error_message or "") < 2_000 for response in responses)

    play(scenario)
