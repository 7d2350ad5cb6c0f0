"""Settings of groups (resource type 32): changed in both ways and described, in a broker in memory."""

from __future__ import annotations

import pytest

from tailrace.broker import group_settings
from tailrace.broker.configs import ConfigSource
from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from tailrace.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tailrace.wire.kafka.messages.incremental_alter_configs import AlterableConfig as Change
from tailrace.wire.kafka.messages.incremental_alter_configs import (
    AlterConfigsResource as ChangedResource,
)
from tailrace.wire.kafka.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from .stage import Stage, play, versions

GROUP = 32
SET, DELETE, APPEND = range(3)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


async def change(
    stage: Stage,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int | None = None,
) -> int:
    configs = [Change(name=key, config_operation=what, value=value) for key, what, value in changes]
    resource = ChangedResource(resource_type=GROUP, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = await stage.ask(request, IncrementalAlterConfigsResponse, version=version)
    (response,) = answer.responses
    assert (response.resource_type, response.resource_name) == (GROUP, name)
    return response.error_code


async def describe(stage: Stage, name: str, *, version: int | None = None) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = (await stage.ask(request, DescribeConfigsResponse, version=version)).results
    return result


def told(result: DescribeConfigsResult) -> dict[str, tuple[str | None, int]]:
    assert result.error_code == 0
    return {each.name: (each.value, each.config_source) for each in result.configs}


@pytest.mark.parametrize("version", versions(44))
def test_a_group_has_the_settings_that_it_was_given(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        assert await change(stage, "billing", (SESSION, SET, "50000"), version=version) == 0
        assert await change(stage, "billing", (HEARTBEAT, SET, "6000"), version=version) == 0
        assert told(await describe(stage, "billing")) == {
            SESSION: ("50000", ConfigSource.GROUP),
            HEARTBEAT: ("6000", ConfigSource.GROUP),
        }
        assert await change(stage, "billing", (SESSION, DELETE, None), version=version) == 0
        assert dict(stage.broker.group_settings) == {"billing": {HEARTBEAT: "6000"}}
        assert await change(stage, "billing", (HEARTBEAT, DELETE, None), version=version) == 0
        assert dict(stage.broker.group_settings) == {}

    play(scenario)


@pytest.mark.parametrize("version", versions(32))
def test_a_group_without_settings_has_the_defaults(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        result = await describe(stage, "billing", version=version)
        assert told(result) == {
            SESSION: ("45000", ConfigSource.DEFAULT),
            HEARTBEAT: ("5000", ConfigSource.DEFAULT),
        }
        assert not any(each.read_only or each.is_sensitive for each in result.configs)

    play(scenario)


def test_the_description_names_the_default_and_that_there_is_no_effect() -> None:
    async def scenario(stage: Stage) -> None:
        await change(stage, "billing", (SESSION, SET, "50000"))
        (session,) = [each for each in (await describe(stage, "billing")).configs if each.name == SESSION]
        assert [(each.value, each.source) for each in session.synonyms] == [
            ("50000", ConfigSource.GROUP),
            ("45000", ConfigSource.DEFAULT),
        ]
        assert "without effect" in (session.documentation or "")

    play(scenario)


@pytest.mark.parametrize("version", versions(33))
def test_alter_configs_replaces_all_settings_of_a_group(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        await change(stage, "billing", (SESSION, SET, "50000"))
        configs = [AlterableConfig(name=HEARTBEAT, value="6000")]
        resource = AlterConfigsResource(resource_type=GROUP, resource_name="billing", configs=configs)
        request = AlterConfigsRequest(resources=[resource])
        (response,) = (await stage.ask(request, AlterConfigsResponse, version=version)).responses
        assert response.error_code == 0
        assert dict(stage.broker.group_settings) == {"billing": {HEARTBEAT: "6000"}}

    play(scenario)


@pytest.mark.parametrize(
    ("name", "operation", "value", "code"),
    [
        (SESSION, SET, "44999", ErrorCode.INVALID_CONFIG),
        (SESSION, SET, "60001", ErrorCode.INVALID_CONFIG),
        (HEARTBEAT, SET, "4999", ErrorCode.INVALID_CONFIG),
        (HEARTBEAT, SET, "15001", ErrorCode.INVALID_CONFIG),
        (HEARTBEAT, SET, "often", ErrorCode.INVALID_CONFIG),
        ("share.auto.offset.reset", SET, "earliest", ErrorCode.INVALID_CONFIG),
        ("share.auto.offset.reset", DELETE, None, ErrorCode.INVALID_CONFIG),
        (SESSION, SET, None, ErrorCode.INVALID_REQUEST),
        (SESSION, APPEND, "50000", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_kafka_does_not_accept_is_refused(
    name: str, operation: int, value: str | None, code: ErrorCode
) -> None:
    async def scenario(stage: Stage) -> None:
        assert await change(stage, "billing", (name, operation, value)) == code
        assert dict(stage.broker.group_settings) == {}

    play(scenario)


def test_a_group_without_a_name_has_no_settings() -> None:
    async def scenario(stage: Stage) -> None:
        assert await change(stage, "", (SESSION, SET, "50000")) == ErrorCode.INVALID_REQUEST
        assert (await describe(stage, "")).error_code == ErrorCode.INVALID_REQUEST

    play(scenario)


def test_validate_only_changes_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        assert await change(stage, "billing", (SESSION, SET, "50000"), validate_only=True) == 0
        assert dict(stage.broker.group_settings) == {}

    play(scenario)


def test_names_and_number_of_groups_with_settings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_settings, "_GROUPS_MAX", 2)

    async def scenario(stage: Stage) -> None:
        assert await change(stage, "x" * 1001, (SESSION, SET, "50000")) == ErrorCode.INVALID_REQUEST
        for name in ("a", "b"):
            assert await change(stage, name, (SESSION, SET, "50000")) == 0
        assert await change(stage, "c", (SESSION, SET, "50000")) == ErrorCode.POLICY_VIOLATION
        assert await change(stage, "b", (SESSION, SET, "51000")) == 0
        assert await change(stage, "a", (SESSION, DELETE, None)) == 0
        assert await change(stage, "c", (SESSION, SET, "50000")) == 0

    play(scenario)
