"""DescribeAcls: the access control entries that match a filter (KIP-140). It needs DESCRIBE on the cluster.

v1  patterns (KIP-290); the first version served
v2  flexible
v3  users as resources, of which there are none here

Where access is not controlled the entries are told all the same: they are kept until it is.
"""

from __future__ import annotations

from tailrace.kafka.acl import operation_number, read_filter
from tailrace.kafka.call import Call
from tailrace.model.operation import Operation, ResourceKind
from tailrace.security.acl import Pattern
from tailrace.wire.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

KEY = 29


def handle(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    acls = call.access.acls(Operation.DESCRIBE)
    resources: dict[tuple[ResourceKind, Pattern, str], DescribeAclsResource] = {}
    for each in acls.matching(read_filter(request)).values():
        resource = resources.setdefault(
            (each.kind, each.pattern, each.name),
            DescribeAclsResource(
                resource_type=each.kind, resource_name=each.name, pattern_type=each.pattern, acls=[]
            ),
        )
        resource.acls.append(
            AclDescription(
                principal=each.principal,
                host=each.host,
                operation=operation_number(each),
                permission_type=each.permission,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
