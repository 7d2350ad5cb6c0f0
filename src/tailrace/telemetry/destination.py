"""The collector: messages go out from a thread, one at a time.

OpenTelemetry's exporters try again for a while, and tell their loggers of every try. What they tell of ours
is caught here: `export` says once that something is wrong, and why.

Certificates and headers, as for a collector that wants a token, come out of OpenTelemetry's own variables:
OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar

from opentelemetry.exporter.otlp.proto.http import metric_exporter, trace_exporter
from opentelemetry.sdk.metrics.export import (
    Metric,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tailrace.telemetry.config import TelemetryConfig

SCOPE = "tailrace"
_UNKNOWN = "it does not say why"

_heard: ContextVar[list[str] | None] = ContextVar("heard", default=None)
"""What the exporters had to say since a message of ours was begun; None: it is none of ours."""


class NotDelivered(Exception):
    """The collector did not take a message; the text says why."""


class Destination:
    """One collector, for one node. Everything here blocks."""

    def __init__(self, config: TelemetryConfig, *, version: str, instance: str) -> None:
        self._config = config
        self.resource = _resource(version=version, instance=instance)
        self._scope = InstrumentationScope(SCOPE, version)
        self._spans = trace_exporter.OTLPSpanExporter(config.url("traces"), timeout=config.timeout_s)
        self._metrics = metric_exporter.OTLPMetricExporter(config.url("metrics"), timeout=config.timeout_s)
        for logger in _loggers():
            logger.addFilter(_catch)

    def __repr__(self) -> str:
        return f"<Destination {self._config.endpoint}>"

    def send_spans(self, spans: Sequence[ReadableSpan]) -> None:
        """NotDelivered if the collector does not take them."""
        _deliver(lambda: self._spans.export(spans) is SpanExportResult.SUCCESS)

    def send_metrics(self, messages: Iterable[Sequence[Metric]]) -> None:
        """NotDelivered with the first that the collector does not take."""
        for metrics in messages:
            data = self._message(metrics)
            _deliver(lambda data=data: self._metrics.export(data) is MetricExportResult.SUCCESS)  # type: ignore[misc]

    def shutdown(self) -> None:
        """No more is sent; what is being tried again gives up."""
        self._spans.shutdown()  # type: ignore[no-untyped-call]
        self._metrics.shutdown()

    def _message(self, metrics: Sequence[Metric]) -> MetricsData:
        scoped = ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        return MetricsData(
            resource_metrics=[ResourceMetrics(resource=self.resource, scope_metrics=[scoped], schema_url="")]
        )


def _deliver(send: Callable[[], bool]) -> None:
    heard: list[str] = []
    token = _heard.set(heard)
    try:
        if not send():
            raise NotDelivered(heard[0] if heard else _UNKNOWN)
    except OSError as error:  # some versions let through what their HTTP client raises
        raise NotDelivered(str(error)) from error
    finally:
        _heard.reset(token)


def _resource(*, version: str, instance: str) -> Resource:
    """Who sends this; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word."""
    ours = Resource.create(
        {"service.name": "tailrace", "service.version": version, "service.instance.id": instance}
    )
    return ours.merge(OTELResourceDetector().detect())


def _loggers() -> list[logging.Logger]:
    return [logging.getLogger(module.__name__) for module in (trace_exporter, metric_exporter)]


def _catch(record: logging.LogRecord) -> bool:
    """A logging filter: keep what an exporter says of a message of ours, and let all else pass."""
    heard = _heard.get()
    if heard is None:
        return True
    heard.append(record.getMessage())
    return False
