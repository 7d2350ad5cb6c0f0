"""The topics and subscriptions of a broker as definitions: read and changed over its listeners.

Topics come over the Kafka listener, subscriptions over the native one. Topics whose
names begin with `__` and others that the broker keeps for itself are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.connection import Cluster, bootstrap_option
from tailrace.cli.definition import Change, Definitions, SubscriptionDefinition, TopicDefinition
from tailrace.cli.login import login_option
from tailrace.cli.native import NativeNode, node_address_option

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient
    from tailrace.client.kafka import KafkaClient

_OWN_SETTING = 1  # DescribeConfigs: the source of a value that the topic has for itself


@dataclass(frozen=True, slots=True)
class DefinitionAccess:
    """The two listeners of one broker."""

    cluster: Cluster
    node: NativeNode

    def read(self) -> Definitions:
        """Everything that the broker has."""
        return Definitions(topics=self.cluster.run(_topics), subscriptions=self.node.run(_subscriptions))

    def apply(self, change: Change) -> None:
        """Make one change; CommandFailed says why the broker refused it."""
        if change.kind == "topic":
            self.cluster.run(lambda client: _apply_topic(client, change))
        else:
            self.node.run(lambda client: _apply_subscription(client, change))


def access_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--bootstrap`, `--node` and `--timeout`; it receives an `access`."""

    @functools.wraps(command)
    def connected(*args: Any, bootstrap: str, node_address: Any, timeout: float, **options: Any) -> Any:
        access = DefinitionAccess(Cluster(bootstrap, timeout), NativeNode(node_address, timeout))
        return command(*args, access=access, **options)

    return bootstrap_option(node_address_option(login_option(_TIMEOUT(connected))))


_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer.",
)


async def _topics(client: KafkaClient) -> list[TopicDefinition]:
    from tailrace.client.admin import topic_configs

    found = []
    for name, info in sorted((await client.metadata()).items()):
        if info.internal or name.startswith("__"):
            continue
        info.check()
        own = [each for each in await topic_configs(client, name) if each.config_source == _OWN_SETTING]
        configs = {each.name: each.value for each in own if each.value is not None}
        found.append(TopicDefinition(name=name, partitions=len(info.partitions), configs=configs))
    return found


async def _subscriptions(client: AsyncClient) -> list[SubscriptionDefinition]:
    names = sorted(each["name"] for each in await client.describe_subscriptions())
    details = [await client.describe_subscription(name) for name in names]
    return [
        SubscriptionDefinition(name=each["name"], topic=each["topic"], settings=each["configs"])
        for each in details
    ]


async def _apply_topic(client: KafkaClient, change: Change) -> None:
    from tailrace.client import admin

    if change.topic is not None:
        await admin.create_topic(
            client,
            change.name,
            configs=change.topic.configs,
            partitions=-1 if change.topic.partitions is None else change.topic.partitions,
        )
    elif change.action == "delete":
        await admin.delete_topic(client, change.name)
    else:
        if change.sets or change.resets:
            await admin.alter_configs(client, change.name, changes=change.sets, resets=change.resets)
        if change.partitions is not None:
            await admin.add_partitions(client, change.name, change.partitions)


async def _apply_subscription(client: AsyncClient, change: Change) -> None:
    wanted = change.subscription
    if wanted is not None:
        await client.create_subscription(
            wanted.name, wanted.topic, start=wanted.start, configs=wanted.settings
        )
    else:
        assert change.action == "delete"
        await client.delete_subscription(change.name)
