"""What administrative requests name: topics and nodes, with their settings, and what is wrong with a request.

A resource is a topic (type 2) or a node (type 4) by its number; a node with an empty name stands for the
defaults of all nodes, of which there are none that a client could have set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from tailrace.broker import Topic, check_name, unknown_topic
from tailrace.broker.configs import ConfigChange, check_broker_change, plan_topic_configs
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.model import BrokerError, ErrorCode

TOPIC = 2
BROKER = 4
ALL_BROKERS = ""

CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS and IDEMPOTENT_WRITE, by their ACL
numbers: all that can be done to a cluster."""
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS: all of a topic."""

T = TypeVar("T", bound=Hashable)


def repeated(items: Iterable[T]) -> set[T]:
    """What comes more than once, and is answered INVALID_REQUEST wherever it stands."""
    return {item for item, count in Counter(items).items() if count > 1}


def invalid_request(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


def find_topic(call: Call, name: str) -> Topic:
    """The topic of this name; INVALID_TOPIC_EXCEPTION if none could have it."""
    topic = call.broker.topics.get(name)
    if topic is None:
        check_name(name)
        raise unknown_topic(name)
    return topic


def check_node(call: Call, name: str) -> None:
    """Whether this is the node that was asked for: each one knows its own settings only."""
    if name not in (ALL_BROKERS, str(call.broker.node_id)):
        raise invalid_request(
            f"this is node {call.broker.node_id}, the settings asked for are node {name[:20]!r}'s"
        )


class Resource(NamedTuple):
    """What has settings."""

    type: int
    name: str


async def alter(
    call: Call,
    resource: Resource,
    changes: Sequence[ConfigChange],
    *,
    named: Counter[Resource],
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
    call: Call, resource: Resource, changes: Sequence[ConfigChange], *, replace: bool, validate_only: bool
) -> None:
    if resource.type == TOPIC:
        topic = find_topic(call, resource.name)
        defaults = call.broker.config.values
        await call.broker.topics.alter_configs(
            topic.name,
            lambda current: plan_topic_configs({} if replace else current, changes, defaults=defaults),
            validate_only=validate_only,
        )
    elif resource.type == BROKER:
        check_node(call, resource.name)
        for change in changes:
            check_broker_change(change.name, change.value)
    else:
        raise invalid_request(f"resources of type {resource.type} have no settings here")
