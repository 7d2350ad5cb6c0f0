"""Settings of telemetry: which endpoints are taken, and what is said where OpenTelemetry is not installed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tailrace.model import ConfigError
from tailrace.server.assembly import telemetry_config
from tailrace.server.config import ServerConfig
from tailrace.server.configuration import read_config
from tailrace.server.node import Node
from tailrace.telemetry.config import TelemetryConfig, check_endpoint

VARIABLE = "TAILRACE_TELEMETRY__OTLP_ENDPOINT"


@pytest.mark.parametrize(
    "text", ["", "http://127.0.0.1:4318", "https://collector.lan", "http://[::1]:4318/otlp/"]
)
def test_addresses_of_collectors_are_taken(text: str) -> None:
    check_endpoint(text)


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1:4318", "ftp://a", "http://", "grpc://a:4317", "http://a:b", "http://a?x=1", "http://a#x"],
)
def test_anything_else_is_refused_with_an_example(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"otlp_endpoint.*http://127\.0\.0\.1:4318"):
        read_config(environment={VARIABLE: text}, directory=tmp_path)
    with pytest.raises(ConfigError, match=r"otlp_endpoint.*http://127\.0\.0\.1:4318"):
        telemetry_config(ServerConfig(telemetry_endpoint=text))


@pytest.mark.parametrize("name", ["INTERVAL_S", "SAMPLE_ONE_IN"])
@pytest.mark.parametrize("text", ["0", "-1", "often"])
def test_numbers_that_make_no_sense_are_refused(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=name.lower()):
        read_config(environment={f"TAILRACE_TELEMETRY__{name}": text}, directory=tmp_path)


def test_settings_reach_what_sends(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="pip install 'tailrace[otel]'")
    environment = {
        VARIABLE: "http://127.0.0.1:4318",
        "TAILRACE_TELEMETRY__TRACES": "false",
        "TAILRACE_TELEMETRY__INTERVAL_S": "7",
        "TAILRACE_TELEMETRY__SAMPLE_ONE_IN": "9",
    }
    config = telemetry_config(read_config(environment=environment, directory=tmp_path).server())
    assert config == TelemetryConfig(
        endpoint="http://127.0.0.1:4318", traces=False, metrics=True, interval_s=7, sample_one_in=9
    )


def test_it_is_off_by_default_and_where_nothing_is_wanted(tmp_path: Path) -> None:
    assert telemetry_config(read_config(environment={}, directory=tmp_path).server()) is None
    nothing = ServerConfig(
        telemetry_endpoint="http://127.0.0.1:4318", telemetry_traces=False, telemetry_metrics=False
    )
    assert telemetry_config(nothing) is None


@pytest.mark.parametrize("endpoint", ["http://c:1", "http://c:1/"])
def test_signals_have_addresses_of_their_own(endpoint: str) -> None:
    assert TelemetryConfig(endpoint=endpoint).url("traces") == "http://c:1/v1/traces"


def test_a_node_without_opentelemetry_refuses_to_start_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    data_dir = tmp_path / "data"
    config = ServerConfig(
        data_dir=data_dir, kafka_port=0, native_port=0, telemetry_endpoint="http://127.0.0.1:4318"
    )

    async def main() -> None:
        with pytest.raises(ConfigError, match=r"pip install 'tailrace\[otel\]'"):
            await Node(config, owns_loop=False).start()

    asyncio.run(main())
    assert not data_dir.exists()
