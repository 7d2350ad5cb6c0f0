"""What administrative requests name: topics and nodes, with their settings, and what is wrong with a request.

A resource is a topic (type 2) or a node (type 4) by its number; a node with an empty name stands for the
defaults of all nodes, of which there are none that a client could have set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from tailrace.broker import Topic
from tailrace.broker.configs import ConfigChange, check_broker_change, plan_topic_configs
from tailrace.broker.topics import check_name, unknown_topic
from tailrace.kafka.call import Call
from tailrace.model import BrokerError, ErrorCode

TOPIC = 2
BROKER = 4
ALL_BROKERS = ""

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


async def alter(
    call: Call,
    *,
    resource_type: int,
    resource_name: str,
    changes: Sequence[ConfigChange],
    replace: bool,
    validate_only: bool,
) -> None:
    """Change the settings of a resource; with `replace`, what is not named goes back to its default."""
    if resource_type == TOPIC:
        topic = find_topic(call, resource_name)
        defaults = call.broker.config.values
        await call.broker.topics.alter_configs(
            topic.name,
            lambda current: plan_topic_configs({} if replace else current, changes, defaults=defaults),
            validate_only=validate_only,
        )
    elif resource_type == BROKER:
        check_node(call, resource_name)
        for change in changes:
            check_broker_change(change.name, change.value)
    else:
        raise invalid_request(f"resources of type {resource_type} have no settings here")
