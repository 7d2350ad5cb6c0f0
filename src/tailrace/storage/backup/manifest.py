"""MANIFEST.json: what a generation holds.

    {"format": 1, "sha256": "<of the bytes of body>", "body": {...}}

The body has its own checksum, so that a damaged manifest is not believed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

FORMAT = 1
FILE_NAME = "MANIFEST.json"


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file below `data/`."""

    path: str
    size: int
    sha256: str
    stamp: tuple[int, int]
    """Inode and time of change of the file that was copied: the same one is not copied again."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One generation."""

    created: str  # everything acknowledged before this moment is in it: ISO 8601, UTC
    data_dir: str
    cluster_id: str  # "" where no broker ran to tell it
    version: str  # of the program that made it
    partitions: int
    files: list[FileEntry]
    problems: list[str]  # damage that was in the data directory already

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.files)


class _Frame(msgspec.Struct, frozen=True):
    format: int
    sha256: str
    body: msgspec.Raw


class ManifestError(ValueError):
    """The bytes are no manifest that this program knows; says why."""


def write_manifest(manifest: Manifest) -> bytes:
    """The whole file."""
    body = msgspec.json.encode(manifest)
    digest = hashlib.sha256(body).hexdigest()
    return msgspec.json.encode(_Frame(FORMAT, digest, msgspec.Raw(body)))


def read_manifest(data: bytes) -> Manifest:
    """The manifest, or ManifestError."""
    try:
        frame = msgspec.json.decode(data, type=_Frame)
        if frame.format != FORMAT:
            raise ManifestError(f"it has format {frame.format}, and this program knows {FORMAT}")
        if hashlib.sha256(bytes(frame.body)).hexdigest() != frame.sha256:
            raise ManifestError("its checksum does not hold")
        manifest = msgspec.json.decode(bytes(frame.body), type=Manifest)
    except msgspec.DecodeError as error:
        raise ManifestError(f"it is not what was written: {error}") from error
    for each in manifest.files:
        if not is_below(each.path):
            raise ManifestError(f"it names a file outside of its directory: {each.path!r}")
    return manifest


def is_below(path: str) -> bool:
    """Whether a relative path stays inside of the directory that it is relative to."""
    parts = path.split("/")
    return (
        bool(path) and not Path(path).is_absolute() and not {"", ".", ".."} & set(parts) and "\0" not in path
    )


def save_manifest(directory: Path, manifest: Manifest) -> None:
    """Put it into place durably, as a whole."""
    fresh = directory / (FILE_NAME + ".tmp")
    with open(fresh, "wb") as file:
        file.write(write_manifest(manifest))
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, directory / FILE_NAME)
    sync_directory(directory)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
