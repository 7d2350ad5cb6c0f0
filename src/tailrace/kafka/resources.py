"""What administrative requests name: topics, nodes and groups, their settings, and what is wrong with it.

A resource with settings is a topic (type 2), a node (type 4) by its number, or a group (type 32). A node
with an empty name stands for all nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from tailrace.broker.cluster_view import ClusterView
from tailrace.broker.configs import (
    ConfigChange,
    ConfigSource,
    plan_group_configs,
    plan_node_configs,
    plan_topic_configs,
)
from tailrace.broker.gate import Access
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import OPERATIONS_ON, Operation, Resource

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32
ALL_BROKERS = ""
_NOT_ON_DISK = "memory"
_LAST_BIT = 30  # of a signed 32-bit number

T = TypeVar("T", bound=Hashable)


def repeated(items: Iterable[T]) -> set[T]:
    """What comes more than once, and is answered INVALID_REQUEST wherever it stands."""
    return {item for item, count in Counter(items).items() if count > 1}


def invalid_request(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


def authorized_operations(access: Access, resource: Resource) -> int:
    """What the session may do to a resource, as the bits that clients are told (KIP-430).

    Nothing without DESCRIBE. Operations of ours have no bit.
    """
    if not access.allows(Operation.DESCRIBE, resource):
        return 0
    known = (each for each in OPERATIONS_ON[resource.kind] if each <= _LAST_BIT)
    return sum(1 << each for each in known if access.allows(each, resource))


def partition_count(access: Access, name: str, operation: Operation) -> tuple[int, ErrorCode]:
    """How many partitions a topic has, on whichever node, and what is answered for any other partition."""
    try:
        return len(access.topic(name, operation).partitions), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except BrokerError as error:
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return 0, error.code
        return 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def data_directory(cluster: ClusterView) -> str:
    """What clients are told of the one place where this node keeps its logs."""
    return cluster.settings.get("log.dirs") or _NOT_ON_DISK


def check_node(cluster: ClusterView, name: str) -> None:
    """INVALID_REQUEST unless this is the node that was asked for: each one knows its own settings only."""
    if name not in (ALL_BROKERS, str(cluster.node_id)):
        raise invalid_request(
            f"this is node {cluster.node_id}, the settings asked for are node {name[:20]!r}'s"
        )


class ConfigResource(NamedTuple):
    """What has settings."""

    type: int
    name: str


async def alter(
    call: Call,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    named: Counter[ConfigResource],
    replace: bool,
    validate_only: bool,
) -> tuple[ErrorCode, str | None]:
    """Change the settings of a resource; with `replace`, what is not named goes back to its default.

    `named` says how often each resource is named in the request. Returns what its answer says.
    """
    try:
        if named[resource] > 1:
            raise invalid_request("the resource is named more than once")
        await _alter(call, resource, changes, replace=replace, validate_only=validate_only)
    except ANSWERABLE as error:
        return error_of(error)
    return ErrorCode.NONE, None


async def _alter(
    call: Call,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    replace: bool,
    validate_only: bool,
) -> None:
    access = call.access
    if resource.type == TOPIC:
        defaults = access.topic_defaults
        await access.alter_topic(
            resource.name,
            lambda current: plan_topic_configs({} if replace else current, changes, defaults=defaults),
            validate_only=validate_only,
        )
    elif resource.type == BROKER:
        cluster = access.cluster(Operation.ALTER_CONFIGS)
        check_node(cluster, resource.name)
        everybody = resource.name == ALL_BROKERS
        await access.alter_node(
            ConfigSource.DYNAMIC_DEFAULT_BROKER if everybody else ConfigSource.DYNAMIC_BROKER,
            lambda current: plan_node_configs({} if replace else current, changes, settings=cluster.settings),
            validate_only=validate_only,
        )
    elif resource.type == GROUP:
        await access.alter_group(
            resource.name,
            lambda current: plan_group_configs({} if replace else current, changes),
            validate_only=validate_only,
        )
    else:
        raise invalid_request(f"resources of type {resource.type} have no settings here")
