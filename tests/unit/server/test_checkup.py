"""What `tailrace doctor` looks at: real directories, sockets and brokers, and a few limits made up here."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.certificates import certificates
from tests.port import refusing_port

import tailrace
from tailrace.broker.health import Finding
from tailrace.model import ConfigError
from tailrace.model.address import Address
from tailrace.net.tls import TlsConfig
from tailrace.server import checkup
from tailrace.server.checkup import examine, judge_expiry, judge_syncs, measure_syncs
from tailrace.server.config import ServerConfig
from tailrace.server.listener import ListenerConfig
from tailrace.server.ports import Ports, write_ports
from tailrace.testing.port import free_port


class Usage(NamedTuple):
    free: int


def by_check(config: ServerConfig, bootstrap: str | None = None) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(config, bootstrap=bootstrap)}


def config(data_dir: Path, **fields: object) -> ServerConfig:
    return ServerConfig(**{"data_dir": data_dir, "kafka_port": 0, "native_port": 0, **fields})  # type: ignore[arg-type]


def test_a_sound_machine_has_no_problem_and_nothing_is_left_behind(tmp_path: Path) -> None:
    findings = by_check(config(tmp_path))
    assert not [finding for finding in findings.values() if finding.status == "problem"]
    assert list(findings) == [
        "python",
        "compiled module",
        "uvloop",
        "file descriptors",
        "data directory",
        "fsync latency",
        "free space",
        "clock",
        "Kafka port",
        "native port",
        "broker",
    ]
    assert os.listdir(tmp_path) == []


def test_the_memory_engine_needs_no_disk(tmp_path: Path) -> None:
    assert "fsync latency" not in by_check(config(tmp_path, engine="memory"))


def test_a_directory_that_is_not_there_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    finding = by_check(config(tmp_path / "a" / "b"))["data directory"]
    assert finding.status == "ok"
    assert f"not there yet, {tmp_path} is" in finding.found
    assert os.listdir(tmp_path) == []


def test_a_directory_that_may_not_be_looked_at_is_judged_by_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(path: os.PathLike[str] | str, **options: Any) -> os.stat_result:
        if os.fspath(path) == str(tmp_path / "secret"):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, **options)

    stat = os.stat
    monkeypatch.setattr(os, "stat", look)
    assert f"not there yet, {tmp_path} is" in by_check(config(tmp_path / "secret"))["data directory"].found


def test_a_directory_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    findings = by_check(config(tmp_path / "file"))
    assert findings["data directory"].status == "problem"
    assert "--data-dir" in findings["data directory"].advice
    assert "fsync latency" not in findings


def test_too_little_space_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(free=1 << 20))
    finding = by_check(config(tmp_path))["free space"]
    assert finding.status == "problem"
    assert "64 MiB" in finding.advice


@pytest.mark.parametrize(
    ("soft", "status"),
    [(128, "problem"), (1024, "warning"), (65536, "ok"), (resource.RLIM_INFINITY, "ok")],
)
def test_file_descriptors(monkeypatch: pytest.MonkeyPatch, soft: int, status: str) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, 1 << 20))
    assert checkup.check_descriptors().status == status


def test_syncs_are_measured(tmp_path: Path) -> None:
    latencies_ms = measure_syncs(tmp_path, count=5)
    assert len(latencies_ms) == 5
    assert all(each > 0 for each in latencies_ms)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("latencies_ms", "status", "word"),
    [
        ([0.2] * 40, "ok", ""),
        ([25.0] * 40, "warning", "--fsync interval:200"),
        ([0.001] * 40, "warning", "No disk"),
    ],
)
def test_what_sync_latency_means(latencies_ms: list[float], status: str, word: str) -> None:
    finding = judge_syncs(latencies_ms)
    assert finding.status == status
    assert word in finding.advice
    assert f"p50 {latencies_ms[0]:.2f} ms, p99" in finding.found


def test_a_port_of_somebody_else_is_named_and_does_not_pass_for_a_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        kafka, native = checkup.check_ports(config(tmp_path, kafka_port=port))
    assert (kafka.check, kafka.status, native.status) == ("Kafka port", "warning", "ok")
    assert f"{port} is in use by pid {os.getpid()}" in kafka.found


def test_whoever_does_not_answer_is_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (finding,) = checkup.check_broker(f"127.0.0.1:{silent.getsockname()[1]}")
    assert finding.status == "problem"
    assert "does not answer as a Kafka broker" in finding.found


def test_a_free_port_is_free(tmp_path: Path) -> None:
    port = free_port()
    findings = by_check(config(tmp_path, kafka_port=port))
    assert findings["Kafka port"].found == f"{port} is free"
    assert findings["native port"].found == "any free one will be taken"
    assert findings["broker"].found == "none runs here"


def test_a_running_broker_is_asked_as_a_client_asks(tmp_path: Path) -> None:
    with tailrace.Broker() as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        write_ports(tmp_path, Ports(pid=os.getpid(), kafka=port))
        findings = by_check(config(tmp_path, kafka_port=port))
        elsewhere = by_check(config(tmp_path / "other"), bootstrap=broker.bootstrap_servers)
    assert findings["Kafka port"].found == f"{port} is served by the broker of pid {os.getpid()}"
    assert findings["broker"].found.startswith(f"127.0.0.1:{port} answers, cluster ")
    assert findings["advertised address of node 1"].found == f"127.0.0.1:{port}, reachable from here"
    assert elsewhere["broker"].status == "ok"


def test_an_address_that_clients_cannot_reach_is_a_problem() -> None:
    with refusing_port() as port:
        finding = checkup._check_advertised(1, host="127.0.0.1", port=port)
    assert finding.status == "problem"
    assert "server.advertised" in finding.advice


def test_the_file_of_a_dead_broker_does_not_count(tmp_path: Path) -> None:
    child = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(child, 0)
    write_ports(tmp_path, Ports(pid=child, kafka=9092))
    assert checkup.live_ports(tmp_path) is None


def test_a_bootstrap_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        by_check(config(tmp_path), bootstrap="host:port")


# ---- certificates


def test_the_certificate_of_each_listener_is_looked_at(tmp_path: Path) -> None:
    good = certificates(tmp_path).config()
    bad = TlsConfig(cert=tmp_path / "none.crt", key=good.key)
    listeners = tuple(
        ListenerConfig(name=name, protocol=protocol, address=Address("127.0.0.1", 0), tls=tls)
        for name, protocol, tls in (("kafka", "kafka", good), ("native", "native", bad))
    )
    found = by_check(config(tmp_path / "data", engine="memory", listeners=listeners))
    assert found["certificate of listener kafka"].found in ("expires in 365 days", "expires in 364 days")
    wrong = found["certificate of listener native"]
    assert wrong.status == "problem" and "cannot read tls cert" in wrong.found


@pytest.mark.parametrize(
    ("days", "status"), [(22.0, "ok"), (21.0, "warning"), (0.5, "warning"), (-3.0, "problem")]
)
def test_a_certificate_that_ends_soon_is_warned_of(days: float, status: str) -> None:
    assert judge_expiry("x", days).status == status
