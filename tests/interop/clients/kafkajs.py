"""KafkaJS: the protocol in JavaScript, on Node."""

from __future__ import annotations

from pathlib import Path

from tests.interop.clients.cache import DRIVERS, cached, need_program, run
from tests.interop.clients.driver import DriverClient
from tests.interop.clients.port import Client, Feature

_LACKS = {
    Feature.NULL_HEADERS: "it drops the value's absence",
    Feature.STATIC: "it knows no group.instance.id",
    Feature.COOPERATIVE: "it has an eager assignor only",
    Feature.NEW_TOPICS: "it resolves a pattern once",
    Feature.REVOKED: "it has no such event",
}
_FILES = (DRIVERS / "kafkajs" / "package.json", DRIVERS / "kafkajs" / "driver.js")


def start(bootstrap: str) -> Client:
    """Have npm fetch it once, and start its driver."""
    node, npm = need_program("node"), need_program("npm")

    def build(directory: Path) -> None:
        words = ("install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")
        run((npm, *words), directory, within_s=120)

    home = cached("kafkajs", _FILES, build)
    quiet = {"KAFKAJS_NO_PARTITIONER_WARNING": "1", "NODE_NO_WARNINGS": "1"}
    return DriverClient(
        "kafkajs", (node, str(home / "driver.js")), bootstrap, lacks=_LACKS, environment=quiet
    )
