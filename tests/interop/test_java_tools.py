"""Apache Kafka's own command-line tools against the server: what an operator types every day."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence

import pytest
from tests.interop.clients.java import java
from tests.interop.clients.port import Client, Message, Reading, TopicPartition

pytestmark = pytest.mark.heavy

_RUN_S = 60
_TOOLS = "org.apache.kafka.tools."


@pytest.fixture(scope="module")
def run() -> Callable[..., str]:
    """Runs a tool by its class, and gives what it printed."""
    command = java()

    def call(tool: str, *words: str, data: bytes = b"") -> str:
        done = subprocess.run(
            [*command, tool, *words], input=data, capture_output=True, timeout=_RUN_S, check=False
        )
        printed = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0, f"{tool} ended with {done.returncode}:\n{printed}"
        return printed

    return call


def numbers(count: int) -> Sequence[Message]:
    """Numbered messages for partition 0."""
    return [Message(value=b"%d" % n, partition=0) for n in range(count)]


def test_kafka_topics(run: Callable[..., str], bootstrap: str, fresh_name: str) -> None:
    tool = (_TOOLS + "TopicCommand", "--bootstrap-server", bootstrap)
    run(*tool, "--create", "--topic", fresh_name, "--partitions", "3", "--config", "retention.ms=3600000")
    assert fresh_name in run(*tool, "--list").split()
    described = run(*tool, "--describe", "--topic", fresh_name)
    assert "PartitionCount: 3" in described and "retention.ms=3600000" in described
    run(*tool, "--alter", "--topic", fresh_name, "--partitions", "5")
    assert "PartitionCount: 5" in run(*tool, "--describe", "--topic", fresh_name)
    assert run(*tool, "--describe", "--under-replicated-partitions").strip() == ""
    run(*tool, "--delete", "--topic", fresh_name)
    assert fresh_name not in run(*tool, "--list").split()


def test_kafka_configs(run: Callable[..., str], bootstrap: str, topic: str) -> None:
    tool = ("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--topic", topic)
    run(*tool, "--alter", "--add-config", "retention.ms=7200000,cleanup.policy=compact")
    described = run(*tool, "--describe")
    assert "retention.ms=7200000" in described and "cleanup.policy=compact" in described
    run(*tool, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=7200000" not in run(*tool, "--describe")
    assert "min.insync.replicas=1" in run(*tool, "--describe", "--all")


def test_console_producer_and_consumer(run: Callable[..., str], bootstrap: str, topic: str) -> None:
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    run("kafka.tools.ConsoleProducer", *server, *keyed, data=b"k1:one\nk2:two\nk3:three\n")
    shown = ("--property", "print.key=true", "--property", "key.separator=:")
    ends = ("--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")
    printed = run(_TOOLS + "consumer.ConsoleConsumer", *server, *shown, *ends)
    assert printed.splitlines()[:3] == ["k1:one", "k2:two", "k3:three"]


def test_kafka_consumer_groups(
    run: Callable[..., str], bootstrap: str, reference: Client, topic: str, group: str
) -> None:
    reference.produce(topic, numbers(10))
    member = reference.open(Reading(topics=[topic], group=group))
    member.take(10)
    member.commit({TopicPartition(topic, 0): 4})
    tool = (_TOOLS + "consumer.group.ConsumerGroupCommand", "--bootstrap-server", bootstrap)
    assert group in run(*tool, "--list").split()
    row = re.search(rf"{topic}\s+0\s+(\d+)\s+(\d+)\s+(\d+)", run(*tool, "--describe", "--group", group))
    assert row is not None and row.groups() == ("4", "10", "6")
    assert "Stable" in run(*tool, "--describe", "--group", group, "--state")
    assert re.search(
        r"rdkafka\s+1\s+.*\(0\)", run(*tool, "--describe", "--group", group, "--members", "--verbose")
    )
    member.close()
    run(*tool, "--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "7", "--execute")
    assert re.search(rf"{topic}\s+0\s+7\s+10\s+3", run(*tool, "--describe", "--group", group))
    run(*tool, "--group", group, "--topic", topic, "--delete-offsets")
    run(*tool, "--delete", "--group", group)
    assert group not in run(*tool, "--list").split()


def test_perf_tests(run: Callable[..., str], bootstrap: str, topic: str) -> None:
    shape = ("--num-records", "20000", "--record-size", "200", "--throughput", "-1")
    produced = run(
        _TOOLS + "ProducerPerformance",
        *(
            "--topic",
            topic,
            *shape,
            "--producer-props",
            f"bootstrap.servers={bootstrap}",
            "compression.type=lz4",
        ),
    )
    assert "20000 records sent" in produced
    consumed = run(
        _TOOLS + "ConsumerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--messages", "20000", "--timeout", "20000"),
    )
    assert "20000" in consumed.splitlines()[-1]


def test_offsets_records_and_versions(
    run: Callable[..., str],
    bootstrap: str,
    reference: Client,
    topic: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    reference.produce(topic, numbers(10))
    server = ("--bootstrap-server", bootstrap)
    assert f"{topic}:0:10" in run(_TOOLS + "GetOffsetShell", *server, "--topic", topic)
    plan = tmp_path_factory.mktemp("delete") / "records.json"
    plan.write_text(f'{{"version": 1, "partitions": [{{"topic": "{topic}", "partition": 0, "offset": 6}}]}}')
    run(_TOOLS + "DeleteRecordsCommand", *server, "--offset-json-file", str(plan))
    assert f"{topic}:0:6" in run(_TOOLS + "GetOffsetShell", *server, "--topic", topic, "--time", "earliest")
    versions = run("kafka.admin.BrokerApiVersionsCommand", *server)
    assert "Produce(0): 0 to 9" in versions and "Fetch(1): 4 to 17" in versions
    quorum = run("org.apache.kafka.tools.MetadataQuorumCommand", *server, "describe", "--status")
    assert re.search(r"LeaderId:\s+\d+", quorum) and "CurrentVoters" in quorum
    assert topic in run(_TOOLS + "LogDirsCommand", *server, "--describe", "--topic-list", topic)
