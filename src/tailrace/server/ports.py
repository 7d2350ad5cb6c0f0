"""The ports of a running node, for programs that look for it.

`<data-dir>/tailrace.ports.json` is `{"pid", "kafka", "native", "http"}`, null without that listener. Where
listeners have TLS, `tls` has the file of the certificate of each, which programs on this machine may trust.
The file is there, whole, before a node says that it is ready, and goes when it stops.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE_NAME = "tailrace.ports.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The listeners of one process; None where there is none."""

    pid: int
    kafka: int | None = None
    native: int | None = None
    http: int | None = None
    tls: Mapping[str, str] = field(default_factory=dict)  # the certificate's file, by protocol


def write_ports(data_dir: Path, ports: Ports) -> None:
    """Put the file into place as a whole: a reader sees all of it or none."""
    path = data_dir / FILE_NAME
    fresh = path.with_name(f".{FILE_NAME}.{ports.pid}")
    row = asdict(ports)
    if not ports.tls:
        del row["tls"]
    fresh.write_text(json.dumps(row) + "\n", encoding="utf-8")
    os.replace(fresh, path)


def read_ports(data_dir: Path) -> Ports | None:
    """What the file says; None if there is none, or it is not ours."""
    try:
        row = json.loads((data_dir / FILE_NAME).read_text(encoding="utf-8"))
        known = {name: row[name] for name in ("pid", "kafka", "native", "http")}
        tls = {str(name): str(cert) for name, cert in row.get("tls", {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if not all(value is None or isinstance(value, int) for value in known.values()) or known["pid"] is None:
        return None
    return Ports(**known, tls=tls)


def remove_ports(data_dir: Path, *, pid: int) -> None:
    """Take the file of this process away; it may be gone already."""
    written = read_ports(data_dir)
    if written is not None and written.pid == pid:
        (data_dir / FILE_NAME).unlink(missing_ok=True)
