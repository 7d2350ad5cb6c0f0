"""RabbitMQ: one node with its own Erlang port mapper, so that nothing is left behind when it ends.

Streams are its log that does not sync before it confirms, quorum queues are what does; the dialect chooses.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.server.process import HOST, Server, exchange, find_program, output_of
from tailrace.testing.port import free_port

_PROTOCOL = b"AMQP\x00\x00\x09\x01"
_SCRIPTS = Path("/usr/lib/rabbitmq/bin")


class RabbitServer(Server):
    """One rabbitmq-server, and the port mapper that Erlang asks for."""

    name = "rabbitmq"

    def __init__(self) -> None:
        super().__init__()
        self._program = ""
        self._mapper_program = ""
        self._mapper_port = 0
        self._mapper: subprocess.Popen[bytes] | None = None

    def find(self) -> None:
        # Debian's wrapper in sbin changes to the user rabbitmq, who may not write into our directory.
        script = _SCRIPTS / "rabbitmq-server"
        self._program = (
            str(script) if script.exists() else find_program("rabbitmq-server", package="rabbitmq-server")
        )
        self._mapper_program = find_program("epmd", package="erlang-base")
        control = _SCRIPTS / "rabbitmqctl"
        self.version = output_of([str(control), "version"]).strip() if control.exists() else "unknown"

    def configure(self, directory: Path) -> Sequence[str]:
        self._mapper_port = free_port()
        self._mapper = subprocess.Popen(
            [self._mapper_program, "-address", HOST, "-port", str(self._mapper_port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = {HOST}:{self.port}\nloopback_users.guest = true\n"
            "disk_free_limit.absolute = 100MB\nlog.file.level = warning\n"
        )
        (directory / "plugins").write_text("[].\n")
        return [self._program]

    def environment(self, directory: Path) -> Mapping[str, str]:
        return {
            "HOME": str(directory),  # where Erlang keeps its cookie
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
        }

    def answers(self) -> bool:
        return exchange(self.port, _PROTOCOL).startswith(b"\x01")

    def stop(self) -> None:
        super().stop()
        mapper, self._mapper = self._mapper, None
        if mapper is not None:
            mapper.kill()
            mapper.wait()
