"""Loads over the wire against an embedded broker, with tiny numbers: they run, and leave nothing behind."""

from __future__ import annotations

import os

import pytest
from bench.generator import run_job
from bench.load import PRODUCERS, WIRE, WireJob, WireLoad

from tailrace.bench.wire import LoadError
from tailrace.bench.wire.topic import METADATA, admin
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse


def topics_at(address: tuple[str, int]) -> list[str]:
    with admin(*address) as client:
        answer = client.ask(METADATA, MetadataRequest(topics=None), MetadataResponse)
        return [topic.name or "" for topic in answer.topics if not topic.is_internal]


@pytest.mark.parametrize("load", [*WIRE, *PRODUCERS], ids=lambda load: load.name)
def test_every_wire_load_runs(address: tuple[str, int], load: WireLoad) -> None:
    host, port = address
    job = WireJob(
        dialect="kafka",
        host=host,
        port=port,
        durable=False,
        pid=os.getpid(),
        parts=load.parts,
        warm_s=0.0,
        seconds=0.5,
    )

    found = run_job(WireJob.from_row({**job.as_row(), "parts": [dict(part) for part in _rows(job)]}))

    assert isinstance(found["count"], int)
    assert found["count"] > 0
    assert {"per_s", "mb_per_s", "p50_ms", "p99_ms", "p999_ms", "cpu_us", "rss_mb"} <= set(found)
    assert topics_at(address) == []


def _rows(job: WireJob) -> list[dict[str, object]]:
    parts = job.as_row()["parts"]
    assert isinstance(parts, tuple)
    return list(parts)


def test_a_topic_that_is_there_is_not_made_again(address: tuple[str, int]) -> None:
    with admin(*address) as client:
        client.create("t", partitions=2, configs={})
        assert client.led("t", partitions=2)
        assert not client.led("t", partitions=3)
        with pytest.raises(LoadError, match="TOPIC_ALREADY_EXISTS"):
            client.create("t", partitions=2, configs={})
