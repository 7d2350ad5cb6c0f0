"""A collector that takes OTLP over HTTP on a free port of this machine, and remembers what it was told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

DEADLINE_S = 120.0


class Collector:
    """What came, decoded."""

    def __init__(self) -> None:
        self.status = 200  # what it answers
        self.requests: list[str] = []  # paths
        self.spans: list[Span] = []
        self.metrics: dict[str, Metric] = {}  # the newest of each name
        self.resources: list[dict[str, str]] = []
        self._told = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(DEADLINE_S)

    def wait(self, condition: Callable[[Collector], bool]) -> None:
        """Until so much came; a test that waits in vain fails."""
        with self._told:
            assert self._told.wait_for(lambda: condition(self), DEADLINE_S), (self.requests, self.spans)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def take(self, path: str, body: bytes) -> int:
        with self._told:
            self.requests.append(path)
            if self.status == 200:
                self._decode(path, body)
            self._told.notify_all()
        return self.status

    def _decode(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for traced in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(_texts(traced.resource.attributes))
                self.spans += [span for scope in traced.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.resources.append(_texts(measured.resource.attributes))
                for scope in measured.scope_metrics:
                    self.metrics.update({metric.name: metric for metric in scope.metrics})
        else:
            self.status = 404

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(collector.take(self.path, body))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing to standard error."""

        return Handler


def _texts(attributes: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in attributes}


def attributes_of(holder: Any) -> dict[str, str | int]:
    """Attributes of a span or of a point."""
    return {
        each.key: each.value.int_value if each.value.HasField("int_value") else each.value.string_value
        for each in holder.attributes
    }
