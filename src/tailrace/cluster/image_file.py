"""cluster.json: everything that the store of a node holds, as one file with a checksum, beside the logs.

    {"crc32c":"...","content":{"format":1,"revision":7,"entries":{
    "cluster":[1,{...}],
    "names/orders":[4,{...}],
    ...}}}

An entry is [version, value]. The file is replaced as a whole and the one before it is kept, so that there is
always one to read; `rebuild` restores the store from it. Only the owner may read them. Blocking calls.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from tailrace.cluster.store import Entry, Rows
from tailrace.runtime.private import make_private, open_private
from tailrace.storage.checksummed import read_checksummed, write_checksummed

IMAGE = "cluster.json"
PREVIOUS = "cluster.json.previous"
_TEMPORARY = "cluster.json.tmp"
_FORMAT = 1


def write_image(rows: Rows) -> bytes:
    """The whole file. Values are JSON already, and stand in it as they are."""
    lines = (f"{json.dumps(key)}:[{each.version},{each.value}]" for key, each in rows.entries.items())
    entries = ",\n".join(lines)
    return write_checksummed(f'{{"format":{_FORMAT},"revision":{rows.revision},"entries":{{\n{entries}}}}}')


def read_image(data: bytes) -> Rows | None:
    """None if it is not what was written, or of a format that is not known."""
    content = read_checksummed(data)
    if content is None:
        return None
    try:
        found = json.loads(content)
        if found["format"] != _FORMAT:
            return None
        entries = {
            key: Entry(json.dumps(value, sort_keys=True, separators=(",", ":")), version)
            for key, (version, value) in found["entries"].items()
        }
        return Rows(revision=found["revision"], entries=entries)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def load(directory: Path, name: str) -> Rows | None:
    """The image in one of the two files; None if it is missing or not what was written."""
    try:
        data = (directory / name).read_bytes()
    except FileNotFoundError:
        return None
    return read_image(data)


def load_newest(directory: Path) -> tuple[str, Rows] | None:
    """The newest image that can be read, and the name of its file."""
    for name in (IMAGE, PREVIOUS):
        found = load(directory, name)
        if found is not None:
            return name, found
    return None


def save(directory: Path, data: bytes) -> None:
    """Replace the file; the one before it becomes the previous one, unless it cannot be read."""
    image, temporary = directory / IMAGE, directory / _TEMPORARY
    with open(temporary, "wb", opener=open_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if load(directory, IMAGE) is not None:
        make_private(image)  # an earlier version left it to the umask
        os.replace(image, directory / PREVIOUS)
    os.replace(temporary, image)
    with suppress(OSError):  # the names are durable soon anyway, and an older file is a good one too
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
