"""The real disk over a temporary directory; system calls are replaced where they must fail or stop short."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.runtime import Disk, File, RealDisk, SyncError, disk

_T = TypeVar("_T")

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the call exists on Linux only")


@pytest.fixture(params=[False, True], ids=["user's loop", "own loop"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealDisk]:
    found = RealDisk(str(tmp_path), owns_loop=request.param)
    yield found
    found.close()


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


async def read(file: File, position: int, size: int) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: await file.read(position, memoryview(buffer))])


# ---- files


def test_the_real_disk_is_a_disk(real: RealDisk) -> None:
    async def main(port: Disk) -> None:
        file: File = await port.create("a")
        file.close()

    run(main(real))


def test_what_was_written_is_read(real: RealDisk) -> None:
    async def main() -> None:
        file = await real.create("a")
        await file.write(3, [b"abc", bytearray(b"de"), memoryview(b"f")], sync=True)
        assert file.size() == 9
        assert await read(file, 0, 100) == b"\0\0\0abcdef"
        assert await read(file, 4, 2) == b"bc"

    run(main())


def test_a_read_past_the_end_is_short(real: RealDisk) -> None:
    async def main() -> None:
        file = await real.create("a")
        await file.write(0, [b"abc"])
        assert await read(file, 1, 10) == b"bc"
        assert await read(file, 3, 10) == b""

    run(main())


def test_a_large_write_goes_through_a_thread_and_is_whole(real: RealDisk) -> None:
    async def main() -> None:
        data = os.urandom(3 << 20)
        file = await real.create("a")
        await file.write(7, [data[:1000], data[1000:]], sync=True)
        assert await read(file, 7, len(data)) == data

    run(main())


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 3000])
def test_any_number_of_buffers_is_written(real: RealDisk, count: int) -> None:
    async def main() -> None:
        parts = [b"%d," % number for number in range(count)]
        file = await real.create("a")
        await file.write(0, parts)
        assert await read(file, 0, 1 << 20) == b"".join(parts)

    run(main())


def test_empty_buffers_are_no_obstacle(real: RealDisk) -> None:
    async def main() -> None:
        file = await real.create("a")
        await file.write(0, [b"", b"ab", b"", memoryview(b""), b"c", b""])
        await file.write(3, [b""])
        assert await read(file, 0, 10) == b"abc"

    run(main())


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=12), st.lists(st.integers(1, 7), min_size=1))
def test_a_short_write_goes_on_where_it_stopped(parts: list[bytes], steps: list[int]) -> None:
    written = bytearray()
    turns = iter(steps * 200)

    def short(fd: int, buffers: Sequence[bytes], position: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)[: next(turns)]
        assert position == 5 + len(written)
        written.extend(data)
        return len(data)

    file = disk.RealFile("a", -1, disk.DiskCalls(owns_loop=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwritev", short)
        file._write_whole(parts, 5)
    assert bytes(written) == b"".join(parts)


def test_a_short_read_goes_on_where_it_stopped(real: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.preadv

    def short(fd: int, buffers: Sequence[memoryview], position: int, flags: int = 0) -> int:
        return whole(fd, [buffers[0][:2]], position, flags)

    async def main() -> None:
        file = await real.create("a")
        await file.write(0, [b"abcdefg"])
        monkeypatch.setattr(os, "preadv", short)
        assert await read(file, 1, 5) == b"bcdef"

    run(main())


def test_a_failed_write_is_an_os_error(real: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, buffers: Sequence[bytes], position: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def main() -> None:
        file = await real.create("a")
        monkeypatch.setattr(os, "pwritev", full)
        for size in (10, 3 << 20):
            with pytest.raises(OSError, match="No space left") as failed:
                await file.write(0, [bytes(size)], sync=True)
            assert not isinstance(failed.value, SyncError)

    run(main())


@linux_only
@pytest.mark.parametrize("size", [10, 3 << 20])
def test_a_failed_sync_is_told_from_a_failed_write(
    real: RealDisk, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    def broken(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def main() -> None:
        file = await real.create("a")
        monkeypatch.setattr(os, "fdatasync", broken)
        monkeypatch.setattr(os, "fsync", broken)
        for call in (
            file.write(0, [bytes(size)], sync=True),
            file.sync(),
            file.sync(bulk=True),
            real.sync_directory(""),
        ):
            with pytest.raises(SyncError) as failed:
                await call
            assert failed.value.errno == errno.ENOSPC
        await file.write(0, [b"unsynced"])

    run(main())


def test_truncate_cuts_and_extends(real: RealDisk) -> None:
    async def main() -> None:
        file = await real.create("a")
        await file.write(0, [b"abcdef"])
        await file.truncate(2)
        assert file.size() == 2
        await file.truncate(4)
        assert await read(file, 0, 10) == b"ab\0\0"

    run(main())


@linux_only
def test_reserving_takes_space_and_keeps_the_size(real: RealDisk, tmp_path: Path) -> None:
    async def main() -> None:
        file = await real.create("a")
        await file.write(0, [b"abc"])
        await file.reserve(1 << 20)
        assert file.size() == 3
        assert (tmp_path / "a").stat().st_blocks * 512 >= 1 << 20
        await file.truncate(3)
        assert (tmp_path / "a").stat().st_blocks * 512 < 1 << 20

    run(main())


@linux_only
@pytest.mark.parametrize(
    ("code", "raises"), [(errno.ENOSPC, True), (errno.EOPNOTSUPP, False), (errno.ENOSYS, False)]
)
def test_a_file_system_that_cannot_reserve_is_left_alone(
    real: RealDisk, monkeypatch: pytest.MonkeyPatch, code: int, raises: bool
) -> None:
    class Libc:
        fallocate = staticmethod(lambda *args: -1)

    monkeypatch.setattr(disk, "_libc", Libc)
    monkeypatch.setattr(ctypes, "get_errno", lambda: code)

    async def main() -> None:
        file = await real.create("a")
        if raises:
            with pytest.raises(OSError, match=os.strerror(code)):
                await file.reserve(10)
        else:
            await file.reserve(10)

    run(main())


@linux_only
def test_a_signal_that_interrupts_reserving_is_no_lack_of_room(
    real: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libc:
        answers = iter([-1, -1, 0])

        @classmethod
        def fallocate(cls, *args: object) -> int:
            return next(cls.answers)

    monkeypatch.setattr(disk, "_libc", Libc)
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EINTR)

    async def main() -> None:
        await (await real.create("a")).reserve(10)
        assert next(Libc.answers, None) is None

    run(main())


# ---- reading without waiting


def test_what_is_in_the_page_cache_is_read_at_once(real: RealDisk) -> None:
    async def main() -> None:
        file = await real.create("a")
        await file.write(0, [b"abcdef"])
        buffer = memoryview(bytearray(4))
        assert file.read_nowait(1, buffer) in (4, None)  # some file systems never answer at once
        assert await file.read(1, buffer) == 4
        assert bytes(buffer) == b"bcde"

    run(main())


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (BlockingIOError(errno.EAGAIN, ""), None),
        (OSError(errno.EOPNOTSUPP, ""), None),
        (3, None),
        (4, 4),
        (0, 0),
    ],
    ids=["cold", "not supported", "partly cold", "whole", "past the end"],
)
def test_an_immediate_read_is_whole_or_none(
    real: RealDisk, monkeypatch: pytest.MonkeyPatch, outcome: int | Exception, answer: int | None
) -> None:
    def preadv(fd: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def main() -> None:
        file = await real.create("a")
        monkeypatch.setattr(disk, "_CAN_ASK", True)
        monkeypatch.setattr(os, "preadv", preadv)
        assert file.read_nowait(0, memoryview(bytearray(4))) == answer

    run(main())


def test_an_immediate_read_that_the_disk_refuses_is_an_error(
    real: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(fd: int, buffers: Sequence[memoryview], position: int, flags: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async def main() -> None:
        file = await real.create("a")
        monkeypatch.setattr(disk, "_CAN_ASK", True)
        monkeypatch.setattr(os, "preadv", broken)
        with pytest.raises(OSError, match="Input/output error"):
            file.read_nowait(0, memoryview(bytearray(4)))

    run(main())


def test_where_nobody_can_ask_every_read_waits(real: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        file = await real.create("a")
        await file.write(0, [b"abcd"])
        monkeypatch.setattr(disk, "_CAN_ASK", False)
        assert file.read_nowait(0, memoryview(bytearray(4))) is None

    run(main())


# ---- names


def test_names_are_sorted_and_directories_marked(real: RealDisk) -> None:
    async def main() -> None:
        await real.make_directory("dir")
        (await real.create("b")).close()
        (await real.create("dir/inner")).close()
        (await real.create("a")).close()
        assert await real.list("") == ["a", "b", "dir/"]
        assert await real.list("dir") == ["inner"]

    run(main())


def test_create_empties_what_is_there(real: RealDisk) -> None:
    async def main() -> None:
        file = await real.create("a")
        await file.write(0, [b"old"])
        assert (await real.create("a")).size() == 0

    run(main())


def test_open_keeps_what_is_there(real: RealDisk) -> None:
    async def main() -> None:
        await (await real.create("a")).write(0, [b"old"], sync=True)
        for fresh in (False, True):
            file = await real.open("a", fresh=fresh)
            assert file.path == "a"
            assert await read(file, 0, 10) == b"old"

    run(main())


def test_rename_replaces_and_an_open_file_stays_usable(real: RealDisk) -> None:
    async def main() -> None:
        old, new = await real.create("a"), await real.create("b")
        await old.write(0, [b"old"])
        await new.write(0, [b"new"])
        await real.rename("b", "a")
        await real.sync_directory("")
        assert await real.list("") == ["a"]
        assert await read(old, 0, 10) == b"old"
        assert await read(await real.open("a"), 0, 10) == b"new"

    run(main())


def test_remove_takes_files_and_empty_directories(real: RealDisk) -> None:
    async def main() -> None:
        await real.make_directory("dir")
        file = await real.create("dir/a")
        with pytest.raises(OSError, match="not empty"):
            await real.remove("dir")
        await real.remove("dir/a")
        await real.remove("dir")
        assert await real.list("") == []
        await file.write(0, [b"still mine"])
        assert await read(file, 0, 99) == b"still mine"

    run(main())


def test_what_is_missing_is_told(real: RealDisk) -> None:
    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: real.open("none"),
        lambda: real.list("none"),
        lambda: real.remove("none"),
        lambda: real.rename("none", "other"),
        lambda: real.create("none/a"),
    ]

    async def main() -> None:
        for call in calls:
            with pytest.raises(FileNotFoundError):
                await call()
        await real.make_directory("dir")
        with pytest.raises(FileExistsError):
            await real.make_directory("dir")

    run(main())


def test_free_space_is_what_the_system_says(real: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    class State:
        f_bavail, f_frsize = 100, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: State())
    assert real.free_bytes() == 409_600


# ---- descriptors


def test_a_file_is_closed_once(real: RealDisk) -> None:
    async def main() -> None:
        file = await real.create("a")
        number = file._fd
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)
        other = os.open(real.root, os.O_RDONLY)  # likely to get the same number
        file.close()
        os.close(other)

    run(main())


def test_a_file_that_is_let_go_is_closed(real: RealDisk, tmp_path: Path) -> None:
    number = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    file = disk.RealFile("a", number, real.calls)
    assert file.size() == 0
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_children_do_not_inherit_a_file(real: RealDisk) -> None:
    async def main() -> None:
        file = await real.create("a")
        assert not os.get_inheritable(file._fd)

    run(main())


def test_a_cancelled_call_keeps_its_file_open(real: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number must not become another file's before the call in the thread has ended."""

    async def main() -> None:
        file = await real.create("a")
        begun, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        truncate = os.ftruncate
        ended: list[BaseException | None] = []

        def slow(fd: int, size: int) -> None:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(30)
            try:
                truncate(fd, size)
            except OSError as error:
                ended.append(error)
            else:
                ended.append(None)

        monkeypatch.setattr(os, "ftruncate", slow)
        task = asyncio.ensure_future(file.truncate(77))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del file, task
        go_on.set()
        await asyncio.to_thread(real.close)
        assert ended == [None]
        assert os.stat(os.path.join(real.root, "a")).st_size == 77

    run(main())
