"""DeleteAcls: removes the access control entries that match filters (KIP-140). It needs ALTER on the cluster.

v1  patterns (KIP-290); the first version served
v2  flexible
v3  users as resources, of which there are none here

Each filter has its own answer, with the entries that it removed. The first filter that means an entry has it.
"""

from __future__ import annotations

from tailrace.kafka.acl import operation_number, read_filter
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model.operation import Operation
from tailrace.security.acl import AclBinding
from tailrace.wire.kafka.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

KEY = 31


async def handle(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    try:
        call.access.acls(Operation.ALTER)
    except ANSWERABLE as error:
        return DeleteAclsResponse(filter_results=[_failure(error) for _ in request.filters])
    return DeleteAclsResponse(filter_results=[await _remove(call, each) for each in request.filters])


async def _remove(call: Call, asked: DeleteAclsFilter) -> DeleteAclsFilterResult:
    try:
        removed = await call.access.acls(Operation.ALTER).remove([read_filter(asked)])
    except ANSWERABLE as error:
        return _failure(error)
    return DeleteAclsFilterResult(
        error_message=None, matching_acls=[_matching(each) for each in removed.values()]
    )


def _matching(binding: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=binding.kind,
        resource_name=binding.name,
        pattern_type=binding.pattern,
        principal=binding.principal,
        host=binding.host,
        operation=operation_number(binding),
        permission_type=binding.permission,
    )


def _failure(error: Exception) -> DeleteAclsFilterResult:
    code, message = error_of(error)
    return DeleteAclsFilterResult(error_code=code, error_message=message)
