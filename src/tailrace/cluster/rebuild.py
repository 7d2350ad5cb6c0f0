"""Metadata made again, from the best of what is there: `plan_rebuild` decides, `apply_rebuild` writes.

Sources, of which the one is taken that knows the most logs, and then the newest:

    metadata.sqlite          if every row of it is whole
    cluster.json             what the store held last
    cluster.json.previous    what it held before that

Logs that the source does not know are added by their labels (`partition.json`). Names and numbers of
partitions come back that way, settings do not: such a topic keeps all its records until somebody sets it.
Topics of the broker's own get the broker's settings, also where the source has some that cannot be used.
Topics of an image of which no log is left were deleted after it was written, and stay deleted.

Leader epochs become greater than every epoch in the logs. Producer ids continue far beyond all that were
handed out: an id that two producers had would make the second one's records pass for duplicates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from tailrace.broker.audit_log import AUDIT_CONFIGS, AUDIT_TOPIC
from tailrace.broker.configs import check_topic_configs
from tailrace.broker.delayed.log import DELAYED_CONFIGS, DELAYED_TOPIC
from tailrace.broker.groups import OFFSETS_TOPIC
from tailrace.broker.internal.topic import internal_configs
from tailrace.broker.ports import MetadataImage, PartitionRecord, TopicRecord
from tailrace.broker.subscriptions import CURSORS_TOPIC
from tailrace.broker.topic import CLIENT_WRITTEN, check_name, is_reserved
from tailrace.broker.transactions import TRANSACTIONS_CONFIGS, TRANSACTIONS_TOPIC
from tailrace.cluster import record, replacement
from tailrace.cluster.image_file import IMAGE, PREVIOUS, load, save, write_image
from tailrace.cluster.metadata import new_cluster_id
from tailrace.cluster.mirror import check_not_older
from tailrace.cluster.reading import read_metadata_file
from tailrace.cluster.store import METADATA, Entry, Rows
from tailrace.model import BrokerError, BrokerId, Epoch, PartitionId, StorageError
from tailrace.storage.segment.inspection import StoredLog, list_logs

KEPT = ".before-rebuild"
LOGS_ALONE = "log directories"

_NODE = BrokerId(1)
_IDS_SKIPPED = 1 << 40
_OWN_ID_MAX = 1 << 62  # a client may send any id; one above this did not come from us
_KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
_INTERNAL_CONFIGS: Mapping[str, Mapping[str, str]] = {
    OFFSETS_TOPIC: internal_configs(),
    TRANSACTIONS_TOPIC: internal_configs() | TRANSACTIONS_CONFIGS,
    CURSORS_TOPIC: internal_configs(),
    DELAYED_TOPIC: DELAYED_CONFIGS,
    AUDIT_TOPIC: internal_configs() | dict(AUDIT_CONFIGS),
    **{name: {"cleanup.policy": "compact"} for name in CLIENT_WRITTEN},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltTopic:
    """A topic as the rebuilt metadata has it."""

    name: str
    topic_id: UUID
    partitions: int
    source: str  # where it was found
    settings: str  # kept, the broker's own, or: default, and nothing expires
    logs_missing: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPlan:
    """What would be written, and why."""

    directory: Path
    source: str
    reasons: tuple[str, ...]  # what is wrong now; none: nothing needs to be rebuilt
    cluster_id: str
    topics: tuple[RebuiltTopic, ...]
    dropped: tuple[str, ...]  # topics of the image without any log
    next_producer_id: int
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    name: str
    rows: Rows
    image: MetadataImage

    def knows(self, logs: Sequence[StoredLog]) -> int:
        known = _partitions_of(self.image)
        return sum(log.partition_id in known for log in logs if log.end)


def plan_rebuild(directory: Path, *, now_ms: int) -> RebuildPlan:
    """What the metadata of a data directory would become. Writes nothing; StorageError without good logs."""
    logs = list_logs(directory)
    candidates, reasons = _candidates(directory)
    base = max(candidates, key=lambda each: (each.knows(logs), each.rows.revision), default=None)
    if base is None or (any(log.end for log in logs) and not base.knows(logs)):  # lost, or another cluster's
        base = _Candidate(name=LOGS_ALONE, rows=Rows(), image=MetadataImage(cluster_id="", topics=()))
    reasons += _disagreements(base, logs)
    if base.name == METADATA and not reasons:
        return _unchanged(directory, base)
    kept, dropped = _keep_topics(base, logs)
    added = _add_topics(base, kept, logs)
    topics = [_raise_epochs(topic, logs) for topic in (*kept, *added)]
    following = _next_producer_id(base, logs, now_ms=now_ms)
    cluster_id = base.image.cluster_id or _cluster_of(logs)
    revision = max((each.rows.revision for each in candidates), default=0) + 1
    return RebuildPlan(
        directory=directory,
        source=base.name,
        reasons=tuple(reasons),
        cluster_id=cluster_id,
        topics=tuple(_describe(topic, base, logs) for topic in topics if not topic.deleted),
        dropped=tuple(dropped),
        next_producer_id=following,
        rows=_rows(base, cluster_id, topics, following, revision=revision),
    )


def apply_rebuild(plan: RebuildPlan) -> str | None:
    """Write the metadata, then its image; returns where the old file is kept. Call it under the lock."""
    path = str(plan.directory / METADATA)
    replacement.finish(path)
    kept = replacement.replace(path, plan.rows, kept=path + KEPT)
    save(plan.directory, write_image(plan.rows))
    return kept


# ---- where it comes from


def _candidates(directory: Path) -> tuple[list[_Candidate], list[str]]:
    """The sources that can be read, the better ones first, and what is wrong with metadata.sqlite."""
    found: list[_Candidate] = []
    reasons: list[str] = []
    try:
        rows = read_metadata_file(directory / METADATA).rows
        if rows.entries:
            found.append(_Candidate(name=METADATA, rows=rows, image=record.read_image(rows.entries)))
        else:
            reasons.append(f"{METADATA} is missing or empty")
    except StorageError as error:
        reasons.append(f"{METADATA}: {error.reason}")
    except ValueError as error:
        reasons.append(f"{METADATA}: {error}")
    for name in (IMAGE, PREVIOUS):
        image = load(directory, name)
        if image is None:
            continue
        try:
            candidate = _Candidate(name=name, rows=image, image=record.read_image(image.entries))
        except ValueError:
            continue
        if [each.name for each in found] == [METADATA]:  # compared with the newest image only
            reasons += _is_older(found[0].rows, image, directory)
        found.append(candidate)
    return found, reasons


def _is_older(rows: Rows, image: Rows, directory: Path) -> list[str]:
    try:
        check_not_older(rows, image, directory=directory)
    except StorageError as error:
        return [error.reason]
    return []


def _disagreements(base: _Candidate, logs: Sequence[StoredLog]) -> list[str]:
    """Why a start over this metadata would be refused."""
    known = _partitions_of(base.image)
    unknown = [log for log in logs if log.partition_id not in known and log.end]
    outdated = [
        log for log in logs if log.partition_id in known and log.newest_epoch > known[log.partition_id]
    ]
    reasons = []
    if unknown:
        reasons.append(f"{base.name} does not know {len(unknown)} logs that hold records")
    if outdated:
        reasons.append(f"{base.name} has earlier leader epochs than {len(outdated)} logs")
    reasons += [
        f"{topic.name} has settings that cannot be used" for topic in base.image.topics if _is_unset(topic)
    ]
    return reasons


def _is_unset(topic: TopicRecord) -> bool:
    """Whether a topic of the broker's own has lost its settings, without which the broker may not start."""
    if topic.name not in _INTERNAL_CONFIGS:
        return False
    try:
        check_topic_configs(topic.configs)
    except BrokerError:
        return True
    return False


