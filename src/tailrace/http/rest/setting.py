"""/api/v1/configs: what this node goes by, under Kafka's names, and what each setting means."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tailrace.broker.configs import BROKER_CONFIGS, ConfigEntry, ConfigSource, describe_broker
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.model.operation import Operation as AclOperation


class SettingView(msgspec.Struct, frozen=True):
    """A setting of the node."""

    name: str
    value: str | None  # null: it is a secret
    default: str
    source: str  # node or default
    type: str  # boolean, string, int, short, long, double or list
    read_only: bool  # it is read when the node starts
    doc: str


class NodeConfigList(msgspec.Struct, frozen=True):
    """Every setting of the node, by name."""

    configs: list[SettingView]


class SettingList(msgspec.Struct, frozen=True):
    """The same at its older path."""

    settings: list[SettingView]


async def list_configs(call: Call[NoQuery, NoBody]) -> NodeConfigList:
    settings = call.access.cluster(AclOperation.DESCRIBE_CONFIGS).settings
    return NodeConfigList(configs=[view(each) for each in describe_broker(settings)])


async def list_settings(call: Call[NoQuery, NoBody]) -> SettingList:
    return SettingList(settings=(await list_configs(call)).configs)


def view(entry: ConfigEntry) -> SettingView:
    return SettingView(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        default=BROKER_CONFIGS[entry.name].default,
        source="default" if entry.source == ConfigSource.DEFAULT else "node",
        type=entry.type.name.lower(),
        read_only=entry.read_only,
        doc=entry.doc,
    )


_LIST = Operation(
    method="GET",
    path="/api/v1/configs",
    name="listConfigs",
    tag="cluster",
    summary="Every setting of the node, and what it means",
    handler=list_configs,
    answer=NodeConfigList,
)

OPERATIONS = (
    _LIST,
    replace(
        _LIST,
        path="/api/v1/settings",
        name="listSettings",
        summary="Older path of /api/v1/configs",
        handler=list_settings,
        answer=SettingList,
        deprecated=True,
    ),
)
