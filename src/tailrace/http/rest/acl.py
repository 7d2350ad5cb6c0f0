"""/api/v1/acls: who may do what (access control entries).

The words of an entry are those of `security.acl.text`. DESCRIBE on the cluster shows entries, ALTER changes
them. They count where security.authorizer is acl, and are kept all the same where it is not.
"""

from __future__ import annotations

import msgspec

from tailrace.http.error import Code
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.model.operation import Operation as AclOperation
from tailrace.security.acl.text import read_acl, read_filter, view_acl


class AclView(msgspec.Struct, frozen=True):
    """An access control entry."""

    id: str
    principal: str
    host: str
    operation: str
    permission: str  # allow or deny
    resource: str  # topic, group, cluster, transactional_id or subscription
    name: str
    pattern: str  # literal or prefixed


class AclList(msgspec.Struct, frozen=True):
    """Access control entries."""

    acls: list[AclView]


class NewAcl(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry that is to be created."""

    principal: str
    operation: str
    permission: str
    resource: str
    name: str | None = None  # the cluster needs none
    host: str = "*"
    pattern: str = "literal"


class NewAcls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entries that are to be created, all or none."""

    acls: list[NewAcl]


class AclQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What entries must have; what is left out may be anything."""

    principal: str | None = None
    host: str | None = None
    operation: str | None = None
    permission: str | None = None
    resource: str | None = None
    name: str | None = None
    pattern: str | None = None


async def list_acls(call: Call[AclQuery, NoBody]) -> AclList:
    acls = call.access.acls(AclOperation.DESCRIBE)
    found = acls.matching(read_filter(_given(call.query)))
    return AclList([AclView(**view_acl(key, each)) for key, each in found.items()])


async def create_acls(call: Call[NoQuery, NewAcls]) -> AclList:
    acls = call.access.acls(AclOperation.ALTER)
    wanted = [read_acl(_given(each)) for each in call.body.acls]
    added = await call.service.in_time(acls.add(wanted))
    return AclList([AclView(**view_acl(key, each)) for key, each in added.items()])


async def delete_acl(call: Call[NoQuery, NoBody]) -> None:
    acls = call.access.acls(AclOperation.ALTER)
    await call.service.in_time(acls.remove_by_id(call.params["acl"]))


def _given(struct: AclQuery | NewAcl) -> dict[str, str]:
    return {name: value for name, value in msgspec.structs.asdict(struct).items() if value is not None}


_FAILS = (Code.AUTHORIZATION_FAILED,)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/acls",
        name="listAcls",
        tag="acls",
        summary="Who may do what",
        doc="pattern=match lists the entries that match a resource of this name; any, literal and prefixed "
        "those with this very name.",
        handler=list_acls,
        query=AclQuery,
        answer=AclList,
        fails=_FAILS,
    ),
    Operation(
        method="POST",
        path="/api/v1/acls",
        name="createAcls",
        tag="acls",
        summary="Create access control entries, all or none",
        doc="An entry that exists is created once more with success.",
        handler=create_acls,
        answer=AclList,
        body=NewAcls,
        status=201,
        fails=_FAILS,
    ),
    Operation(
        method="DELETE",
        path="/api/v1/acls/{acl}",
        name="deleteAcl",
        tag="acls",
        summary="Remove an access control entry",
        doc="It has an effect on connections that are open.",
        handler=delete_acl,
        answer=None,
        status=204,
        fails=(*_FAILS, Code.ACL_NOT_FOUND),
    ),
)
