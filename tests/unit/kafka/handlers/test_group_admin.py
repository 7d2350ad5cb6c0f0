"""DescribeGroups, ListGroups, DeleteGroups, in every version, over a double of the coordinator."""

from __future__ import annotations

import pytest

from tailrace.broker.groups.api import GroupDescription, GroupListing, MemberDescription
from tailrace.model import ErrorCode
from tailrace.wire.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tailrace.wire.kafka.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tailrace.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse

from .coordinator import LOADING, cast
from .stage import Stage, play, versions


@pytest.mark.parametrize("version", versions(15))
def test_every_group_is_described_or_has_its_own_error(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        stable = GroupDescription(
            group_id="a",
            state="Stable",
            protocol_type="consumer",
            protocol_name="range",
            members=[MemberDescription("m", "i", "client", "/host", b"meta", b"share")],
        )
        cast(stage, {"a": stable, "b": LOADING, "c": GroupDescription(group_id="c", state="Dead")})
        request = DescribeGroupsRequest(groups=["a", "b", "c"])
        response = await stage.ask(request, DescribeGroupsResponse, version=version)
        first, second, third = response.groups
        assert (first.error_code, first.group_id, first.group_state) == (0, "a", "Stable")
        assert (first.protocol_type, first.protocol_data) == ("consumer", "range")
        (member,) = first.members
        assert (member.member_id, member.client_id, member.client_host) == ("m", "client", "/host")
        assert (member.member_metadata, member.member_assignment) == (b"meta", b"share")
        assert member.group_instance_id == ("i" if version >= 4 else None)
        assert (second.error_code, second.group_id, second.members) == (14, "b", [])
        assert (third.error_code, third.group_state, third.members) == (0, "Dead", [])
        assert first.authorized_operations == -(2**31)

    play(scenario)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_operations_on_a_group_are_told_if_asked_for(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, {"a": GroupDescription(group_id="a", state="Empty"), "b": LOADING})
        request = DescribeGroupsRequest(groups=["a", "b"], include_authorized_operations=True)
        response = await stage.ask(request, DescribeGroupsResponse, version=version)
        assert [group.authorized_operations for group in response.groups] == [0b1101_0100_1000, -(2**31)]

    play(scenario)


@pytest.mark.parametrize("version", versions(16))
def test_groups_are_listed(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, [GroupListing("a", "consumer", "Stable"), GroupListing("b", "", "Empty")])
        request = ListGroupsRequest(states_filter=["Stable", "Empty"] if version >= 4 else [])
        response = await stage.ask(request, ListGroupsResponse, version=version)
        assert groups.asked == [["Stable", "Empty"] if version >= 4 else []]
        assert response.error_code == 0
        assert [(group.group_id, group.protocol_type) for group in response.groups] == [
            ("a", "consumer"),
            ("b", ""),
        ]
        assert response.groups[0].group_state == ("Stable" if version >= 4 else "")
        assert response.groups[0].group_type == ("classic" if version >= 5 else "")

    play(scenario)


@pytest.mark.parametrize(
    ("types", "found"),
    [([], ["a"]), (["classic"], ["a"]), (["Consumer", "CLASSIC"], ["a"]), (["consumer"], []), (["x"], [])],
)
def test_groups_are_listed_by_type_and_all_are_classic(types: list[str], found: list[str]) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, [GroupListing("a", "consumer", "Stable")])
        response = await stage.ask(ListGroupsRequest(types_filter=types), ListGroupsResponse)
        assert [group.group_id for group in response.groups] == found

    play(scenario)


@pytest.mark.parametrize("version", versions(16))
def test_groups_that_are_still_loading_are_told_as_such(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        cast(stage, LOADING)
        response = await stage.ask(ListGroupsRequest(), ListGroupsResponse, version=version)
        assert (response.error_code, response.groups) == (14, [])

    play(scenario)


@pytest.mark.parametrize("version", versions(42))
def test_groups_are_deleted_with_an_answer_each_and_once(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        groups = cast(stage, {"a": ErrorCode.NONE, "b": ErrorCode.NON_EMPTY_GROUP})
        request = DeleteGroupsRequest(groups_names=["a", "b", "a"])
        response = await stage.ask(request, DeleteGroupsResponse, version=version)
        assert groups.asked == [["a"], ["b"]]
        assert [(result.group_id, result.error_code) for result in response.results] == [
            ("a", 0),
            ("b", ErrorCode.NON_EMPTY_GROUP),
        ]

    play(scenario)
