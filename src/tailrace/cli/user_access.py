"""Where `tailrace user` finds users: on a running broker, or in the data directory of one that does not run.

--http HOST:PORT         the HTTP listener of a running broker
--data-dir, --config     the directory under its lock; if a broker has it, that broker's HTTP listener
                         where security.users is postgres: the database, whether a broker runs or not
neither                  127.0.0.1:8080
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote

from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.model.address import Address

if TYPE_CHECKING:
    from tailrace.security import Secret, Users, UserStore

_LOOPBACK: Final = "127.0.0.1"
_DEFAULT_HTTP: Final = f"{_LOOPBACK}:8080"
_PATH: Final = "/api/v1/users"
_CALL_S: Final = 30.0
_DATABASE_S: Final = 5.0  # a person waits


class UserAccess(Protocol):
    """Users, wherever they are. CommandFailed says why something could not be done."""

    def list(self) -> list[dict[str, Any]]: ...

    def create(self, name: str, password: Secret) -> None: ...

    def set_password(self, name: str, password: Secret) -> None: ...

    def set_enabled(self, name: str, *, enabled: bool) -> None: ...

    def delete(self, name: str) -> None: ...


def find_users(*, data_dir: Path | None, config_file: Path | None, http: str | None) -> UserAccess:
    """The access that the options of a command name."""
    if http is not None:
        return RestUsers(http)
    if data_dir is None and config_file is not None:
        from tailrace.server.configuration import read_config
        from tailrace.server.engines import ENGINES

        config = read_config(environment=os.environ, file=config_file)
        server = config.server()
        if server.users == "postgres":
            assert server.postgres_dsn is not None
            return DatabaseUsers(server.postgres_dsn)
        facts = ENGINES[server.engine].describe(server)
        if not facts.directory:
            goes = "are in its database" if facts.durable else "go with the broker"
            raise CommandFailed(
                f"{config_file} has storage.engine = {facts.name}, whose users {goes}. Create them "
                "while it runs, with --http HOST:PORT"
            )
        listeners = server.listeners_of("http")
        host = listeners[0].address.host if listeners else _LOOPBACK
        return DirectoryUsers(Path(str(config["storage.data_dir"])), host=host)
    return RestUsers(_DEFAULT_HTTP) if data_dir is None else DirectoryUsers(data_dir)


class RestUsers:
    """Users of a running broker."""

    def __init__(self, address: str) -> None:
        self._address = address

    def list(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("GET", _PATH)["users"]
        return found

    def create(self, name: str, password: Secret) -> None:
        self._call("POST", _PATH, {"name": name, "password": password.reveal()})

    def set_password(self, name: str, password: Secret) -> None:
        self._call("PATCH", _path(name), {"password": password.reveal()})

    def set_enabled(self, name: str, *, enabled: bool) -> None:
        self._call("PATCH", _path(name), {"enabled": enabled})

    def delete(self, name: str) -> None:
        self._call("DELETE", _path(name))

    def _call(self, method: str, path: str, body: object = None) -> Any:
        from tailrace.cli.rest import call, message_of

        status, answer = call(self._address, method, path, body=body, timeout_s=_CALL_S)
        if status < 400:
            return answer
        codes = {401: ExitCode.AUTH, 403: ExitCode.AUTH, 404: ExitCode.NOT_FOUND}
        raise CommandFailed(message_of(answer, status), exit_code=codes.get(status, ExitCode.ERROR))


Work = Callable[["Users"], Coroutine[Any, Any, Any]]


class StoredUserAccess:
    """Users in a store that this process opens by itself; where a broker has it, through the broker."""

    def list(self) -> list[dict[str, Any]]:
        async def read(users: Users) -> list[dict[str, Any]]:
            return [
                {"name": name, "enabled": user.enabled, "mechanisms": sorted(user.verifiers)}
                for name, user in users.items()
            ]

        found: list[dict[str, Any]] = self._with(lambda rest: rest.list(), read)
        return found

    def create(self, name: str, password: Secret) -> None:
        self._with(lambda rest: rest.create(name, password), lambda users: users.create(name, password))

    def set_password(self, name: str, password: Secret) -> None:
        self._with(
            lambda rest: rest.set_password(name, password), lambda users: users.set_password(name, password)
        )

    def set_enabled(self, name: str, *, enabled: bool) -> None:
        self._with(
            lambda rest: rest.set_enabled(name, enabled=enabled),
            lambda users: users.set_enabled(name, enabled=enabled),
        )

    def delete(self, name: str) -> None:
        self._with(lambda rest: rest.delete(name), lambda users: users.delete(name))

    def _with(self, on_broker: Callable[[RestUsers], Any], here: Work) -> Any:
        raise NotImplementedError


class DatabaseUsers(StoredUserAccess):
    """Users in PostgreSQL, where brokers that run see every change."""

    def __init__(self, dsn: Secret) -> None:
        self._dsn = dsn

    def _with(self, on_broker: Callable[[RestUsers], Any], here: Work) -> Any:  # noqa: ARG002
        return _run(self._change(here))

    async def _change(self, work: Work) -> Any:
        from tailrace.cluster.postgres_users import PostgresUsers
        from tailrace.postgres import parse_dsn

        store = PostgresUsers(parse_dsn(self._dsn, key="security.postgres_dsn"))
        try:
            await store.open(wait_s=_DATABASE_S)
            return await _work_on(store, work)
        finally:
            await store.close()


class DirectoryUsers(StoredUserAccess):
    """Users in a data directory: changed under its lock, so that no broker has it meanwhile."""

    def __init__(self, directory: Path, *, host: str = _LOOPBACK) -> None:
        """`host` is where the HTTP listener of a broker is, if one has the directory."""
        self._directory = directory
        self._host = host

    def _with(self, on_broker: Callable[[RestUsers], Any], here: Work) -> Any:
        from tailrace.runtime import DirectoryLock

        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            lock = DirectoryLock(os.fspath(self._directory))
        except StorageError:
            return on_broker(RestUsers(self._listener()))
        try:
            return _run(self._change(here))
        finally:
            lock.release()

    async def _change(self, work: Work) -> Any:
        from tailrace.cluster import METADATA, MetadataUsers, MirroredStore, SqliteStore

        store = MirroredStore(SqliteStore(self._directory / METADATA), self._directory)
        try:
            return await _work_on(MetadataUsers(store), work)
        finally:
            await store.close()

    def _listener(self) -> str:
        """The HTTP listener of the broker that has the directory."""
        from tailrace.server.ports import read_ports

        ports = read_ports(self._directory)
        if ports is None or ports.http is None:
            raise CommandFailed(
                f"a broker serves {self._directory} and has no HTTP listener that is known. Name it with "
                "--http HOST:PORT, or stop the broker and run this command again"
            )
        host = {"0.0.0.0": _LOOPBACK, "::": "::1"}.get(self._host, self._host)
        return str(Address(host, ports.http))


async def _work_on(store: UserStore, work: Work) -> Any:
    from tailrace.security import Users

    users = Users(store)
    try:
        await users.load()
        return await work(users)
    finally:
        await users.close()


def _run(change: Coroutine[Any, Any, Any]) -> Any:
    try:
        return asyncio.run(change)
    except BrokerError as error:
        code = ExitCode.NOT_FOUND if error.code == ErrorCode.RESOURCE_NOT_FOUND else ExitCode.ERROR
        raise CommandFailed(str(error), exit_code=code) from error


def _path(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"
