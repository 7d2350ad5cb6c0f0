"""The Java client, which defines what the others imitate, and the place of its command-line tools."""

from __future__ import annotations

from pathlib import Path

from tests.interop.clients.cache import DRIVERS, cached, need_program, run
from tests.interop.clients.driver import DriverClient
from tests.interop.clients.port import Client

_FILES = (DRIVERS / "java" / "pom.xml", DRIVERS / "java" / "Driver.java")
_QUIET = "log4j.rootLogger=OFF\n"


def start(bootstrap: str) -> Client:
    """Start its driver."""
    return DriverClient("java", (*java(), "Driver"), bootstrap)


def java() -> tuple[str, ...]:
    """The command that runs a class of the client or its tools; Maven fetches them once."""
    program, compiler, maven = need_program("java"), need_program("javac"), need_program("mvn")

    def build(directory: Path) -> None:
        goal = ("dependency:copy-dependencies", "-DoutputDirectory=libs", "-DincludeScope=runtime")
        run((maven, "-q", "-B", *goal), directory, within_s=400)
        run((compiler, "-cp", "libs/*", "-d", "classes", "Driver.java"), directory, within_s=60)
        (directory / "classes" / "log4j.properties").write_text(_QUIET)

    home = cached("java", _FILES, build)
    return (program, "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{home}/classes:{home}/libs/*")
