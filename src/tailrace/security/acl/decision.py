"""May a principal at a host do this to a resource? Pure, and the only place where entries are weighed.

As Kafka's StandardAuthorizer: one entry that denies is enough, else one that allows, else it is denied. READ,
WRITE, DELETE and ALTER allow DESCRIBE too, and ALTER_CONFIGS allows DESCRIBE_CONFIGS; a denied READ denies no
DESCRIBE. An idempotent producer needs IDEMPOTENT_WRITE on the cluster, or WRITE on some topic (KIP-679).
"""

from __future__ import annotations

from tailrace.model.operation import IMPLIED_BY, Operation, Resource, ResourceKind
from tailrace.security.acl.binding import EVERYWHERE, AclBinding, Pattern, Permission, plain_host
from tailrace.security.acl.index import AclIndex


def decide(index: AclIndex, *, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
    """Whether the entries allow it; `host` is the address of the client, "" in this process."""
    host = plain_host(host)
    if _weigh(index, principal, host, operation, resource):
        return True
    if operation is Operation.IDEMPOTENT_WRITE:
        return _may_somewhere(index, principal, host, Operation.WRITE, ResourceKind.TOPIC)
    return False


def _weigh(index: AclIndex, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
    allowed = False
    for entry in index.matching(resource.kind, resource.name, principal):
        if entry.host not in (EVERYWHERE, host):
            continue
        if entry.permission is Permission.DENY:
            if entry.operation is None or entry.operation is operation:
                return False
        elif not allowed:
            allowed = _allows(entry, operation)
    return allowed


def _allows(entry: AclBinding, operation: Operation) -> bool:
    own = entry.operation
    return own is None or own is operation or own in IMPLIED_BY.get(operation, ())


def _may_somewhere(
    index: AclIndex, principal: str, host: str, operation: Operation, kind: ResourceKind
) -> bool:
    """Whether there can be a resource of this kind to which the operation is allowed.

    A prefix counts if nothing denies the whole of it: each name that begins so may exist.
    """
    for entry in index.about(kind, principal):
        if entry.permission is not Permission.ALLOW or entry.host not in (EVERYWHERE, host):
            continue
        if not _allows(entry, operation):
            continue
        if not _is_denied(index, principal, host, operation, entry):
            return True
    return False


def _is_denied(index: AclIndex, principal: str, host: str, operation: Operation, allowed: AclBinding) -> bool:
    """Whether an entry denies everything that another one allows."""
    for entry in index.matching(allowed.kind, allowed.name, principal):
        covers = allowed.pattern is Pattern.LITERAL or entry.pattern is Pattern.PREFIXED or entry.name == "*"
        if (
            covers
            and entry.permission is Permission.DENY
            and entry.host in (EVERYWHERE, host)
            and entry.operation in (None, operation)
        ):
            return True
    return False
