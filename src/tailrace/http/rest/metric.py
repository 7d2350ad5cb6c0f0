"""/metrics for Prometheus, and /api/v1/metrics: the same figures as JSON, with what they were a while ago.

Rates are those between the newest two samples (`tailrace.metrics.sampler`), and null before there are two. A
series ends at `end_ms`; its values are `interval_ms` apart, the oldest first.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from starlette.responses import Response

from tailrace.broker.topic import Topic
from tailrace.http.error import Code
from tailrace.http.older_name import older_name_of
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.http.rest.group import known_group
from tailrace.http.rest.topic import topic_of
from tailrace.http.service import HttpService
from tailrace.metrics.history import Figure
from tailrace.metrics.sampler import Sample, Sampler
from tailrace.metrics.topic_rates import COLUMNS
from tailrace.model import BrokerId
from tailrace.model.operation import Operation as AclOperation

_SPARKLINE = 20
_BREATH_TOPICS = 50
_TEXT = "text/plain"
_OPEN_METRICS = "application/openmetrics-text"


class MetricsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much is shown."""

    partitions: bool = False  # every partition, and not only those of the most active topics


class Series(msgspec.Struct, frozen=True):
    """Figures of the last while, by name; null is what was not measured."""

    interval_ms: int
    end_ms: int | None  # null while there are none
    series: dict[str, list[float | None]]


class BrokerFigures(msgspec.Struct, frozen=True):
    """A node: its counters now, and what it did between the newest two samples."""

    node_id: int
    at_ms: int
    records_in_total: int
    bytes_in_total: int
    records_out_total: int
    bytes_out_total: int
    records_in_per_s: float | None
    bytes_in_per_s: float | None
    records_out_per_s: float | None
    bytes_out_per_s: float | None
    requests_per_s: float | None
    errors_per_s: float | None
    produce_p50_ms: float | None
    produce_p99_ms: float | None
    flush_p99_ms: float | None
    cpu_share: float | None  # 1: as much as one core has
    lag: int | None  # of groups and subscriptions together
    disk_bytes: int | None  # what the logs take, on disk or in memory
    disk_free_bytes: int | None  # of the newest sample; null where the logs are in memory
    memory_bytes: int | None
    loop_lag_ms: float | None  # the worst between two samples
    connections: dict[str, int]  # by listener
    streams: int
    history: Series


class BrokerList(msgspec.Struct, frozen=True):
    """Every node."""

    brokers: list[BrokerFigures]


class TopicFigures(msgspec.Struct, frozen=True):
    """A topic: what it holds, and what happens on it. Rates are null if too many topics are busy."""

    name: str
    records: int  # offsets that can be read
    bytes: int
    records_in_total: int
    records_out_total: int
    records_in_per_s: float | None
    bytes_in_per_s: float | None
    records_out_per_s: float | None
    bytes_out_per_s: float | None
    sparkline: list[float | None]  # the newest twenty records_in_per_s
    topic: Annotated[str, older_name_of("name")]


class TopicFiguresList(msgspec.Struct, frozen=True):
    """Every topic, by name, but for the broker's own."""

    interval_ms: int
    end_ms: int | None
    topics: list[TopicFigures]


class TopicHistory(TopicFigures, frozen=True):
    """A topic with what happened on it."""

    history: Series


class LagHistory(msgspec.Struct, frozen=True):
    """How far behind a reader was."""

    interval_ms: int
    end_ms: int | None
    lag: list[float | None]


# ---- handlers


async def get_metrics(call: Call[MetricsQuery, NoBody]) -> Response:
    call.access.cluster(AclOperation.DESCRIBE)
    accept = call.request.headers.get("accept", "")
    text, media = await call.service.metrics.exporter.render(accept, by_partition=call.query.partitions)
    return Response(text, headers={"content-type": media})


async def list_brokers(call: Call[NoQuery, NoBody]) -> BrokerList:
    node_id = call.access.cluster(AclOperation.DESCRIBE).node_id
    return BrokerList(brokers=[_broker_figures(call.service, node_id)])


async def list_topics(call: Call[NoQuery, NoBody]) -> TopicFiguresList:
    sampler = call.service.metrics.sampler
    shown = []
    for place, topic in enumerate(call.access.topics(AclOperation.DESCRIBE), start=1):
        if not topic.internal:
            shown.append(_topic_figures(sampler, topic))
        if place % _BREATH_TOPICS == 0:
            await asyncio.sleep(0)
    return TopicFiguresList(interval_ms=sampler.interval_ms, end_ms=_end_ms(sampler), topics=shown)


async def get_topic(call: Call[NoQuery, NoBody]) -> TopicHistory:
    sampler = call.service.metrics.sampler
    topic = topic_of(call.access, call.params["topic"], AclOperation.DESCRIBE)
    figures = _topic_figures(sampler, topic)
    return TopicHistory(**msgspec.structs.asdict(figures), history=_topic_series(sampler, topic))


async def get_group(call: Call[NoQuery, NoBody]) -> LagHistory:
    sampler = call.service.metrics.sampler
    group = known_group(call.access, call.params["group"]).group_id
    return _lag_history(sampler, sampler.group_lag(group))


async def get_subscription(call: Call[NoQuery, NoBody]) -> LagHistory:
    name = call.params["subscription"]
    call.access.subscription(name, AclOperation.DESCRIBE)
    sampler = call.service.metrics.sampler
    return _lag_history(sampler, sampler.subscription_lag(name))


# ---- figures


