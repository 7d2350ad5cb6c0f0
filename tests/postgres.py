"""A real PostgreSQL for tests: Debian's binaries on a free loopback port, in a temporary directory.

    postgres              the DSN of an empty database, on a server that the whole process shares; not durable
    durable_postgres      the same, on a server that syncs to the disk
    own_postgres          a server of the test's own, to be stopped and killed

Where PostgreSQL or asyncpg is not there, the tests skip with the reason. PostgreSQL refuses to run as root:
then it runs as the user `postgres`. A server is a child of ours and is ended by its process id.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from tailrace.postgres import Connection, Dsn, connect, parse_dsn
from tailrace.postgres.pool import close_connection
from tailrace.security import Secret
from tailrace.testing.port import free_port

SUPERUSER = "boss"
PASSWORD = "the-boss-of-tests"  # of a server that listens on loopback, for as long as the tests run
_READY_S = 60
_STOP_S = 30
_RESTARTS_MAX = 20

FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
_SMALL = (
    "shared_buffers=16MB",
    "max_connections=40",
    "max_wal_size=64MB",
    "logging_collector=off",
)

_numbers = itertools.count(1)
_T = TypeVar("_T")


@cache
def binaries() -> Path | None:
    """Where initdb and postgres are: the newest version that Debian installed, else those of the PATH."""
    found = [each.parent for each in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if found:
        return max(found, key=lambda each: float(each.parent.name))
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


def why_not() -> str:
    """Why there can be no PostgreSQL here; "" if there can."""
    if binaries() is None:
        return "PostgreSQL is not installed. On Debian: scripts/install-packages"
    try:
        import asyncpg  # noqa: F401
    except ImportError:
        return "asyncpg is not installed: pip install 'tailrace[postgres]'"
    if os.getuid() == 0 and _postgres_user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


class PostgresServer:
    """One directory with a database cluster, and the server that runs on it, if one does."""

    def __init__(self, directory: Path, *, settings: Sequence[str] = FAST) -> None:
        self.directory = directory
        self.port = free_port()
        self._settings = (*_SMALL, *settings)
        self._process: subprocess.Popen[str] | None = None
        self._said: deque[str] = deque(maxlen=100)
        self._reader: threading.Thread | None = None
        self._answered = threading.Event()
        self._ready = False
        self._as_user = "postgres" if os.getuid() == 0 else None
        self._initialize()
        self.start()

    def dsn(self, database: str = "postgres", *, user: str = SUPERUSER, password: str = PASSWORD) -> Secret:
        return Secret(f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}")

    @property
    def output(self) -> str:
        """The last lines that the server wrote."""
        return "\n".join(self._said)

    def create_database(self) -> Secret:
        """A new, empty database; its DSN."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        run_on(self.dsn(), lambda each: each.execute(f"CREATE DATABASE {name} TEMPLATE template0"))
        return self.dsn(name)

    def drop_database(self, dsn: Secret) -> None:
        name = parsed(dsn).database
        run_on(self.dsn(), lambda each: each.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))

    def start(self) -> None:
        """Serve again on the same port. Processes of a killed server may hold its memory a moment longer."""
        for _ in range(_RESTARTS_MAX):
            if self._try_start():
                return
            if "is still in use" not in self.output and "already in use" not in self.output:
                break
        raise AssertionError(f"PostgreSQL did not start:\n{self.output}")

    def stop(self) -> None:
        """Shut down and end the sessions of clients; harmless where it does not run."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._wait_ended()

    def kill(self) -> None:
        """kill -9 of the server and of each of its processes, as a machine that fails does."""
        assert self._process is not None
        for pid in (self._process.pid, *_children(self._process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._wait_ended()

    # ---- inside

    def _initialize(self) -> None:
        secret = self.directory / "password"
        secret.write_text(PASSWORD)
        if self._as_user:
            for path in (self.directory, secret):
                shutil.chown(path, "postgres", "postgres")
        done = self._run(
            "initdb", "--no-sync", "--locale=C", "--encoding=UTF8", "--auth=scram-sha-256",
            f"--username={SUPERUSER}", f"--pwfile={secret}", f"--pgdata={self.directory / 'data'}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(_program(program)), *words],
            user=self._as_user,
            group=self._as_user,
            extra_groups=[] if self._as_user else None,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=_READY_S,
            check=False,
        )

    def _try_start(self) -> bool:
        given = [
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.directory}",
        ]
        options = [word for each in (*given, *self._settings) for word in ("-c", each)]
        self._said.clear()
        self._answered.clear()
        self._ready = False
        self._process = subprocess.Popen(
            [str(_program("postgres")), "-D", str(self.directory / "data"), *options],
            user=self._as_user,
            group=self._as_user,
            extra_groups=[] if self._as_user else None,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            start_new_session=True,  # Ctrl-C is for the tests, which then stop the server
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        assert self._answered.wait(_READY_S), f"PostgreSQL says nothing:\n{self.output}"
        if not self._ready:
            self._wait_ended()
        return self._ready

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._said.append(line.rstrip())
            if "ready to accept connections" in line:
                self._ready = True
                self._answered.set()
        self._answered.set()

    def _wait_ended(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert self._reader is not None and process.stdout is not None
        self._reader.join(_STOP_S)
        process.stdout.close()


def parsed(dsn: Secret) -> Dsn:
    return parse_dsn(dsn, key="the DSN of the test")


def run_on(dsn: Secret, act: Callable[[Connection], object]) -> object:
    """What a coroutine with a connection of its own returns; for tests that have no loop."""

    async def run() -> object:
        connection = await connect(parsed(dsn))
        try:
            made = act(connection)
            return await made if asyncio.iscoroutine(made) else made
        finally:
            await close_connection(connection)

    return asyncio.run(run())


@pytest.fixture(scope="session")
def fast_postgres() -> Iterator[PostgresServer]:
    yield from _server(FAST)


@pytest.fixture(scope="session")
def synced_postgres() -> Iterator[PostgresServer]:
    yield from _server(())


@pytest.fixture
def postgres(fast_postgres: PostgresServer) -> Iterator[Secret]:
    dsn = fast_postgres.create_database()
    yield dsn
    fast_postgres.drop_database(dsn)


@pytest.fixture
def durable_postgres(synced_postgres: PostgresServer) -> Iterator[Secret]:
    dsn = synced_postgres.create_database()
    yield dsn
    synced_postgres.drop_database(dsn)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    yield from _server(())


def _server(settings: Sequence[str]) -> Iterator[PostgresServer]:
    if reason := why_not():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(
        prefix="tailrace-postgres-", dir="/tmp", ignore_cleanup_errors=True
    ) as name:
        running = PostgresServer(Path(name), settings=settings)
        try:
            yield running
        finally:
            running.stop()


def _program(name: str) -> Path:
    found = binaries()
    assert found is not None
    return found / name


def _postgres_user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None


def _children(pid: int) -> list[int]:
    """The processes of a server; without /proc none, and they end by themselves."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
