"""Where commands change what a broker stores: on a running broker, or in the directory of a stopped one.

--http HOST:PORT         the HTTP listener of a running broker
--data-dir, --config     the directory under its lock; if a broker has it, that broker's HTTP listener
neither                  127.0.0.1:8080

Where the configuration says that users are in PostgreSQL, they are read and changed there.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import rich_click as click

from tailrace.cli.config import config_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.login import login_option
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.model.address import Address

if TYPE_CHECKING:
    from tailrace.cluster import Store
    from tailrace.security import Secret, Users, UserStore
    from tailrace.server.encryption import EncryptionConfig

T = TypeVar("T")

_LOOPBACK: Final = "127.0.0.1"
_DEFAULT_HTTP: Final = f"{_LOOPBACK}:8080"
_CALL_S: Final = 30.0
_DATABASE_S: Final = 5.0  # a person waits
USERS: Final = "users"
"""What `tailrace user` changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where to change: at an address, or in a directory."""

    http: str = ""  # "": in the directory
    directory: Path | None = None
    encryption: EncryptionConfig | None = None  # of the directory
    host: str = _LOOPBACK  # of the HTTP listener of a broker that has the directory
    users_dsn: Secret | None = None  # of the database that has the users; None: the directory has them

    def change(self, on_broker: Callable[[str], T], here: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Ask the broker at an address, or work on the store under the lock of the directory."""
        if self.http or self.directory is None:
            return on_broker(self.http)
        from tailrace.runtime import DirectoryLock

        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            lock = DirectoryLock(os.fspath(self.directory))
        except StorageError:
            return on_broker(self._listener(self.directory))
        try:
            return run(_with_store(self.directory, here, self.encryption))
        finally:
            lock.release()

    @asynccontextmanager
    async def users_in(self, store: Store | None) -> AsyncIterator[Users]:
        """The users: in the database that has them, else in the store of the directory."""
        from tailrace.cluster import MetadataDisabled, MetadataUsers
        from tailrace.security import Users

        disabled = None if store is None else MetadataDisabled(store)
        async with AsyncExitStack() as opened:
            if self.users_dsn is not None:
                database = await opened.enter_async_context(_database_users(self.users_dsn))
                users = Users(database, disabled=disabled)
            else:
                assert store is not None
                users = Users(MetadataUsers(store), disabled=disabled)
            opened.push_async_callback(users.close)
            await users.load()
            yield users

    def _listener(self, directory: Path) -> str:
        """The HTTP listener of the broker that has the directory."""
        from tailrace.server.ports import read_ports

        ports = read_ports(directory)
        if ports is None or ports.http is None:
            raise CommandFailed(
                f"a broker serves {directory} and has no HTTP listener that is known. Name it with "
                "--http HOST:PORT, or stop the broker and run this command again"
            )
        _trust(ports.tls.get("http"))
        host = {"0.0.0.0": _LOOPBACK, "::": "::1"}.get(self.host, self.host)
        return str(Address(host, ports.http))


def find_place(*, data_dir: Path | None, config_file: Path | None, http: str | None, what: str) -> Place:
    """The place that the options of a command name; `what` is what is changed there, for errors."""
    if http is not None:
        return Place(http=http)
    if data_dir is not None:
        return Place(directory=data_dir)
    if config_file is None:
        return Place(http=os.environ.get("TAILRACE_HTTP") or _DEFAULT_HTTP)
    from tailrace.server.configuration import read_config
    from tailrace.server.engines import ENGINES

    config = read_config(environment=os.environ, file=config_file)
    server = config.server()
    users_dsn = server.postgres_dsn if server.users == "postgres" else None
    facts = ENGINES[server.engine].describe(server)
    if not facts.directory and users_dsn is not None and what == USERS:
        return Place(users_dsn=users_dsn)
    if not facts.directory:
        goes = "are in its database" if facts.durable else "go with the broker"
        raise CommandFailed(
            f"{config_file} has storage.engine = {facts.name}, whose {what} {goes}. Create them "
            "while it runs, with --http HOST:PORT"
        )
    listeners = server.listeners_of("http")
    host = listeners[0].address.host if listeners else _LOOPBACK
    directory = Path(str(config["storage.data_dir"]))
    return Place(directory=directory, encryption=server.encryption, host=host, users_dsn=users_dsn)


