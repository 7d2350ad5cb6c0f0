"""Decisions over access control entries: Kafka's rules by name, and a slow model that weighs every entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.operation import CLUSTER, OPERATIONS_ON, Operation, Resource, ResourceKind
from tailrace.security.acl import AclBinding, AclIndex, Pattern, Permission, binding_id, decide

ALLOW, DENY = Permission.ALLOW, Permission.DENY
TOPIC = ResourceKind.TOPIC
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def entry(
    operation: Operation | None = READ,
    name: str = "orders",
    *,
    principal: str = "User:alice",
    host: str = "*",
    permission: Permission = ALLOW,
    kind: ResourceKind = TOPIC,
    pattern: Pattern = Pattern.LITERAL,
) -> AclBinding:
    return AclBinding(
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
        kind=kind,
        name=name,
        pattern=pattern,
    )


def prefixed(name: str, operation: Operation | None = READ, permission: Permission = ALLOW) -> AclBinding:
    return entry(operation, name, pattern=Pattern.PREFIXED, permission=permission)


def allowed(
    *entries: AclBinding,
    operation: Operation = READ,
    name: str = "orders",
    principal: str = "User:alice",
    host: str = "192.0.2.7",
) -> bool:
    index = AclIndex(entries)
    return decide(index, principal=principal, host=host, operation=operation, resource=Resource(TOPIC, name))


def test_what_no_entry_allows_is_denied() -> None:
    assert not allowed()
    assert allowed(entry())


def test_one_denial_is_enough() -> None:
    assert not allowed(entry(), entry(None), entry(permission=DENY))
    assert not allowed(entry(None, "*"), prefixed("or", permission=DENY))
    assert not allowed(entry(), entry(None, "*", principal="User:*", permission=DENY))


@pytest.mark.parametrize(
    ("own", "implied"),
    [
        (READ, DESCRIBE),
        (WRITE, DESCRIBE),
        (Operation.DELETE, DESCRIBE),
        (Operation.ALTER, DESCRIBE),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
    ],
)
def test_operations_imply_others(own: Operation, implied: Operation) -> None:
    assert allowed(entry(own), operation=implied)
    assert not allowed(entry(implied), operation=own)
    # a denial implies nothing
    assert allowed(entry(implied), entry(own, permission=DENY), operation=implied)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (Operation.CREATE, DESCRIBE),
        (Operation.ALTER_CONFIGS, DESCRIBE),
        (Operation.DESCRIBE_CONFIGS, DESCRIBE),
        (READ, WRITE),
        (Operation.ALTER, Operation.ALTER_CONFIGS),
    ],
)
def test_operations_do_not_imply_these(own: Operation, other: Operation) -> None:
    assert not allowed(entry(own), operation=other)


def test_all_operations_are_allowed_and_denied_by_all() -> None:
    for operation in OPERATIONS_ON[TOPIC]:
        assert allowed(entry(None), operation=operation)
        assert not allowed(entry(None), entry(None, permission=DENY), operation=operation)


def test_principals() -> None:
    assert allowed(entry(principal="User:*"), principal="User:bob")
    assert not allowed(entry(), principal="User:bob")
    assert not allowed(entry(), principal="User:Alice")
    assert not allowed(entry(principal="User:al"), principal="User:alice")


@pytest.mark.parametrize(
    ("given_host", "client", "is_allowed"),
    [
        ("*", "192.0.2.7", True),
        ("*", "", True),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "::ffff:192.0.2.7", True),
        ("192.0.2.7", "192.0.2.70", False),
        ("192.0.2.7", "", False),
        ("2001:db8::7", "2001:db8::7", True),
        ("fe80::1", "fe80::1%eth0", True),
    ],
)
def test_hosts(given_host: str, client: str, is_allowed: bool) -> None:
    assert allowed(entry(host=given_host), host=client) is is_allowed


def test_a_denial_of_an_address_holds_in_its_other_form() -> None:
    denial = entry(host="192.0.2.7", permission=DENY)
    assert not allowed(entry(), denial, host="::ffff:192.0.2.7")


def test_prefixes_and_the_wildcard() -> None:
    assert allowed(prefixed("ord"))
    assert allowed(prefixed("orders"))
    assert not allowed(prefixed("orders-"))
    assert allowed(entry(name="*"))
    assert not allowed(entry(name="ord"))
    assert not allowed(prefixed("*")), "a prefix of * is a name that begins with a star"


@pytest.mark.parametrize("name", ["__consumer_offsets", "__tailrace_audit", "__"])
def test_names_of_the_broker_are_granted_literally(name: str) -> None:
    assert not allowed(entry(None, "*"), prefixed("_", None), name=name)
    assert not allowed(prefixed("__", None), name=name)
    assert allowed(entry(name=name), name=name)
    assert allowed(prefixed("_"), name="_own")


def test_an_idempotent_producer_needs_the_cluster_or_some_topic() -> None:
    def may(*entries: AclBinding) -> bool:
        return decide(
            AclIndex(entries),
            principal="User:alice",
            host="192.0.2.7",
            operation=Operation.IDEMPOTENT_WRITE,
            resource=CLUSTER,
        )

    assert not may()
    assert not may(entry(READ))
    assert may(entry(Operation.IDEMPOTENT_WRITE, CLUSTER.name, kind=CLUSTER.kind))
    assert may(entry(WRITE))
    assert may(prefixed("or", WRITE))
    assert may(entry(None, "*"))
    assert not may(entry(WRITE), entry(WRITE, permission=DENY))
    assert not may(entry(WRITE), entry(None, "*", permission=DENY))
    assert not may(prefixed("orders-", WRITE), prefixed("or", WRITE, DENY))
    assert may(prefixed("or", WRITE), prefixed("orders-", WRITE, DENY))
    assert may(prefixed("or", WRITE), entry(WRITE, "or", permission=DENY))
    assert not may(entry(WRITE, host="192.0.2.8"))


# ---- against a model


NAMES = ["a", "ab", "abc", "b", "*", "__a", "_"]
ENTRIES = st.builds(
    AclBinding,
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    host=st.sampled_from(["*", "192.0.2.7", "192.0.2.8"]),
    operation=st.sampled_from([None, READ, WRITE, DESCRIBE]),
    permission=st.sampled_from(Permission),
    kind=st.sampled_from([TOPIC, ResourceKind.GROUP]),
    name=st.sampled_from(NAMES),
    pattern=st.sampled_from(Pattern),
)


def model(entries: list[AclBinding], operation: Operation, resource: Resource) -> bool:
    """What Kafka's rules say, entry by entry, for alice at 192.0.2.7."""

    def is_about(each: AclBinding) -> bool:
        if each.kind is not resource.kind or each.principal == "User:bob" or each.host == "192.0.2.8":
            return False
        if each.pattern is Pattern.LITERAL and each.name == resource.name:
            return True
        if resource.name.startswith("__"):
            return False
        if each.pattern is Pattern.LITERAL:
            return each.name == "*"
        return resource.name.startswith(each.name)

    about = [each for each in entries if is_about(each)]
    if any(each.permission is DENY and each.operation in (None, operation) for each in about):
        return False
    wide = {DESCRIBE: (None, DESCRIBE, READ, WRITE)}.get(operation, (None, operation))
    return any(each.permission is ALLOW and each.operation in wide for each in about)


@given(
    st.lists(ENTRIES, max_size=8),
    st.lists(ENTRIES, max_size=4),
    st.sampled_from([READ, WRITE, DESCRIBE]),
    st.sampled_from([name for name in NAMES if name != "*"] + ["abcd", "__ab"]),
)
def test_decisions_are_those_of_the_model(
    kept: list[AclBinding], removed: list[AclBinding], operation: Operation, name: str
) -> None:
    index = AclIndex([*removed, *kept])
    for each in removed:
        if each not in kept:
            index.remove(binding_id(each))
    resource = Resource(TOPIC, name)
    found = decide(index, principal="User:alice", host="192.0.2.7", operation=operation, resource=resource)
    assert found is model(kept, operation, resource)
    assert len(index) == len(set(kept))
