"""What makes a folder a lake: `_tailrace/lake.json`, written once, which says what kind of table it is.

    {"v":1,"format":"parquet"}

A folder that has files and no marker is of another program, and is never written into.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, get_args

import msgspec

from tailrace.model import ConfigError, StorageError
from tailrace.spark.lake.durable import make_folder, write_new
from tailrace.spark.lake.layout import MARKER, OWN

Format = Literal["parquet", "delta", "iceberg"]
FORMATS: tuple[str, ...] = get_args(Format)
MARKER_FORMAT = 1


class _Marker(msgspec.Struct):
    v: int
    format: str


def read_format(root: Path) -> str | None:
    """What kind of table a folder holds, or None if it is no lake."""
    path = root / MARKER
    try:
        marker = msgspec.json.decode(path.read_bytes(), type=_Marker)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError("read", str(path), f"it is damaged: {error}") from error
    if marker.v > MARKER_FORMAT or marker.format not in FORMATS:
        raise StorageError(
            "read",
            str(path),
            f"the lake is of format {marker.format!r} (version {marker.v}), which this program does not know",
            hint="Use a newer Tailrace",
        )
    return marker.format


def make_lake(root: Path, format: str) -> str:
    """Make an empty or absent folder a lake, and say of which format: another process may be faster."""
    if root.exists() and not root.is_dir():
        raise ConfigError(f"lake {str(root)!r} is a file. Name a folder")
    strangers = sorted(name for name in os.listdir(root) if name != OWN) if root.is_dir() else []
    if strangers and read_format(root) is None:
        raise ConfigError(
            f"{str(root)!r} is not a lake and has files ({', '.join(strangers[:3])}, ...)."
            " Name an empty or a new folder"
        )
    make_folder((root / MARKER).parent)
    write_new(root / MARKER, msgspec.json.encode(_Marker(v=MARKER_FORMAT, format=format)) + b"\n")
    made = read_format(root)
    assert made is not None, "the marker was just written"
    return made
