"""ListGroups: the groups that this node coordinates.

v4  only those in the given states, if any are given; the state of each (KIP-518)
v5  only those of the given types, if any are given; the type of each (KIP-848): all are classic
"""

from __future__ import annotations

from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

KEY = 16

_CLASSIC = "classic"


def handle(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    if request.types_filter and _CLASSIC not in map(str.casefold, request.types_filter):
        return ListGroupsResponse()
    try:
        groups = call.access.groups(Operation.DESCRIBE, states=request.states_filter)
    except ANSWERABLE as error:
        code, _ = error_of(error)
        return ListGroupsResponse(error_code=code)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=_CLASSIC,
            )
            for group in groups
        ]
    )