def _partitions_of(image: MetadataImage) -> dict[PartitionId, int]:
    """The leader epoch of every partition, deleted topics included."""
    return {
        PartitionId(topic.id, each.index): each.leader_epoch
        for topic in image.topics
        for each in topic.partitions
    }


# ---- topics


def _keep_topics(base: _Candidate, logs: Sequence[StoredLog]) -> tuple[list[TopicRecord], list[str]]:
    """The topics of the source, with the partitions that they got since; and those deleted since."""
    counts: dict[UUID, int] = defaultdict(int)
    for log in logs:
        found = log.partition_id
        counts[found.topic_id] = max(counts[found.topic_id], found.partition + 1)
    kept: list[TopicRecord] = []
    dropped: list[str] = []
    for topic in base.image.topics:
        if topic.id not in counts and base.name != METADATA:
            dropped += [] if topic.deleted else [topic.name]
            continue
        more = range(len(topic.partitions), counts[topic.id])
        configs = _INTERNAL_CONFIGS[topic.name] if _is_unset(topic) else topic.configs
        partitions = (*topic.partitions, *map(_new_partition, more))
        kept.append(replace(topic, partitions=partitions, configs=dict(configs)))
    return kept, dropped


def _add_topics(
    base: _Candidate, kept: Sequence[TopicRecord], logs: Sequence[StoredLog]
) -> list[TopicRecord]:
    """Topics of which only logs are left; empty logs beside a source may be of a topic that never was."""
    known = {topic.id for topic in kept}
    groups: dict[UUID, list[StoredLog]] = defaultdict(list)
    for log in logs:
        if log.partition_id.topic_id not in known:
            groups[log.partition_id.topic_id].append(log)
    names = {topic.name for topic in kept if not topic.deleted}
    added: list[TopicRecord] = []
    for topic_id, group in groups.items():
        labelled = base.name == LOGS_ALONE and any(log.label for log in group)
        if not labelled and not any(log.end for log in group):
            continue
        topic = _topic_of(topic_id, group, taken=names)
        names.add(topic.name)
        added.append(topic)
    return added


