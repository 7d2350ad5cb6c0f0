"""Unix sockets as files: binding one without taking a path from anybody else, and removing it again.

    nothing there                         bind
    a socket, and a process answers       refuse: it is in use
    a socket, and no process answers      left by a process that was killed: remove it, then bind
    anything else (file, directory, link) refuse: it is not ours to remove

The file gets its mode between bind and listen. A socket that does not listen refuses every connection, so no
client comes in before the mode is set, and the umask, which all threads of the process share, is not touched.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from tailrace.model import ConfigError

PATH_BYTES_MAX: Final = 107 if sys.platform == "linux" else 103
"""sun_path has 108 bytes on Linux and 104 on macOS and the BSDs; the last one is a NUL."""
MODE: Final = 0o600
"""Who may open the socket may do everything that the listener allows: by default this is the owner alone."""

_CREDENTIALS = struct.Struct("3i")  # struct ucred of Linux: pid, uid, gid
_LOCAL_PEERPID: Final = 2  # of macOS; Python has no name for it
_SOL_LOCAL: Final = 0

_KINDS = {stat.S_IFREG: "a file", stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link"}


class Bound:
    """A socket that is bound to a path, and the file that it made there."""

    __slots__ = ("_identity", "_path", "socket")

    def __init__(self, bound: socket.socket, path: str) -> None:
        self.socket = bound
        self._path = path
        self._identity = _identity(os.lstat(path))

    def remove(self) -> None:
        """Remove the file, unless another process has put its own in this place."""
        with suppress(OSError):
            if _identity(os.lstat(self._path)) == self._identity:
                os.unlink(self._path)


def check_path(path: str) -> None:
    """ConfigError if no Unix socket can have this path."""
    size = len(os.fsencode(path))
    if size > PATH_BYTES_MAX:
        raise ConfigError(
            f"the path of a Unix socket has at most {PATH_BYTES_MAX} bytes, and {path} has {size}. "
            "Choose a shorter one"
        )


def bind_unix(path: str, *, mode: int = MODE) -> Bound:
    """A socket at a path that nobody else uses, not yet listening; ConfigError says what is in the way."""
    check_path(path)
    _make_room(path)
    fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        fresh.setblocking(False)
        fresh.bind(path)
        os.chmod(path, mode)
        return Bound(fresh, path)
    except OSError as error:
        fresh.close()
        raise _cannot_bind(path, error) from error


def _make_room(path: str) -> None:
    """Remove a socket that a dead process left; ConfigError for everything else that is there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _cannot_bind(path, error) from error
    if not stat.S_ISSOCK(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "no socket")
        raise ConfigError(f"{path} is {kind}, and not a socket. Choose another path, or move it away")
    _refuse_used(path)
    with suppress(FileNotFoundError):
        again = os.lstat(path)
        if (_identity(again), again.st_ctime_ns) == (_identity(found), found.st_ctime_ns):
            os.unlink(path)  # else another process was faster, and bind refuses


def _refuse_used(path: str) -> None:
    """ConfigError unless the socket at this path is dead: nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a listener whose backlog is full would keep us waiting
        try:
            probe.connect(path)
            pid = peer_pid(probe)
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except BlockingIOError:
            pid = 0
        except OSError as error:
            raise _cannot_bind(path, error) from error
    owner = f" by pid {pid}{_program(pid)}" if pid else " by another process"
    raise ConfigError(f"{path} is in use{owner}. Stop that process, or choose another path")


def _cannot_bind(path: str, error: OSError) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        directory = os.path.dirname(path) or "."
        return ConfigError(
            f"cannot listen on {path}: there is no directory {directory}. Try: mkdir -p {directory}"
        )
    return ConfigError(f"cannot listen on {path}: {error.strerror or error}. Choose another path")


def peer_pid(connected: socket.socket) -> int:
    """The process at the other end of a Unix socket; 0 where the system does not tell."""
    credentials: int | None = getattr(socket, "SO_PEERCRED", None)  # Linux
    try:
        if credentials is not None:
            found = connected.getsockopt(socket.SOL_SOCKET, credentials, _CREDENTIALS.size)
            pid: int = _CREDENTIALS.unpack(found)[0]
            return max(pid, 0)  # 0 also for a process that this one may not see
        return connected.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
    except (OSError, struct.error):
        return 0


def _program(pid: int) -> str:
    try:
        return f" ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:
        return ""


def _identity(found: os.stat_result) -> tuple[int, int]:
    """Which file it is. Its number is not used again as long as a socket is bound to it."""
    return found.st_dev, found.st_ino
