"""Access control with real clients: Kafka's admin clients change entries, and a consumer feels it at once."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.interop.deadline import wait_until
from tests.interop.server import ServerProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of their own ways to read files
    from kafka import KafkaAdminClient
    from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType
    from kafka.admin import ResourcePattern as TheirPattern
    from kafka.admin import ResourceType as TheirType

PASSWORD = "open sesame, 42"
RUN_S = 120
TOPIC = "orders"


def tailrace(*words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *words],
        input=data,
        capture_output=True,
        timeout=RUN_S,
        check=False,
        env=dict(os.environ),
    )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A broker with access control, whose users and first entry were made before it ran."""
    directory = tmp_path_factory.mktemp("acl") / "data"
    place = ("--data-dir", str(directory))
    for name in ("admin", "alice"):
        made = tailrace("user", "create", name, *place, data=PASSWORD.encode())
        assert made.returncode == 0, made.stderr
    added = tailrace(
        *("acl", "add", "--allow", "User:alice", "--operation", "write", "--topic", "made-before", *place)
    )
    assert added.returncode == 0, added.stderr
    listeners = [
        {"name": "kafka", "protocol": "kafka", "address": "127.0.0.1:0", "sasl": ["SCRAM-SHA-256"]},
        {"name": "native", "protocol": "native", "address": "127.0.0.1:0", "sasl": ["SCRAM-SHA-256"]},
        {"name": "http", "protocol": "http", "address": "127.0.0.1:0", "sasl": ["PLAIN"]},
    ]
    security = {"authorizer": "acl", "super_users": ["User:admin"]}
    with ServerProcess(directory, listeners=listeners, security=security) as running:
        admin = AdminClient(settings(running, "admin"))
        Producer(settings(running, "admin")).list_topics(timeout=RUN_S)
        for future in admin.create_topics([NewTopic(TOPIC, 1), NewTopic("made-before", 1)]).values():
            future.result(RUN_S)
        yield running


def settings(server: ServerProcess, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        **more,
    }


