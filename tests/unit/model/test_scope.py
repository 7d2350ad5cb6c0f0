"""Scopes of API tokens: what each permission allows, and texts that are none."""

from __future__ import annotations

import pytest

from tailrace.model.operation import CLUSTER, OPERATIONS_ON, Operation, Resource, ResourceKind
from tailrace.model.scope import PERMISSIONS_MAX, read_scope


def topic(name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, name)


def group(name: str) -> Resource:
    return Resource(ResourceKind.GROUP, name)


@pytest.mark.parametrize(
    ("text", "operation", "resource"),
    [
        ("read:topic:orders", Operation.READ, topic("orders")),
        ("read:topic:orders", Operation.DESCRIBE, topic("orders")),
        ("write:topic:orders", Operation.DESCRIBE, topic("orders")),
        ("delete:topic:orders", Operation.DESCRIBE, topic("orders")),
        ("alter:topic:orders", Operation.DESCRIBE, topic("orders")),
        ("alter_configs:topic:orders", Operation.DESCRIBE_CONFIGS, topic("orders")),
        ("write:topic:orders", Operation.IDEMPOTENT_WRITE, CLUSTER),
        ("all:topic:orders", Operation.IDEMPOTENT_WRITE, CLUSTER),
        ("read:topic:orders*", Operation.READ, topic("orders")),
        ("read:topic:orders*", Operation.READ, topic("orders-eu")),
        ("read:topic:*", Operation.READ, topic("orders")),
        ("read:topic:__consumer_offsets", Operation.READ, topic("__consumer_offsets")),
        ("read:topic:__*", Operation.READ, topic("__consumer_offsets")),
        ("all:topic:orders", Operation.ALTER_CONFIGS, topic("orders")),
        ("read:group:a:b", Operation.READ, group("a:b")),
        ("write:transactional_id:etl", Operation.WRITE, Resource(ResourceKind.TRANSACTIONAL_ID, "etl")),
        ("read:subscription:mail", Operation.READ, Resource(ResourceKind.SUBSCRIPTION, "mail")),
        ("describe:cluster", Operation.DESCRIBE, CLUSTER),
        ("all:cluster", Operation.ALTER, CLUSTER),
        ("all", Operation.ALTER, CLUSTER),
        ("all", Operation.READ, topic("__consumer_offsets")),
    ],
)
def test_a_permission_allows(text: str, operation: Operation, resource: Resource) -> None:
    assert read_scope([text]).allows(operation, resource)


@pytest.mark.parametrize(
    ("text", "operation", "resource"),
    [
        ("read:topic:orders", Operation.WRITE, topic("orders")),
        ("read:topic:orders", Operation.READ, topic("orders-eu")),
        ("read:topic:orders", Operation.READ, group("orders")),
        ("read:topic:orders", Operation.DESCRIBE_CONFIGS, topic("orders")),
        ("describe:topic:orders", Operation.READ, topic("orders")),
        ("describe_configs:topic:orders", Operation.ALTER_CONFIGS, topic("orders")),
        ("describe_configs:topic:orders", Operation.DESCRIBE, topic("orders")),
        ("create:topic:orders", Operation.DESCRIBE, topic("orders")),
        ("read:topic:orders", Operation.IDEMPOTENT_WRITE, CLUSTER),
        ("write:group:orders", Operation.IDEMPOTENT_WRITE, CLUSTER),
        ("read:topic:orders-*", Operation.READ, topic("orders")),
        ("read:topic:*", Operation.READ, topic("__consumer_offsets")),
        ("read:topic:_*", Operation.READ, topic("__consumer_offsets")),
        ("all:topic:*", Operation.READ, topic("__consumer_offsets")),
        ("all:topic:*", Operation.DESCRIBE, CLUSTER),
        ("all:topic:*", Operation.READ, group("g")),
        ("describe:cluster", Operation.ALTER, CLUSTER),
        ("all:cluster", Operation.READ, topic("orders")),
    ],
)
def test_a_permission_does_not_allow(text: str, operation: Operation, resource: Resource) -> None:
    assert not read_scope([text]).allows(operation, resource)


def test_a_scope_allows_what_one_of_its_permissions_does() -> None:
    scope = read_scope(["read:topic:orders", "read:group:mail", "read:topic:orders"])
    assert scope.texts() == ["read:topic:orders", "read:group:mail"]
    assert scope.allows(Operation.READ, topic("orders"))
    assert scope.allows(Operation.READ, group("mail"))
    assert not scope.allows(Operation.READ, group("other"))


@pytest.mark.parametrize("kind", OPERATIONS_ON)
def test_every_operation_of_every_kind_can_be_written_and_read(kind: ResourceKind) -> None:
    resource = CLUSTER if kind is ResourceKind.CLUSTER else Resource(kind, "x")
    for operation in OPERATIONS_ON[kind]:
        name = "" if kind is ResourceKind.CLUSTER else ":x"
        text = f"{operation.name.lower()}:{kind.name.lower()}{name}"
        scope = read_scope([text])
        assert scope.allows(operation, resource)
        assert scope.texts() == [text] and read_scope(scope.texts()) == scope


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "ALL",
        "all:",
        "read",
        "read:topic",
        "read:topic:",
        "Read:topic:orders",
        "read:Topic:orders",
        "read:queue:orders",
        "peek:topic:orders",
        ":topic:orders",
        "read::orders",
        "read:topic:a*b",
        "read:topic:**",
        "read:topic:a\nb",
        "read:topic:" + "x" * 256,
        "describe:cluster:kafka-cluster",
        " read:topic:orders",
    ],
)
def test_what_is_no_permission_is_refused_in_words_that_help(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as read:topic:orders|needs a name|has no name"):
        read_scope([text])


def test_a_scope_is_neither_empty_nor_endless() -> None:
    with pytest.raises(ValueError, match="one permission at least"):
        read_scope([])
    with pytest.raises(ValueError, match="at most"):
        read_scope([f"read:topic:{number}" for number in range(PERMISSIONS_MAX + 1)])
