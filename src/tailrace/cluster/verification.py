"""Whether the metadata of a data directory is whole, and fits its logs: what `tailrace log verify` adds.

Nothing is written or locked. A directory that is being served changes between two readings, so what looks
wrong is looked at again. Logs are read before the metadata: a log holds records only after its topic is
stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tailrace.broker.configs import check_topic_configs
from tailrace.broker.ports import MetadataImage
from tailrace.cluster import database, record
from tailrace.cluster.image_file import IMAGE, PREVIOUS, load, load_newest
from tailrace.cluster.mirror import check_not_older
from tailrace.cluster.reading import read_metadata_file
from tailrace.cluster.store import METADATA
from tailrace.model import BrokerError, PartitionId, StorageError
from tailrace.storage.segment.inspection import Findings, StoredLog, list_logs

_ATTEMPTS_MAX = 3
_RESTORE = "Restore the directory of the log from a copy, or delete the topic"
_WRITTEN_AGAIN = "Nothing is lost: the next change of a topic, and the next start, write it again"


def verify_metadata(directory: Path) -> Findings:
    """Check metadata.sqlite, cluster.json, and that both fit the logs."""
    for _ in range(_ATTEMPTS_MAX):
        findings = _verify(directory)
        if not findings.problems:
            break
    return findings


def _verify(directory: Path) -> Findings:
    findings = Findings()
    logs: Sequence[StoredLog] | None
    try:
        logs = list_logs(directory)
    except StorageError:
        logs = None  # CHECKPOINT or journal are damaged, which is reported already: nothing to compare with
    image = _check_file(directory, logs or (), findings)
    _check_image_files(directory, findings)
    if image is not None:
        _check_settings(image, findings)
        if logs is not None:
            _check_topics(image, logs, findings)
            _check_logs(image, logs, findings, directory)
    return findings


def _check_file(directory: Path, logs: Sequence[StoredLog], findings: Findings) -> MetadataImage | None:
    hint = database.rebuild_hint(directory / METADATA)
    try:
        found = read_metadata_file(directory / METADATA)
        image = record.read_image(found.rows.entries)
    except StorageError as error:
        findings.problem(METADATA, error.reason, error.hint)
        return None
    except ValueError as error:
        findings.problem(METADATA, str(error), hint)
        return None
    if found.schema == database.SCHEMA_1:
        findings.note(METADATA, "of schema 1, which has no checksums: the next start migrates it")
    if not found.rows.entries:
        if logs:
            findings.problem(METADATA, f"missing or empty, and {len(logs)} logs are there", hint)
            return None
        findings.note(METADATA, "not there yet: no broker was started here")
    newest = load_newest(directory)
    if newest is not None:
        try:
            check_not_older(found.rows, newest[1], directory=directory)
        except StorageError as error:
            findings.problem(METADATA, error.reason, error.hint)
    return image


def _check_image_files(directory: Path, findings: Findings) -> None:
    for name in (IMAGE, PREVIOUS):
        if (directory / name).exists() and load(directory, name) is None:
            findings.problem(name, "its checksum does not hold", _WRITTEN_AGAIN)


def _check_settings(image: MetadataImage, findings: Findings) -> None:
    for topic in image.topics:
        if topic.deleted:
            continue
        try:
            check_topic_configs(topic.configs)
        except BrokerError as error:
            findings.problem(
                METADATA,
                f"topic {topic.name} ({record.topic_key(topic.id)}) is quarantined by a start: {error}",
                f"Set it right, or back to the default: tailrace topic alter {topic.name} --reset KEY",
            )


def _check_topics(image: MetadataImage, logs: Sequence[StoredLog], findings: Findings) -> None:
    here = {log.partition_id for log in logs}
    for topic in image.topics:
        if topic.deleted:
            continue
        missing = [each.index for each in topic.partitions if PartitionId(topic.id, each.index) not in here]
        if missing:
            findings.problem(
                METADATA,
                f"topic {topic.name} has no log of partitions {', '.join(map(str, missing))}",
                _RESTORE,
            )


def _check_logs(image: MetadataImage, logs: Sequence[StoredLog], findings: Findings, directory: Path) -> None:
    hint = database.rebuild_hint(directory / METADATA)
    epochs = {
        PartitionId(topic.id, each.index): each.leader_epoch
        for topic in image.topics
        for each in topic.partitions
    }
    for log in logs:
        epoch = epochs.get(log.partition_id)
        name = "" if log.label is None else f" of topic {log.label.topic}"
        if epoch is None and log.end:
            findings.problem(
                log.path,
                f"the log{name} belongs to no topic that {METADATA} knows",
                hint,
                first_offset=log.start,
                next_offset=log.end,
            )
        elif epoch is not None and log.newest_epoch > epoch:
            findings.problem(
                log.path,
                f"the log{name} was written in epoch {log.newest_epoch}, {METADATA} has {epoch}",
                hint,
            )
