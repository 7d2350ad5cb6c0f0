"""pyiceberg's files, synced: metadata that a catalogue points to must be there after a power cut."""

from __future__ import annotations

import os
from io import FileIO as RawFile
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tailrace.spark.lake.durable import make_folder, sync_folder


class SyncedFileIO(PyArrowFileIO):  # type: ignore[misc]
    """Reads as pyiceberg does; a file that it writes is on the disk once it is closed."""

    def new_output(self, location: str) -> Any:
        plain = super().new_output(location)
        return _SyncedOutput(
            location=plain.location, path=plain._path, fs=plain._filesystem, buffer_size=plain._buffer_size
        )


class _SyncedOutput(PyArrowFile):  # type: ignore[misc]
    def create(self, overwrite: bool = False) -> Any:
        path = Path(self._path)
        make_folder(path.parent)
        return _SyncedStream(path, "wb" if overwrite else "xb")


class _SyncedStream(RawFile):
    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
            sync_folder(Path(str(self.name)).parent)
        super().close()
