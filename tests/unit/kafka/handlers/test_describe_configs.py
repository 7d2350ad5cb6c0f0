"""DescribeConfigs of topics and of the node, in every version, against a broker in memory."""

from __future__ import annotations

import pytest

from tailrace.broker.configs import BROKER_CONFIGS, TOPIC_CONFIGS
from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

from .stage import Stage, play, versions

KEY = 32
TOPIC = 2
BROKER = 4


async def describe(
    stage: Stage,
    resource_type: int,
    name: str,
    *,
    keys: list[str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
    version: int | None = None,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = (await stage.ask(request, DescribeConfigsResponse, version=version)).results
    assert (result.resource_type, result.resource_name) == (resource_type, name)
    return result


@pytest.mark.parametrize("version", versions(KEY))
def test_every_setting_of_a_topic_is_told_with_its_source(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders", retention_ms="1000")
        result = await describe(stage, TOPIC, "orders", version=version)
        assert (result.error_code, result.error_message) == (0, None)
        configs = {config.name: config for config in result.configs}
        assert set(configs) == set(TOPIC_CONFIGS)
        own, default = configs["retention.ms"], configs["segment.bytes"]
        assert (own.value, own.config_source, own.read_only, own.is_sensitive) == ("1000", 1, False, False)
        assert (default.value, default.config_source) == ("1073741824", 5)
        assert own.synonyms == [] and own.documentation is None
        assert own.config_type == (5 if version >= 3 else 0)

    play(scenario)


@pytest.mark.parametrize("version", versions(KEY))
def test_synonyms_are_told_if_asked_for(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders", retention_ms="1000")
        keys = ["retention.ms"]
        result = await describe(stage, TOPIC, "orders", keys=keys, synonyms=True, version=version)
        (config,) = result.configs
        assert [(each.name, each.value, each.source) for each in config.synonyms] == [
            ("retention.ms", "1000", 1),
            ("log.retention.ms", "2000", 4),
            ("log.retention.ms", "2678400000", 5),
        ]

    play(scenario, values={"log.retention.ms": "2000"})


@pytest.mark.parametrize("version", [3, 4])
def test_descriptions_are_told_if_asked_for(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        result = await describe(stage, TOPIC, "orders", documentation=True, version=version)
        assert all(config.documentation for config in result.configs)

    play(scenario)


def test_keys_choose_and_unknown_ones_are_left_out() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        result = await describe(stage, TOPIC, "orders", keys=["segment.ms", "no.such", "cleanup.policy"])
        assert result.error_code == 0
        assert [config.name for config in result.configs] == ["cleanup.policy", "segment.ms"]

    play(scenario)


def test_no_keys_are_no_settings() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        result = await describe(stage, TOPIC, "orders", keys=[])
        assert (result.error_code, result.configs) == (0, [])

    play(scenario)


@pytest.mark.parametrize("version", versions(KEY))
def test_every_setting_of_the_node_is_told(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        result = await describe(stage, BROKER, "1", version=version)
        assert result.error_code == 0
        configs = {config.name: config for config in result.configs}
        assert set(configs) == set(BROKER_CONFIGS)
        assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("7", 4)
        assert configs["num.partitions"].read_only
        assert (configs["fsync"].value, configs["fsync"].config_source) == ("commit", 5)

    play(scenario, values={"num.partitions": "7"})


def test_nobody_has_given_all_nodes_a_setting() -> None:
    async def scenario(stage: Stage) -> None:
        result = await describe(stage, BROKER, "")
        assert (result.error_code, result.configs) == (0, [])

    play(scenario)


@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no/slash", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (0, "orders", ErrorCode.INVALID_REQUEST),
        (-1, "orders", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_not_there_is_told_with_a_reason(resource_type: int, name: str, code: ErrorCode) -> None:
    async def scenario(stage: Stage) -> None:
        result = await describe(stage, resource_type, name)
        assert result.error_code == code
        assert result.error_message
        assert result.configs == []

    play(scenario)


def test_every_resource_has_its_own_answer() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("orders")
        resources = [
            DescribeConfigsResource(resource_type=TOPIC, resource_name="nobody"),
            DescribeConfigsResource(resource_type=TOPIC, resource_name="orders"),
            DescribeConfigsResource(resource_type=BROKER, resource_name="1"),
        ]
        response = await stage.ask(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        assert [result.error_code for result in response.results] == [3, 0, 0]

    play(scenario)
