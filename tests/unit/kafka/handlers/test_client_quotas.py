"""DescribeClientQuotas and AlterClientQuotas: what is set is found, what is wrong is answered by entity."""

from __future__ import annotations

import pytest
from tests.unit.kafka.handlers.stage import Stage, play

from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.kafka.messages import alter_client_quotas as alter
from tailrace.wire.kafka.messages import describe_client_quotas as describe

Names = dict[str, str | None]


def entry(names: Names, **values: float | None) -> alter.EntryData:
    ops = [alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    entity = [alter.EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()]
    return alter.EntryData(entity=entity, ops=ops)


async def change(
    stage: Stage, *entries: alter.EntryData, validate_only: bool = False, version: int = 1
) -> list[ErrorCode]:
    request = alter.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = await stage.ask(request, alter.AlterClientQuotasResponse, version=version)
    named = [[(each.entity_type, each.entity_name) for each in one.entity] for one in answer.entries]
    assert named == [[(each.entity_type, each.entity_name) for each in one.entity] for one in entries]
    assert all(bool(each.error_message) is bool(each.error_code) for each in answer.entries)
    return [ErrorCode(each.error_code) for each in answer.entries]


async def find(
    stage: Stage, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> list[tuple[Names, dict[str, float]]]:
    wanted = [
        describe.ComponentData(entity_type=kind, match_type=match_type, match=match)
        for kind, match_type, match in components
    ]
    request = describe.DescribeClientQuotasRequest(components=wanted, strict=strict)
    answer = await stage.ask(request, describe.DescribeClientQuotasResponse, version=version)
    return [
        (
            {each.entity_type: each.entity_name for each in one.entity},
            {each.key: each.value for each in one.values},
        )
        for one in answer.entries or []
    ]


ALICE: Names = {"user": "alice"}
ALICE_ETL: Names = {"user": "alice", "client-id": "etl"}
ANYONE: Names = {"user": None}
ADDRESS: Names = {"ip": "10.0.0.7"}


@pytest.mark.parametrize("version", [0, 1])
def test_what_is_set_is_found_and_removed(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        assert await change(
            stage,
            entry(ALICE, producer_byte_rate=1e6, request_percentage=12.5),
            entry(ADDRESS, connection_creation_rate=5),
            version=version,
        ) == [0, 0]
        assert await find(stage, version=version) == [
            (ADDRESS, {"connection_creation_rate": 5.0}),
            (ALICE, {"producer_byte_rate": 1e6, "request_percentage": 12.5}),
        ]
        assert await change(stage, entry(ALICE, producer_byte_rate=None, request_percentage=None)) == [0]
        assert await find(stage) == [(ADDRESS, {"connection_creation_rate": 5.0})]

    play(scenario)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, [ADDRESS, ANYONE, ALICE, ALICE_ETL]),
        ([], True, []),
        ([("user", 0, "alice")], False, [ALICE, ALICE_ETL]),
        ([("user", 0, "alice")], True, [ALICE]),
        ([("user", 1, None)], False, [ANYONE]),
        ([("user", 2, None)], True, [ANYONE, ALICE]),
        ([("user", 2, None), ("client-id", 2, None)], True, [ALICE_ETL]),
        ([("client-id", 2, None)], True, []),
        ([("ip", 2, None)], True, [ADDRESS]),
        ([("user", 0, "bob")], False, []),
    ],
)
def test_entities_are_found_by_their_components(
    components: list[tuple[str, int, str | None]], strict: bool, found: list[Names]
) -> None:
    async def scenario(stage: Stage) -> None:
        clients = [entry(each, producer_byte_rate=10) for each in (ALICE, ALICE_ETL, ANYONE)]
        await change(stage, *clients, entry(ADDRESS, connection_creation_rate=5))
        names = [each for each, _ in await find(stage, *components, strict=strict)]
        assert sorted(names, key=str) == sorted(found, key=str)

    play(scenario)


@pytest.mark.parametrize(
    "component",
    [
        ("group", 0, "a"),
        ("user", 3, None),
        ("user", -1, None),
        ("user", 0, None),
        ("user", 1, "a"),
        ("user", 2, "a"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(component: tuple[str, int, str | None]) -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(BrokerError) as caught:
            await find(stage, component)
        assert caught.value.code == ErrorCode.INVALID_REQUEST
        with pytest.raises(BrokerError, match="asked for twice"):
            await find(stage, ("user", 2, None), ("user", 2, None))

    play(scenario)


def test_one_entity_in_error_leaves_the_others_alone() -> None:
    async def scenario(stage: Stage) -> None:
        wrong = ErrorCode.INVALID_REQUEST
        twice = entry({"client-id": "x"}, producer_byte_rate=1)
        same_type = alter.EntryData(
            entity=[alter.EntityData(entity_type="user", entity_name=each) for each in "ab"]
        )
        same_key = entry({"user": "k"})
        same_key.ops = [alter.OpData(key="producer_byte_rate", value=each) for each in (1.0, 2.0)]
        assert await change(
            stage,
            entry(ALICE, producer_byte_rate=1),
            entry({"user": "z"}, unknown=1),
            entry({}, producer_byte_rate=1),
            twice,
            twice,
            same_type,
            same_key,
        ) == [0, wrong, wrong, wrong, wrong, wrong, wrong]
        assert [each for each, _ in await find(stage)] == [ALICE]

    play(scenario)


def test_a_change_may_be_validated_only() -> None:
    async def scenario(stage: Stage) -> None:
        assert await change(stage, entry(ALICE, producer_byte_rate=1), validate_only=True) == [0]
        assert await change(stage, entry(ALICE, producer_byte_rate=-1), validate_only=True) == [42]
        assert await find(stage) == []

    play(scenario)
