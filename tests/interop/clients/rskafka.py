"""rskafka: the protocol in Rust, with a client per partition and neither groups nor a partitioner."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.interop.clients.cache import DRIVERS, cached, need_program, run
from tests.interop.clients.driver import DriverClient
from tests.interop.clients.port import Client, Feature

_FILES = tuple(DRIVERS / "rskafka" / name for name in ("Cargo.toml", "main.rs"))
_LACKS = {
    Feature.NULL_HEADERS: "its headers have values",
    Feature.PARTITIONER: "its user names the partition",
    Feature.IDEMPOTENCE: "it has no producer ids",
    Feature.ACKS_NONE: "it always asks for all replicas",
    **dict.fromkeys(
        (
            Feature.GROUPS,
            Feature.COMMIT,
            Feature.STATIC,
            Feature.COOPERATIVE,
            Feature.PATTERN,
            Feature.REVOKED,
            Feature.GROUP_ADMIN,
            Feature.DELETE_GROUPS,
        ),
        "it has no groups",
    ),
    Feature.PARTITIONS: "it has no such call",
    Feature.CONFIGS: "it has no such call",
}


def start(bootstrap: str) -> Client:
    """Have cargo fetch and build it once, and start its driver."""
    cargo = need_program("cargo")

    def build(directory: Path) -> None:
        run((cargo, "build", "--quiet"), directory, within_s=900)
        (directory / "target" / "debug" / "driver").rename(directory / "driver")
        shutil.rmtree(directory / "target")

    home = cached("rskafka", _FILES, build)
    return DriverClient("rskafka", (str(home / "driver"),), bootstrap, lacks=_LACKS)
