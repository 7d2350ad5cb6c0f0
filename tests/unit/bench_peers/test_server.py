"""How servers are found, configured, started and ended; with a small program in the place of a real one."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.server import KafkaServer, NatsServer, NotHere, RedisServer, Server, TailraceServer
from bench.server.kafka import cache_directory, project_file, read_java_major, server_properties
from bench.server.process import exchange, find_program, output_of

from tailrace.bench.wire.accounting import tree_usage

ECHO = """
import signal, socket, sys
{before}
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.recv(10)
            connection.sendall(b"hello")
"""


class Program(Server):
    """A server that says hello."""

    name = "program"

    def __init__(self, *, before: str = "") -> None:
        super().__init__()
        self._before = before

    def find(self) -> None:
        """It is here."""

    def configure(self, directory: Path) -> Sequence[str]:
        (directory / "echo.py").write_text(ECHO.format(before=self._before))
        return [sys.executable, str(directory / "echo.py"), str(self.port)]

    def answers(self) -> bool:
        return exchange(self.port, b"?") == b"hello"


@pytest.mark.parametrize("before", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_server_is_ready_when_it_answers_and_gone_when_it_is_stopped(
    tmp_path: Path, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.server.process._STOP_S", 1.0)
    server = Program(before=before)

    took_s = server.start(tmp_path)
    pid = server.pid
    assert took_s > 0
    assert server.usage() is not None
    server.stop()

    assert tree_usage(pid) is None
    server.stop()  # a second time is nothing


def test_a_server_that_ends_at_once_is_not_here_and_says_why(tmp_path: Path) -> None:
    with pytest.raises(NotHere, match="status 3: the disk is on fire"):
        Program(before="print('the disk is on fire', flush=True); sys.exit(3)").start(tmp_path)


def test_a_server_that_never_answers_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.server.process._READY_S", 0.2)

    with pytest.raises(NotHere, match="did not serve"):
        Program(before="signal.pause()").start(tmp_path)


def test_a_program_that_is_missing_names_its_package() -> None:
    with pytest.raises(NotHere, match="apt-get install no-package"):
        find_program("no-such-program", package="no-package")


@pytest.mark.parametrize("command", [["/no/such/program"], [sys.executable, "-c", "raise SystemExit('no')"]])
def test_a_command_that_fails_is_not_here(command: list[str]) -> None:
    with pytest.raises(NotHere):
        output_of(command)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "22-ea" 2024-03-19', 22),
    ],
)
def test_the_version_of_java_is_understood(text: str, major: int) -> None:
    assert read_java_major(text) == major


@pytest.mark.parametrize("text", ["", "command not found", 'version ""'])
def test_what_is_no_java_is_not_here(text: str) -> None:
    with pytest.raises(NotHere):
        read_java_major(text)


def program(directory: Path, name: str, says: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_an_old_java_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "java", 'java version "1.8.0"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(NotHere, match="needs Java 17, and java is 8"):
        KafkaServer(tmp_path / "cache").find()


def test_an_old_nats_cannot_be_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nats-server", "nats-server: v2.9.10")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    NatsServer(durable=False).find()
    with pytest.raises(NotHere, match=r"2\.10 and later can"):
        NatsServer(durable=True).find()


def test_an_old_redis_has_no_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "redis-server", "Redis server v=4.0.9 sha=0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(NotHere, match="too old"):
        RedisServer().find()


def test_downloads_stay_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory() == Path("/somewhere/tailrace-bench")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "tailrace-bench"


def test_kafka_is_its_own_controller_on_loopback() -> None:
    lines = server_properties(Path("/data"), port=1, controller_port=2).splitlines()

    assert "process.roles=broker,controller" in lines
    assert "controller.quorum.voters=1@127.0.0.1:2" in lines
    assert "log.dirs=/data" in lines


def test_maven_is_asked_for_broker_and_tools() -> None:
    assert project_file().count("<dependency>") == 2
    assert "kafka_2.13" in project_file() and "kafka-tools" in project_file()


def test_tailrace_itself_serves_and_ends(tmp_path: Path) -> None:
    server = TailraceServer(fsync="os")
    server.start(tmp_path)
    try:
        assert server.answers()
    finally:
        server.stop()
