"""Apache Kafka: one node in KRaft mode, with the settings and the JVM flags that its own scripts use.

Its jars come from Maven once and stay in the user's cache. The heap is the 1 GB of kafka-server-start.sh. Two
settings differ from its defaults: nothing is rebalanced late, and deleted topics leave the disk after a
second instead of a minute, so that one load does not write its remains during the next.
"""

from __future__ import annotations

import os
import shutil
import struct
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from bench.server.process import HOST, NotHere, Server, exchange, find_program, output_of
from tailrace.testing.port import free_port

VERSION = "4.3.0"
_SCALA = "2.13"
_JAVA_MIN = 17
_DOWNLOAD_S = 600.0
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_JVM = (
    *("-server", "-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
    "-Djava.awt.headless=true",
)
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def answers_kafka(port: int) -> bool:
    """Whether ApiVersions is answered."""
    return exchange(port, _API_VERSIONS)[4:10] == struct.pack(">ih", 1, 0)


class KafkaServer(Server):
    """Broker and controller in one process."""

    name = "kafka"
    version = VERSION

    def __init__(self, cache: Path | None = None) -> None:
        super().__init__()
        self._cache = cache or cache_directory()
        self._java = ""
        self._jars = self._cache / f"kafka-{VERSION}"

    def find(self) -> None:
        self._java = find_program("java", package="default-jre-headless")
        major = read_java_major(output_of([self._java, "-version"]))
        if major < _JAVA_MIN:
            raise NotHere(f"Kafka {VERSION} needs Java {_JAVA_MIN}, and java is {major}")
        if not self._jars.is_dir():
            fetch_jars(self._jars)

    def configure(self, directory: Path) -> Sequence[str]:
        settings = directory / "server.properties"
        data = directory / "data"
        settings.write_text(server_properties(data, port=self.port, controller_port=free_port()))
        if not data.exists():
            identity = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            # A leading dash would be read as an option.
            self._run(
                "kafka.tools.StorageTool", "format", f"--cluster-id=A{identity[1:]}", "-c", str(settings)
            )
        return [self._java, *_JVM, "-cp", f"{self._jars}/*", "kafka.Kafka", str(settings)]

    def answers(self) -> bool:
        return answers_kafka(self.port)

    def _run(self, *words: str) -> None:
        output_of([self._java, "-cp", f"{self._jars}/*", *words], timeout_s=120)


def server_properties(data: Path, *, port: int, controller_port: int) -> str:
    """The configuration of one node that is its own controller."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.segment.delete.delay.ms": "1000",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def read_java_major(text: str) -> int:
    """17 of `openjdk version "17.0.15" ...`; 8 of the old way of writing it, 1.8."""
    _, _, rest = text.partition('version "')
    numbers = rest.split('"')[0].replace("-", ".").split(".")
    if not numbers[0].isdecimal():
        raise NotHere(f"java tells no version: {text.strip()[:80]!r}")
    if numbers[0] == "1" and len(numbers) > 1 and numbers[1].isdecimal():
        return int(numbers[1])
    return int(numbers[0])


def cache_directory() -> Path:
    """Where downloads stay: XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "tailrace-bench"


def fetch_jars(jars: Path) -> None:
    """Kafka and all that it needs, by Maven; a folder that is there is whole."""
    maven = find_program("mvn", package="maven")
    work = jars.with_name(f".{jars.name}.{os.getpid()}")
    work.mkdir(parents=True, exist_ok=True)
    try:
        (work / "pom.xml").write_text(project_file())
        output_of(
            [
                *(maven, "-B", "-q", "-f", str(work / "pom.xml"), _PLUGIN),
                *("-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"),
            ],
            timeout_s=_DOWNLOAD_S,
        )
        (work / "jars").rename(jars)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def project_file() -> str:
    """What Maven is asked for."""
    wanted = "".join(
        f"<dependency><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId>"
        f"<version>{VERSION}</version></dependency>"
        for name in (f"kafka_{_SCALA}", "kafka-tools")
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>\n"
    )
