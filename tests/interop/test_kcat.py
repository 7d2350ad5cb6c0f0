"""What kcat does its own way: a group whose members commit by themselves as they end, and its lists."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.interop.clients.cache import need_program
from tests.interop.clients.port import Client, Message

_RUN_S = 120


def kcat(bootstrap: str, *words: str, data: bytes = b"") -> str:
    """What it prints."""
    command = [need_program("kcat"), "-b", bootstrap, *words]
    done = subprocess.run(command, input=data, capture_output=True, timeout=_RUN_S, check=True)
    return done.stdout.decode()


def test_a_group_goes_on_where_the_last_run_ended(
    bootstrap: str, reference: Client, topic: str, group: str
) -> None:
    reference.produce(topic, [Message(value=b"%d" % n, partition=0) for n in range(10)])
    words = ("-q", "-X", "auto.offset.reset=earliest", "-c", "4", "-G", group, topic)
    assert kcat(bootstrap, *words).split() == ["0", "1", "2", "3"]
    assert kcat(bootstrap, *words).split() == ["4", "5", "6", "7"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_lines_piped_in_come_out(bootstrap: str, topic: str, codec: str) -> None:
    lines = "".join(f"line {n}\n" for n in range(500))
    kcat(bootstrap, "-P", "-t", topic, "-z", codec, data=lines.encode())
    assert kcat(bootstrap, "-C", "-q", "-e", "-t", topic, "-o", "beginning") == lines


def test_the_list_shows_the_broker_and_the_topics(bootstrap: str, wide_topic: str) -> None:
    listed = json.loads(kcat(bootstrap, "-L", "-J"))
    port = bootstrap.rpartition(":")[2]
    assert [broker["name"].rpartition(":")[2] for broker in listed["brokers"]] == [port]
    assert listed["controllerid"] == listed["brokers"][0]["id"]
    partitions = {topic["topic"]: len(topic["partitions"]) for topic in listed["topics"]}
    assert partitions[wide_topic] == 4