def entry(operation: AclOperation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(
        *(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
    )


def every(name: str | None = None) -> AclBindingFilter:
    anything: Any = None
    return AclBindingFilter(
        *(ResourceType.ANY, name or anything, ResourcePatternType.ANY, anything, anything),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )


def send(producer: Producer, topic: str) -> str:
    """The error of one record; "" if it was stored."""
    told: list[str] = []
    producer.produce(
        topic, b"v", on_delivery=lambda error, _: told.append("" if error is None else error.name())
    )
    producer.flush(RUN_S)
    return told[0]


def test_confluent_kafka_manages_entries(guarded: ServerProcess) -> None:
    admin = AdminClient(settings(guarded, "admin"))
    made = [
        entry(AclOperation.READ, ResourceType.TOPIC, "theirs"),
        entry(AclOperation.ALL, ResourceType.GROUP, "theirs"),
    ]
    for future in admin.create_acls(made).values():
        future.result(RUN_S)
    listed = admin.describe_acls(every("theirs")).result(RUN_S)
    assert set(listed) == set(made)
    (removed,) = [future.result(RUN_S) for future in admin.delete_acls([every("theirs")]).values()]
    assert set(removed) == set(made)
    assert admin.describe_acls(every("theirs")).result(RUN_S) == []


def test_confluent_kafka_is_told_what_cannot_be_an_entry(guarded: ServerProcess) -> None:
    admin = AdminClient(settings(guarded, "admin"))
    wrong = entry(AclOperation.WRITE, ResourceType.GROUP, "g")
    (future,) = admin.create_acls([wrong]).values()
    with pytest.raises(KafkaException, match="there is no operation write on a group"):
        future.result(RUN_S)


def test_a_user_without_the_right_changes_no_entry(guarded: ServerProcess) -> None:
    admin = AdminClient(settings(guarded, "alice"))
    (future,) = admin.create_acls([entry(AclOperation.ALL, ResourceType.TOPIC, "*")]).values()
    with pytest.raises(KafkaException, match="may not alter"):
        future.result(RUN_S)
    # This client shows no error of DescribeAcls as a whole; nothing is told all the same.
    assert admin.describe_acls(every()).result(RUN_S) == []


def test_kafka_python_manages_entries(guarded: ServerProcess) -> None:
    admin = KafkaAdminClient(
        bootstrap_servers=guarded.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="admin",
        sasl_plain_password=PASSWORD,
    )
    try:
        pattern = TheirPattern(TheirType.TOPIC, "by-kafka-python")
        made = ACL("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
        admin.create_acls([made])
        wanted = ACLFilter("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
        found, _ = admin.describe_acls(wanted)
        assert [each.resource_pattern.resource_name for each in found] == ["by-kafka-python"]
        admin.delete_acls([wanted])
        found, _ = admin.describe_acls(wanted)
        assert found == []
    finally:
        admin.close()


def test_an_entry_that_was_made_before_the_start_counts(guarded: ServerProcess) -> None:
    producer = Producer(settings(guarded, "alice"))
    assert send(producer, "made-before") == ""
    assert send(producer, TOPIC) == "TOPIC_AUTHORIZATION_FAILED"


def test_a_consumer_is_refused_granted_and_refused_again_on_one_connection(guarded: ServerProcess) -> None:
    admin = AdminClient(settings(guarded, "admin"))
    producer = Producer(settings(guarded, "admin"))
    group = entry(AclOperation.READ, ResourceType.GROUP, "g")
    topic = entry(AclOperation.READ, ResourceType.TOPIC, TOPIC)
    for future in admin.create_acls([group]).values():
        future.result(RUN_S)
    options = {"group.id": "g", "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500}
    consumer = Consumer(settings(guarded, "alice", **options))
    try:
        consumer.subscribe([TOPIC])
        seen: list[str] = []

        def poll() -> str:
            """What the consumer is given next: the error's name, or the value."""
            found = consumer.poll(0.2)
            if found is None:
                return ""
            error = found.error()
            seen.append(error.name() if error is not None else bytes(found.value() or b"").decode())
            return seen[-1]

        assert send(producer, TOPIC) == ""
        wait_until(lambda: poll() == "TOPIC_AUTHORIZATION_FAILED", within_s=RUN_S, what="the refusal")
        for future in admin.create_acls([topic]).values():
            future.result(RUN_S)
        wait_until(lambda: poll() == "v", within_s=RUN_S, what="the record")
        consumer.poll(0.2)  # a fetch waits at the broker now
        for future in admin.delete_acls([every(TOPIC)]).values():
            assert future.result(RUN_S)
        before = seen.count("v")
        assert send(producer, TOPIC) == ""
        wait_until(lambda: poll() == "TOPIC_AUTHORIZATION_FAILED", within_s=RUN_S, what="the refusal")
        assert seen.count("v") == before, "a record was shown after the right had gone"
    finally:
        consumer.close()


def test_the_command_line_asks_a_running_broker(guarded: ServerProcess, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    place = ("--http", f"127.0.0.1:{guarded.ports['http']}")
    by_admin = (*place, "--user", "admin", "--password-file", str(password))
    by_alice = (*place, "--user", "alice", "--password-file", str(password))
    added = tailrace("acl", "add", "--allow", "User:alice", "--operation", "describe", "--cluster", *by_admin)
    assert added.returncode == 0, added.stderr
    listed = tailrace("acl", "list", *by_alice, "-o", "json")
    assert listed.returncode == 0 and b"kafka-cluster" in listed.stdout
    refused = tailrace("acl", "add", "--allow", "User:alice", "--operation", "all", "--cluster", *by_alice)
    assert refused.returncode != 0
    text = " ".join(refused.stderr.decode().split())
    assert "User:alice may not alter kafka-cluster" in text
    assert "tailrace acl add --allow User:alice --operation alter --cluster" in text
