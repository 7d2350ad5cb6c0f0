"""Spark's own Kafka source and sink: four jars that do not come with pyspark.

Maven fetches them once into the user's cache directory, and `add_connector` gives them to a session that
already runs. Not every release of Spark has all of them on Maven: the token provider is there for 4.0.0 only,
and serves the newer ones too, which use nothing of it but what it had then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.model import TailraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_S = 600.0
_SCALA = "2.13"
_SPARK = "org.apache.spark"
_TOKEN_PROVIDER_VERSION = "4.0.0"
_NEWER_SINCE = (4, 2)


class NoConnector(TailraceError):
    """The jars cannot be had; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The versions that go together."""

    connector: str
    clients: str
    pool: str

    def artifacts(self) -> list[tuple[str, str, str]]:
        """Group, name and version of every jar. What they need beside each other comes with Spark."""
        return [
            (_SPARK, f"spark-sql-kafka-0-10_{_SCALA}", self.connector),
            (_SPARK, f"spark-token-provider-kafka-0-10_{_SCALA}", _TOKEN_PROVIDER_VERSION),
            ("org.apache.kafka", "kafka-clients", self.clients),
            ("org.apache.commons", "commons-pool2", self.pool),
        ]


_OLDER = Release(connector="4.0.0", clients="3.9.0", pool="2.12.0")
_NEWER = Release(connector="4.2.0", clients="3.9.1", pool="2.12.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """Jars that are here."""

    version: str
    jars: Sequence[Path]


def release_for(spark_version: str) -> Release:
    """The jars that work with a release of Spark, such as 4.3.0."""
    numbers = spark_version.split(".")
    if len(numbers) < 2 or not all(each.isdecimal() for each in numbers[:2]):
        raise NoConnector(f"{spark_version!r} is no version of Spark")
    return _NEWER if (int(numbers[0]), int(numbers[1])) >= _NEWER_SINCE else _OLDER


def find_connector(spark_version: str, *, cache: Path | None = None) -> Connector:
    """The jars for a release of Spark, fetched if they are not here yet; NoConnector if that cannot be."""
    release = release_for(spark_version)
    place = (cache or cache_directory()) / f"spark-kafka-{release.connector}"
    if not place.is_dir():
        fetch_jars(release, place)
    return Connector(version=release.connector, jars=sorted(place.glob("*.jar")))


def cache_directory() -> Path:
    """Where downloads stay: XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "tailrace-bench"


def add_connector(spark: SparkSession, connector: Connector) -> None:
    """Make `format("kafka")` known to a session."""
    for jar in connector.jars:
        quoted = str(jar).replace("'", "\\'")
        spark.sql(f"ADD JAR '{quoted}'")


def fetch_jars(release: Release, place: Path) -> None:
    """By Maven; the folder appears under its name only when it is whole."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NoConnector(
            "Maven fetches the jars, and mvn is not installed. On Debian: apt-get install maven"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as made:
        work = Path(made)
        (work / "pom.xml").write_text(project_file(release), encoding="utf-8")
        _run_maven(
            [maven, "-B", "-q", "-f", str(work / "pom.xml"), _PLUGIN, f"-DoutputDirectory={work}/jars"]
        )
        missing = len(release.artifacts()) - len(list((work / "jars").glob("*.jar")))
        if missing:
            raise NoConnector(f"Maven ended well and {missing} jars are missing")
        if not place.is_dir():  # somebody else may have been quicker
            (work / "jars").rename(place)


def _run_maven(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_FETCH_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoConnector(f"Maven cannot be run: {error}") from error
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip().splitlines()
        errors = [line for line in said if "ERROR" in line] or said or [f"status {done.returncode}"]
        raise NoConnector(f"Maven failed: {errors[0].strip()}")


def project_file(release: Release) -> str:
    """What Maven is asked for: these jars and nothing that they name, since Spark has that."""
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        "</dependency>"
        for group, name, version in release.artifacts()
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>\n"
    )
