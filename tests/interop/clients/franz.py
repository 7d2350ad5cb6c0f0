"""franz-go: the protocol in Go."""

from __future__ import annotations

from pathlib import Path

from tests.interop.clients.cache import DRIVERS, cached, need_program, run
from tests.interop.clients.driver import DriverClient
from tests.interop.clients.port import Client

_FILES = tuple(DRIVERS / "franz" / name for name in ("go.mod", "main.go", "admin.go"))


def start(bootstrap: str) -> Client:
    """Have Go fetch and build it once, and start its driver."""
    go = need_program("go")

    def build(directory: Path) -> None:
        run((go, "mod", "tidy"), directory, within_s=200)
        run((go, "build", "-o", "driver", "."), directory, within_s=300)

    home = cached("franz", _FILES, build)
    return DriverClient("franz", (str(home / "driver"),), bootstrap)