def _broker_figures(service: HttpService, node_id: BrokerId) -> BrokerFigures:
    metrics, sampler = service.metrics, service.metrics.sampler
    totals, sample = service.gate.counters.totals(), sampler.newest
    rates = None if sample is None else sample.rates
    return BrokerFigures(
        node_id=node_id,
        at_ms=service.clock.now_ms(),
        records_in_total=totals.records_in,
        bytes_in_total=totals.bytes_in,
        records_out_total=totals.records_out,
        bytes_out_total=totals.bytes_out,
        records_in_per_s=None if rates is None else rates.records_in_per_s,
        bytes_in_per_s=None if rates is None else rates.bytes_in_per_s,
        records_out_per_s=None if rates is None else rates.records_out_per_s,
        bytes_out_per_s=None if rates is None else rates.bytes_out_per_s,
        requests_per_s=None if rates is None else rates.requests_per_s,
        errors_per_s=None if rates is None else rates.errors_per_s,
        produce_p50_ms=None if rates is None else rates.produce_p50_ms,
        produce_p99_ms=None if rates is None else rates.produce_p99_ms,
        flush_p99_ms=None if rates is None else rates.flush_p99_ms,
        cpu_share=None if rates is None else rates.cpu_share,
        lag=None if sample is None else sample.lag,
        disk_bytes=None if sample is None else sample.disk_bytes,
        disk_free_bytes=metrics.disk_free_bytes,
        memory_bytes=None if sample is None else sample.memory_bytes,
        loop_lag_ms=None if sample is None else sample.loop_lag_ms,
        connections={name: counters.connections for name, counters in metrics.listeners.items()},
        streams=service.streams,
        history=Series(
            interval_ms=sampler.interval_ms,
            end_ms=_end_ms(sampler),
            series=sampler.node_series(),
        ),
    )


def _topic_figures(sampler: Sampler, topic: Topic) -> TopicFigures:
    held = [each for each in topic.partitions if each.is_held_here]
    counters = topic.counters
    sparkline = sampler.topics.column(topic, COLUMNS[0], tick=sampler.tick, count=_SPARKLINE)
    newest = {name: _last(sampler.topics.column(topic, name, tick=sampler.tick, count=1)) for name in COLUMNS}
    return TopicFigures(
        name=topic.name,
        topic=topic.name,
        records=sum(each.high_watermark - each.start_offset for each in held),
        bytes=sum(each.size_bytes for each in held),
        records_in_total=counters.records_in,
        records_out_total=counters.records_out,
        sparkline=[*[0.0] * (_SPARKLINE - len(sparkline)), *sparkline],
        **newest,
    )


def _topic_series(sampler: Sampler, topic: Topic) -> Series:
    series = {name: sampler.topics.column(topic, name, tick=sampler.tick) for name in COLUMNS}
    return Series(interval_ms=sampler.interval_ms, end_ms=_end_ms(sampler), series=series)


def _lag_history(sampler: Sampler, lag: list[Figure]) -> LagHistory:
    return LagHistory(interval_ms=sampler.interval_ms, end_ms=_end_ms(sampler), lag=lag)


def _end_ms(sampler: Sampler) -> int | None:
    sample: Sample | None = sampler.newest
    return None if sample is None else sample.at_ms


def _last(column: list[Figure]) -> Figure:
    return column[-1] if column else None


_METRICS = "/api/v1/metrics"

OPERATIONS = (
    Operation(
        method="GET",
        path="/metrics",
        name="getMetrics",
        tag="metrics",
        summary="Everything that is measured, for Prometheus",
        doc="By topic, group and subscription. The names of kafka_exporter are among them; with "
        "`partitions` they, and some of ours, are shown for every partition.",
        handler=get_metrics,
        query=MetricsQuery,
        answer=None,
        gives={
            _TEXT: "Prometheus' text format",
            _OPEN_METRICS: "OpenMetrics, for who accepts it",
        },
    ),
    Operation(
        method="GET",
        path=f"{_METRICS}/brokers",
        name="listBrokerMetrics",
        tag="metrics",
        summary="What every node does, now and in the last hour",
        handler=list_brokers,
        answer=BrokerList,
    ),
    Operation(
        method="GET",
        path=f"{_METRICS}/topics",
        name="listTopicMetrics",
        tag="metrics",
        summary="What every topic holds, and what happens on it",
        handler=list_topics,
        answer=TopicFiguresList,
    ),
    Operation(
        method="GET",
        path=f"{_METRICS}/topics/{{topic}}",
        name="getTopicMetrics",
        tag="metrics",
        summary="What a topic holds, and what happened on it in the last minutes",
        handler=get_topic,
        answer=TopicHistory,
        fails=(Code.TOPIC_NOT_FOUND,),
    ),
    Operation(
        method="GET",
        path=f"{_METRICS}/groups/{{group:path}}",  # a name may have slashes in it
        name="getGroupMetrics",
        tag="metrics",
        summary="How far behind a consumer group was",
        handler=get_group,
        answer=LagHistory,
        fails=(Code.GROUP_NOT_FOUND, Code.BROKER_NOT_AVAILABLE),
    ),
    Operation(
        method="GET",
        path=f"{_METRICS}/subscriptions/{{subscription}}",
        name="getSubscriptionMetrics",
        tag="metrics",
        summary="How far behind a subscription was",
        handler=get_subscription,
        answer=LagHistory,
        fails=(Code.SUBSCRIPTION_NOT_FOUND, Code.BROKER_NOT_AVAILABLE),
    ),
)
