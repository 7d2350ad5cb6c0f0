"""Where it was measured: processor, memory, kernel, file system, versions.

What a system does not tell is left out as "unknown" or 0, never guessed.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import tailrace

_CPU_INFO = Path("/proc/cpuinfo")
_MOUNTS = Path("/proc/self/mountinfo")
_UNKNOWN = "unknown"


def describe_machine(directory: Path) -> dict[str, object]:
    """The facts that a reader of the figures needs; `directory` is where the loads ran."""
    return {
        "cpu": _cpu_model(),
        "cores": _cores(),
        "memory_bytes": _memory_bytes(),
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": file_system_of(directory),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "fastcrc": _version("fastcrc"),
        "uvloop": _version("uvloop"),
        "tailrace": tailrace.__version__,
    }


def file_system_of(directory: Path) -> str:
    """Type of the file system that holds the directory, such as ext4."""
    if not _MOUNTS.exists():
        return _UNKNOWN
    return read_file_system(_MOUNTS.read_text(errors="replace"), directory.resolve())


def read_file_system(mounts: str, directory: Path) -> str:
    """The same from the text of mountinfo: the deepest mount above the directory, the newest of those.

    A line is `ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS`, see proc(5);
    spaces in names are written as octal.
    """
    found, depth = _UNKNOWN, -1
    for line in mounts.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split()
        if not separator or len(fields) < 5 or not right:
            continue
        mount = Path(fields[4].replace("\\040", " "))
        if directory.is_relative_to(mount) and len(mount.parts) >= depth:
            found, depth = right.split()[0], len(mount.parts)
    return found


def _cpu_model() -> str:
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine() or _UNKNOWN


def _cores() -> int:
    """Those that this process may use, where the system says so."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 0


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
