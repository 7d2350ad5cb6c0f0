"""Binding a Unix socket: what may be in its place, who may open it, and what is left at the end."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path
from typing import cast

import pytest

from tailrace.model import ConfigError
from tailrace.model.address import Address, unix_address
from tailrace.net import Listening, listen
from tailrace.net.unix_socket import PATH_BYTES_MAX, bind_unix, peer_pid


def bind(path: Path, *, mode: int = 0o600) -> None:
    """Bind, listen and close, as a whole life."""
    bound = bind_unix(str(path), mode=mode)
    bound.remove()
    bound.socket.close()


def leave_stale(path: Path) -> None:
    """What a process that was killed leaves."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


class Farewell(asyncio.Protocol):
    """A listener's end that says one thing."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(b"bye")
        transport.close()


def is_there(path: Path) -> bool:
    return os.path.lexists(path)


@pytest.fixture
def tmp_path(short_directory: Path) -> Path:
    return short_directory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "native.sock"


def test_only_the_owner_may_open_it_whatever_the_umask_is(path: Path) -> None:
    before = os.umask(0)
    try:
        bound = bind_unix(str(path))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    bound.remove()
    bound.socket.close()
    assert not path.exists()


def test_nobody_comes_in_before_it_listens(path: Path) -> None:
    bound = bind_unix(str(path))
    with bound.socket, socket.socket(socket.AF_UNIX) as early, pytest.raises(ConnectionRefusedError):
        early.connect(str(path))


def test_a_socket_that_nobody_answers_on_is_replaced(path: Path) -> None:
    leave_stale(path)
    bound = bind_unix(str(path))
    with bound.socket:
        bound.socket.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_socket_in_use_is_left_alone_and_its_owner_is_named(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(path))
        taken.listen()
        with pytest.raises(ConfigError, match=rf"{path} is in use by pid {os.getpid()} \(.+\)\. Stop that"):
            bind(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_listener_with_a_full_backlog_is_in_use_and_does_not_make_us_wait(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(path))
        taken.listen(0)
        waiting = []
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            waiting.append(client)
            if client.connect_ex(str(path)):
                break
        with pytest.raises(ConfigError, match="is in use by another process"):
            bind(path)
        for client in waiting:
            client.close()


def test_a_socket_of_another_kind_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(ConfigError, match=f"cannot listen on {path}"):
            bind(path)
        assert path.exists()


def test_a_file_is_left_alone(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(ConfigError, match=f"{path} is a file, and not a socket"):
        bind(path)
    assert path.read_text() == "precious"


def test_a_directory_and_a_link_are_left_alone(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory, and not a socket"):
        bind(tmp_path)
    target = tmp_path / "target"
    leave_stale(target)
    path.symlink_to(target)
    with pytest.raises(ConfigError, match="is a symbolic link, and not a socket"):
        bind(path)
    assert path.is_symlink() and target.exists()


def test_a_missing_directory_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=f"there is no directory {tmp_path}/run. Try: mkdir -p {tmp_path}/run"
    ):
        bind(tmp_path / "run" / "native.sock")


def test_a_directory_that_is_no_directory_is_refused(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(ConfigError, match="Not a directory"):
        bind(path / "native.sock")


def test_a_path_that_is_too_long_is_refused_with_its_length(tmp_path: Path) -> None:
    longest = tmp_path / ("x" * (PATH_BYTES_MAX - len(str(tmp_path)) - 1))
    bind(longest)
    with pytest.raises(
        ConfigError, match=rf"at most {PATH_BYTES_MAX} bytes, and .* has {PATH_BYTES_MAX + 1}"
    ):
        bind(longest.with_name(longest.name + "x"))
    with pytest.raises(ConfigError, match="at most"):
        bind(tmp_path / ("ü" * (PATH_BYTES_MAX - len(str(tmp_path)) - 1)))


def test_the_file_of_another_process_is_not_removed(path: Path) -> None:
    bound = bind_unix(str(path))
    path.unlink()
    leave_stale(path)
    bound.remove()
    assert path.exists()
    path.unlink()
    bound.remove()  # nothing is there, and nothing happens
    bound.socket.close()


def test_a_socket_whose_mode_was_changed_is_removed_all_the_same(path: Path) -> None:
    bound = bind_unix(str(path))
    path.chmod(0o666)
    bound.remove()
    bound.socket.close()
    assert not path.exists()


@pytest.mark.parametrize("uv", [False, True], ids=["asyncio", "uvloop"])
def test_a_place_to_listen_is_gone_when_it_is_closed(path: Path, uv: bool) -> None:
    async def main() -> None:
        listening: Listening = await listen(unix_address(str(path)), Farewell)
        assert str(listening.address) == f"unix:{path}"
        reader, writer = await asyncio.open_unix_connection(str(path))
        assert await reader.read() == b"bye"
        writer.close()
        listening.close()
        assert not is_there(path)
        tcp = await listen(Address("127.0.0.1", 0), asyncio.Protocol)
        assert tcp.address.port > 0
        tcp.close()
        await asyncio.sleep(0)

    factory = pytest.importorskip("uvloop").new_event_loop if uv else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


def test_a_socket_without_a_peer_has_no_process() -> None:
    with socket.socket(socket.AF_INET) as alone:
        assert peer_pid(alone) == 0
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_pid(ours) == os.getpid()
