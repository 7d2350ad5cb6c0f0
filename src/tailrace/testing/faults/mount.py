"""File systems of a test's own: small ones, thin ones, and ones whose power is cut. Linux, and root, only.

Where they cannot be had `Unavailable` says why, and the test is to be skipped with that reason. Whatever was
mounted is unmounted when its block ends, also when files in it are still open; a loop device goes with its
mount.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SYSTEM_PATH = "/usr/sbin:/sbin"  # a plain user's PATH may lack it
_FS_IOC_SHUTDOWN = 0x8004587D  # linux/fs.h: _IOR('X', 125, __u32)
_NO_LOG_FLUSH = 2
_COMMAND_S = 60
_STEP_BYTES = 64 * 1024
_PAGE_BYTES = 4096


class Unavailable(Exception):
    """This machine does not let us do that; the message says why."""


@contextlib.contextmanager
def mounted_tmpfs(path: Path, *, size_bytes: int) -> Iterator[Path]:
    """A file system in memory that holds `size_bytes`."""
    _require("mount")
    path.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tailrace-test", str(path))
    try:
        yield path
    finally:
        _unmount(path)


class LoopFile:
    """An ext4 file system in a file, to be mounted any number of times."""

    def __init__(self, image: Path, path: Path, *, size_bytes: int) -> None:
        """`image` is a sparse file: it takes from its own file system what is written, when it is written."""
        _require("mount", "mkfs.ext4", "losetup")
        self.path = path
        self._image = image
        path.mkdir(parents=True, exist_ok=True)
        with image.open("wb") as file:
            file.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", str(image))

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Path]:
        """The file system, as it was left; the kernel replays its journal on the way."""
        _run("mount", "-t", "ext4", "-o", "loop", str(self._image), str(self.path))
        try:
            yield self.path
        finally:
            _unmount(self.path)

    def cut_power(self) -> None:
        """From now on nothing reaches the image: what was not synced is lost, and every call is an error."""
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(directory, _FS_IOC_SHUTDOWN, array.array("I", [_NO_LOG_FLUSH]))
        finally:
            os.close(directory)


def fill(path: Path, *, leave_bytes: int) -> Path:
    """Take all space of a file system but this much; removing the file that is returned gives it back.

    Others may write meanwhile, so it goes in steps, and the end of the space is no error.
    """
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for step_bytes in (_STEP_BYTES, _PAGE_BYTES):
            with contextlib.suppress(OSError):
                while _free_bytes(path) >= leave_bytes + step_bytes:
                    file.write(bytes(step_bytes))
    return ballast


def _free_bytes(path: Path) -> int:
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize


def _require(*programs: str) -> None:
    if os.geteuid() != 0:
        raise Unavailable("mounting file systems takes root")
    for program in programs:
        if _find(program) is None:
            raise Unavailable(f"{program} is not installed")


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}")


def _run(program: str, *arguments: str) -> None:
    command = [_find(program) or program, *arguments]
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_COMMAND_S, check=False
    )
    if result.returncode:
        raise Unavailable(f"{' '.join(command)}: {result.stdout.strip()}")


def _unmount(path: Path) -> None:
    """At once if nobody holds a file, else as soon as nobody does."""
    gc.collect()  # files of an engine that was let go of are closed by the collector
    try:
        _run("umount", str(path))
    except Unavailable:
        _run("umount", "--lazy", str(path))