def _topic_of(topic_id: UUID, group: Sequence[StoredLog], *, taken: set[str]) -> TopicRecord:
    labels = Counter(log.label.topic for log in group if log.label is not None)
    name = labels.most_common(1)[0][0] if labels else f"recovered-{topic_id.hex}"
    try:
        check_name(name)
    except BrokerError:
        name = f"recovered-{topic_id.hex}"
    internal = is_reserved(name) or name in CLIENT_WRITTEN
    if name in taken:
        name, internal = f"{name.lstrip('_')[:200]}-{topic_id.hex[:12]}", False
    count = max(log.partition_id.partition for log in group) + 1
    return TopicRecord(
        id=topic_id,
        name=name,
        partitions=tuple(map(_new_partition, range(count))),
        configs=dict(_INTERNAL_CONFIGS.get(name, _KEEP_ALL)),
        internal=internal,
    )


def _new_partition(index: int) -> PartitionRecord:
    nodes = (_NODE,)
    return PartitionRecord(index=index, leader=_NODE, leader_epoch=Epoch(0), replicas=nodes, isr=nodes)


def _raise_epochs(topic: TopicRecord, logs: Sequence[StoredLog]) -> TopicRecord:
    mine = [log for log in logs if log.partition_id.topic_id == topic.id]
    newest = {log.partition_id.partition: log.newest_epoch for log in mine}
    partitions = tuple(
        replace(each, leader_epoch=Epoch(max(each.leader_epoch, newest.get(each.index, 0)) + 1))
        for each in topic.partitions
    )
    return replace(topic, partitions=partitions)


def _describe(topic: TopicRecord, base: _Candidate, logs: Sequence[StoredLog]) -> RebuiltTopic:
    is_kept = any(topic.id == each.id for each in base.image.topics)
    is_as_it_was = any(topic.id == each.id and topic.configs == each.configs for each in base.image.topics)
    here = {log.partition_id for log in logs}
    settings = "kept"
    if not is_as_it_was:
        settings = "the broker's own" if topic.name in _INTERNAL_CONFIGS else "default, and nothing expires"
    return RebuiltTopic(
        name=topic.name,
        topic_id=topic.id,
        partitions=len(topic.partitions),
        source=base.name if is_kept else LOGS_ALONE,
        settings=settings,
        logs_missing=sum(PartitionId(topic.id, each.index) not in here for each in topic.partitions),
    )


# ---- ids


def _cluster_of(logs: Sequence[StoredLog]) -> str:
    ids = Counter(log.label.cluster_id for log in logs if log.label is not None)
    return ids.most_common(1)[0][0] if ids else new_cluster_id()


def _next_producer_id(base: _Candidate, logs: Sequence[StoredLog], *, now_ms: int) -> int:
    """Exact where the source is the store itself. Else far ahead of what was handed out since.

    The time is counted in because logs forget producers: without it, a second rebuild from logs alone could
    come to the same number as the first. It is above what a node hands out at less than 1,000 ids a second.
    """
    seen = (log.greatest_producer_id for log in logs)
    known = max(
        [record.read_producer_ids(base.rows.entries), *(each + 1 for each in seen if each < _OWN_ID_MAX)]
    )
    return known if base.name == METADATA else max(known, now_ms) + _IDS_SKIPPED


# ---- rows


def _rows(
    base: _Candidate, cluster_id: str, topics: Sequence[TopicRecord], following: int, *, revision: int
) -> Rows:
    """The rows of these topics. Keys of the source that are about something else stay as they are."""
    ours = (record.NAMES, record.TOPICS, record.PARTITIONS, record.DELETED)
    texts = {key: each.value for key, each in base.rows.entries.items() if not key.startswith(ours)}
    texts[record.CLUSTER] = record.write_cluster(cluster_id)
    texts[record.PRODUCER_IDS] = record.write_producer_ids(following)
    for topic in topics:
        texts.update(record.topic_texts(topic))
        if topic.deleted:
            texts[record.deleted_key(topic.id)] = record.write_deleted(topic.name)
        else:
            texts[record.name_key(topic.name)] = record.write_name(topic.id)
    return Rows(
        revision=revision, entries={key: Entry(text, revision) for key, text in sorted(texts.items())}
    )


def _unchanged(directory: Path, base: _Candidate) -> RebuildPlan:
    return RebuildPlan(
        directory=directory,
        source=base.name,
        reasons=(),
        cluster_id=base.image.cluster_id,
        topics=(),
        dropped=(),
        next_producer_id=record.read_producer_ids(base.rows.entries),
        rows=base.rows,
    )
