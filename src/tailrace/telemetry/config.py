"""Where telemetry goes, what is sent, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from urllib.parse import urlsplit

from tailrace.model import ConfigError

_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """What one node sends."""

    endpoint: str  # the collector's address, without the /v1/traces and /v1/metrics that are added to it
    traces: bool = True
    metrics: bool = True
    interval_s: float = 15.0
    sample_one_in: int = 100  # of the requests by the Kafka and native listeners, so many give one span
    timeout_s: float = 10.0  # for one message to the collector, with all its tries, if it is silent
    send_timeout_s: float = 60.0  # for all messages of one moment, whatever the collector does
    close_timeout_s: float = 3.0  # for the last ones
    spans_max: int = 4_096  # that wait to be sent; what comes on top is dropped
    points_max: int = 5_000  # of figures in one message

    def url(self, signal: str) -> str:
        """Where `traces` or `metrics` are posted to."""
        return f"{self.endpoint.rstrip('/')}/v1/{signal}"


def check_installed() -> None:
    """ConfigError if what speaks OTLP is not there."""
    try:
        for module in _NEEDED:
            import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"telemetry.otlp_endpoint is set, and OpenTelemetry is not installed ({error}). "
            "Try: pip install 'tailrace[otel]'; or leave the endpoint empty"
        ) from error


def check_endpoint(text: str) -> None:
    """ValueError unless a text is empty, or the address of something that speaks HTTP."""
    if not text:
        return
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("http://HOST:PORT")
    _ = parts.port  # ValueError if it is no number