def ask(address: str, method: str, path: str, body: object = None) -> Any:
    """The answer of a broker's REST API; CommandFailed with the exit code that its status is worth."""
    from tailrace.cli.rest import call, message_of

    status, answer = call(address, method, path, body=body, timeout_s=_CALL_S)
    if status < 400:
        return answer
    codes = {401: ExitCode.AUTH, 403: ExitCode.AUTH, 404: ExitCode.NOT_FOUND}
    raise CommandFailed(message_of(answer, status), exit_code=codes.get(status, ExitCode.ERROR))


def place_option(
    what: str, *, password_flag: str = "--password-file"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that name a place; it receives a `Place` as `place`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def found(
            *args: Any, data_dir: Path | None, config_file: Path | None, http: str | None, **options: Any
        ) -> Any:
            place = find_place(data_dir=data_dir, config_file=config_file, http=http, what=what)
            return command(*args, place=place, **options)

        return _DATA_DIR(config_option(_HTTP(login_option(found, password_flag=password_flag))))

    return decorate


_DATA_DIR = click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The data directory of the broker, which need not run.",
)
_HTTP = click.option(
    "--http",
    metavar="HOST:PORT",
    show_default=_DEFAULT_HTTP,
    help="The HTTP listener of a running broker. [env var: TAILRACE_HTTP]",
)


def run(change: Coroutine[Any, Any, T]) -> T:
    """What a change comes to; CommandFailed says why it could not be made."""
    try:
        return asyncio.run(change)
    except BrokerError as error:
        code = ExitCode.NOT_FOUND if error.code == ErrorCode.RESOURCE_NOT_FOUND else ExitCode.ERROR
        raise CommandFailed(str(error), exit_code=code) from error


@asynccontextmanager
async def _database_users(dsn: Secret) -> AsyncIterator[UserStore]:
    from tailrace.cluster.postgres_users import PostgresUsers
    from tailrace.postgres import parse_dsn

    store = PostgresUsers(parse_dsn(dsn, key="security.postgres_dsn"))
    try:
        await store.open(wait_s=_DATABASE_S)
        yield store
    finally:
        await store.close()


def _trust(cert: str | None) -> None:
    """Have the client of this command trust the certificate of the broker that has the directory."""
    from tailrace.client.tls import PIN_VARIABLE

    if cert is not None:
        os.environ.setdefault(PIN_VARIABLE, cert)


async def _with_store(
    directory: Path, work: Callable[[Store], Coroutine[Any, Any, T]], encryption: EncryptionConfig | None
) -> T:
    from tailrace.cluster import METADATA, MirroredStore, SqliteStore

    store: Store = MirroredStore(SqliteStore(directory / METADATA), directory)
    try:
        if (directory / "KEYS").exists():
            store = await _encrypted(store, directory, encryption)
        return await work(store)
    finally:
        await store.close()


async def _encrypted(store: Store, directory: Path, encryption: EncryptionConfig | None) -> Store:
    """The store of an encrypted directory, whose lock is held; CommandFailed without its key."""
    found = encryption.read() if encryption is not None else None
    if found is None:
        raise CommandFailed(
            f"{directory} is encrypted. Name the configuration that has its key: --config tailrace.toml"
        )
    from tailrace.runtime import RealDisk
    from tailrace.server.engines.segment import encrypted_store
    from tailrace.storage.encryption.keyring import Keyring

    disk = RealDisk(os.fspath(directory))
    try:
        ring = await Keyring.open(disk, found.keys, encrypts=found.enabled)
        await ring.rewrite()
        return await encrypted_store(store, ring)
    finally:
        disk.close()
