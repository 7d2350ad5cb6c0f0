"""DescribeGroups: the state, the members and the shares of groups.

v3  the operations that the client may perform on the group, if it asks
v4  instance ids of static members (KIP-345)

A group that nobody knows is Dead and without an error. Each group has its own error.
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import authorized_operations
from tailrace.model.operation import Operation, Resource, ResourceKind
from tailrace.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

KEY = 15


def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [_describe(call, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                resource = Resource(ResourceKind.GROUP, group.group_id)
                group.authorized_operations = authorized_operations(call.access, resource)
    return DescribeGroupsResponse(groups=groups)


def _describe(call: Call, group_id: str) -> DescribedGroup:
    try:
        group = call.access.group(group_id, Operation.DESCRIBE).describe()
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return DescribedGroup(error_code=code, group_id=group_id)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )
