"""The records of the metadata as keys and JSON values, and back. Pure; `store` lists the keys.

What is read is checked for its shape: names, types, and that a topic has as many partition records as it
says. ValueError names the key; whether a setting exists and has a good value is the broker's to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from tailrace.broker.ports import MetadataImage, PartitionRecord, TopicRecord
from tailrace.cluster.store import Entry
from tailrace.model import BrokerId, Epoch

CLUSTER = "cluster"
PRODUCER_IDS = "ids/producer"
NAMES, TOPICS, PARTITIONS, DELETED = "names/", "topics/", "partitions/", "deleted/"
SETTINGS = "settings/"
USERS = "users/"
ACLS = "acls/"
TOKENS = "tokens/"
QUOTAS = "quotas/"
_FORMAT = 1


def name_key(name: str) -> str:
    return NAMES + name


def topic_key(topic_id: UUID) -> str:
    return f"{TOPICS}{topic_id}"


def partition_key(topic_id: UUID, index: int) -> str:
    return f"{PARTITIONS}{topic_id}/{index}"


def partition_prefix(topic_id: UUID) -> str:
    return f"{PARTITIONS}{topic_id}/"


def settings_key(owner: str) -> str:
    return SETTINGS + owner


def deleted_key(topic_id: UUID) -> str:
    return f"{DELETED}{topic_id}"


# ---- write


def write_cluster(cluster_id: str) -> str:
    return _text({"format": _FORMAT, "id": cluster_id})


def write_producer_ids(following: int) -> str:
    return _text({"next": following})


def write_name(topic_id: UUID) -> str:
    return _text({"topic": str(topic_id)})


def write_deleted(name: str) -> str:
    return _text({"name": name})


def write_topic(topic: TopicRecord) -> str:
    return _text(
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "configs": dict(topic.configs),
            "internal": topic.internal,
        }
    )


def write_partition(partition: PartitionRecord) -> str:
    return _text(
        {
            "leader": partition.leader,
            "epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
        }
    )


def write_settings(settings: Mapping[str, str]) -> str:
    return _text(dict(settings))


def topic_texts(topic: TopicRecord) -> dict[str, str]:
    """The keys of a topic and its partitions, without its name."""
    texts = {partition_key(topic.id, each.index): write_partition(each) for each in topic.partitions}
    return {topic_key(topic.id): write_topic(topic), **texts}


def _text(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


# ---- read


def read_image(entries: Mapping[str, Entry]) -> MetadataImage:
    """The image that all entries of a store make; ValueError if they do not fit together."""
    partitions: dict[str, list[PartitionRecord]] = {}
    for key, entry in _under(entries, PARTITIONS):
        topic_id, _, number = key.removeprefix(PARTITIONS).partition("/")
        if not number.isdecimal():
            raise ValueError(f"{key} is no key of a partition")
        partitions.setdefault(topic_id, []).append(read_partition(key, int(number), entry.value))
    topics = [_read_topic(entries, key, entry, partitions) for key, entry in _under(entries, TOPICS)]
    if partitions:
        raise ValueError(f"topic {min(partitions)} has partitions and no record")
    _check_names(entries, topics)
    topics.sort(key=lambda topic: topic.name)
    settings = {
        key.removeprefix(SETTINGS): _read_settings(key, entry) for key, entry in _under(entries, SETTINGS)
    }
    return MetadataImage(cluster_id=read_cluster(entries), topics=topics, settings=settings)


def read_cluster(entries: Mapping[str, Entry]) -> str:
    """The id of the cluster; "" where there is none yet."""
    entry = entries.get(CLUSTER)
    if entry is None:
        if entries:
            raise ValueError(f"the key {CLUSTER} is missing")
        return ""
    value = _object(CLUSTER, entry.value)
    if value.get("format") != _FORMAT:
        raise ValueError(
            f"{CLUSTER} has the format {value.get('format')!r}, and this program knows {_FORMAT}"
        )
    cluster_id: str = _typed(CLUSTER, value, "id", str)
    return cluster_id


def read_producer_ids(entries: Mapping[str, Entry]) -> int:
    """The next producer id."""
    entry = entries.get(PRODUCER_IDS)
    return 1 if entry is None else _typed(PRODUCER_IDS, _object(PRODUCER_IDS, entry.value), "next", int)


def read_topic(key: str, text: str, partitions: Iterable[PartitionRecord], *, deleted: bool) -> TopicRecord:
    """A topic with its partitions, which must be as many as it says, numbered from 0."""
    value = _object(key, text)
    name = _typed(key, value, "name", str)
    ordered = tuple(sorted(partitions, key=lambda each: each.index))
    count = _typed(key, value, "partitions", int)
    if [each.index for each in ordered] != list(range(count)):
        raise ValueError(f"{key} (topic {name!r}) has {count} partitions, and {len(ordered)} have a record")
    try:
        return TopicRecord(
            id=UUID(key.removeprefix(TOPICS)),
            name=name,
            partitions=ordered,
            configs=check_configs(value.get("configs")),
            internal=_typed(key, value, "internal", bool),
            deleted=deleted,
        )
    except ValueError as error:
        raise ValueError(f"{key} (topic {name!r}): {error}") from error


def topic_name(key: str, text: str) -> str:
    name: str = _typed(key, _object(key, text), "name", str)
    return name


def change_topic(
    key: str, text: str, *, configs: Mapping[str, str] | None = None, partitions_added: int = 0
) -> str:
    """The record of a topic with other settings, or with more partitions."""
    value = _object(key, text)
    if configs is not None:
        value["configs"] = dict(configs)
    value["partitions"] = _typed(key, value, "partitions", int) + partitions_added
    return _text(value)


def read_partition(key: str, index: int, text: str) -> PartitionRecord:
    value = _object(key, text)
    return PartitionRecord(
        index=index,
        leader=BrokerId(_typed(key, value, "leader", int)),
        leader_epoch=Epoch(_typed(key, value, "epoch", int)),
        replicas=_nodes(key, value, "replicas"),
        isr=_nodes(key, value, "isr"),
    )


def check_configs(configs: object) -> dict[str, str]:
    """Settings are texts by name."""
    if not isinstance(configs, dict) or not all(isinstance(each, str) for each in configs.values()):
        raise ValueError("its settings are not texts by name")
    return configs


def _read_settings(key: str, entry: Entry) -> dict[str, str]:
    try:
        return check_configs(_object(key, entry.value))
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error


def _read_topic(
    entries: Mapping[str, Entry], key: str, entry: Entry, partitions: dict[str, list[PartitionRecord]]
) -> TopicRecord:
    topic_id = key.removeprefix(TOPICS)
    return read_topic(key, entry.value, partitions.pop(topic_id, []), deleted=DELETED + topic_id in entries)


def _check_names(entries: Mapping[str, Entry], topics: Iterable[TopicRecord]) -> None:
    """Every name leads to a topic, and every topic that is not deleted has its name."""
    expected = {name_key(each.name): str(each.id) for each in topics if not each.deleted}
    found = {key: _object(key, entry.value).get("topic") for key, entry in _under(entries, NAMES)}
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            raise ValueError(
                f"{key} leads to topic {found.get(key)}, and the topic of that name is {expected.get(key)}"
            )


def _under(entries: Mapping[str, Entry], prefix: str) -> list[tuple[str, Entry]]:
    return [(key, entry) for key, entry in entries.items() if key.startswith(prefix)]


def _object(key: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{key} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{key} is no JSON object")
    return value


def _typed(key: str, value: Mapping[str, Any], name: str, kind: type) -> Any:
    found = value.get(name)
    if type(found) is not kind:
        raise ValueError(f"{key} has {found!r} as {name}")
    return found


def _nodes(key: str, value: Mapping[str, Any], name: str) -> tuple[BrokerId, ...]:
    found = value.get(name)
    if not isinstance(found, list) or not all(type(each) is int for each in found):
        raise ValueError(f"{key} has {found!r} as {name}")
    return tuple(map(BrokerId, found))
