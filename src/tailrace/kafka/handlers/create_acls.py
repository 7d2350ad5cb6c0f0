"""CreateAcls: new access control entries (KIP-140). It needs ALTER on the cluster.

v1  patterns (KIP-290); the first version served
v2  flexible
v3  users as resources, which are refused: there are no delegation tokens here

Each entry has its own answer. An entry that exists is created once more with success, as in Kafka. An entry
that could never matter is refused: an operation that its kind of resource does not have, a host that is no
address, a prefix that begins with `__`.
"""

from __future__ import annotations

from tailrace.kafka.acl import known, read_operation, read_pattern
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model.operation import Operation, ResourceKind
from tailrace.security.acl import AclBinding, Permission, check_binding
from tailrace.wire.kafka.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

KEY = 30


async def handle(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    results: list[AclCreationResult | None] = []
    bindings: list[AclBinding] = []
    try:
        acls = call.access.acls(Operation.ALTER)
    except ANSWERABLE as error:
        return CreateAclsResponse(results=[_failure(error) for _ in request.creations])
    for each in request.creations:
        try:
            bindings.append(_binding(each))
            results.append(None)
        except ANSWERABLE as error:
            results.append(_failure(error))
    stored = AclCreationResult(error_message=None)
    try:
        await acls.add(bindings)
    except ANSWERABLE as error:
        stored = _failure(error)
    return CreateAclsResponse(results=[stored if each is None else each for each in results])


def _binding(asked: AclCreation) -> AclBinding:
    """The entry; INVALID_REQUEST."""
    binding = AclBinding(
        principal=asked.principal,
        host=asked.host,
        operation=read_operation(asked.operation),
        permission=known(Permission, asked.permission_type, "permission type"),
        kind=known(ResourceKind, asked.resource_type, "resource type"),
        name=asked.resource_name,
        pattern=read_pattern(asked.resource_pattern_type),
    )
    check_binding(binding)
    return binding


def _failure(error: Exception) -> AclCreationResult:
    code, message = error_of(error)
    return AclCreationResult(error_code=code, error_message=message)
