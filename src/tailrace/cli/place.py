"""Where the commands for users, access control entries and the like find them.

--http HOST:PORT         the HTTP listener of a running broker
--data-dir, --config     the directory under its lock; if a broker has it, that broker's HTTP listener
neither                  127.0.0.1:8080
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
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

T = TypeVar("T")

_LOOPBACK: Final = "127.0.0.1"
_DEFAULT_HTTP: Final = f"{_LOOPBACK}:8080"
_CALL_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """A broker by its HTTP listener, or a data directory."""

    http: str  # HOST:PORT; "": the directory
    directory: Path = Path()
    host: str = _LOOPBACK  # of the HTTP listener of a broker that has the directory

    def use(self, over_http: Callable[[str], T], here: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """What either gives: `over_http` for the address of a broker, or `here` in the store of a directory.

        The directory is locked meanwhile, so that no broker has it.
        """
        if self.http:
            return over_http(self.http)
        from tailrace.runtime import DirectoryLock

        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            lock = DirectoryLock(os.fspath(self.directory))
        except StorageError:
            return over_http(self._listener())
        try:
            return asyncio.run(self._with_store(here))
        except BrokerError as error:
            code = ExitCode.NOT_FOUND if error.code == ErrorCode.RESOURCE_NOT_FOUND else ExitCode.ERROR
            raise CommandFailed(str(error), exit_code=code) from error
        finally:
            lock.release()

    async def _with_store(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        from tailrace.cluster import METADATA, MirroredStore, SqliteStore

        store = MirroredStore(SqliteStore(self.directory / METADATA), self.directory)
        try:
            return await work(store)
        finally:
            await store.close()

    def _listener(self) -> str:
        """The HTTP listener of the broker that has the directory."""
        from tailrace.server.ports import read_ports

        ports = read_ports(self.directory)
        if ports is None or ports.http is None:
            raise CommandFailed(
                f"a broker serves {self.directory} and has no HTTP listener that is known. Name it with "
                "--http HOST:PORT, or stop the broker and run this command again"
            )
        host = {"0.0.0.0": _LOOPBACK, "::": "::1"}.get(self.host, self.host)
        return str(Address(host, ports.http))


def find_place(*, data_dir: Path | None, config_file: Path | None, http: str | None, what: str) -> Place:
    """The place that the options of a command name; `what` is what the command is about."""
    if http is not None:
        return Place(http)
    if data_dir is not None:
        return Place("", data_dir)
    if config_file is None:
        return Place(_DEFAULT_HTTP)
    from tailrace.server.configuration import read_config
    from tailrace.server.engines import ENGINES

    config = read_config(environment=os.environ, file=config_file)
    server = config.server()
    facts = ENGINES[server.engine].describe(server)
    if not facts.directory:
        goes = "are in its database" if facts.durable else "go with the broker"
        raise CommandFailed(
            f"{config_file} has storage.engine = {facts.name}, whose {what} {goes}. Create them "
            "while it runs, with --http HOST:PORT"
        )
    listeners = server.listeners_of("http")
    host = listeners[0].address.host if listeners else _LOOPBACK
    return Place("", Path(str(config["storage.data_dir"])), host)


def place_option(
    make: Callable[[Place], Any], *, what: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that say where something is; it receives what `make` gives as `access`.

    A command that reads a new password has `takes_password`, and the caller's own comes by another flag then.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def found(
            *args: Any, data_dir: Path | None, config_file: Path | None, http: str | None, **options: Any
        ) -> Any:
            place = find_place(data_dir=data_dir, config_file=config_file, http=http, what=what)
            return command(*args, access=make(place), **options)

        data_dir = click.option(
            "--data-dir",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="The data directory of the broker, which need not run.",
        )
        http = click.option(
            "--http",
            metavar="HOST:PORT",
            show_default=_DEFAULT_HTTP,
            help="The HTTP listener of a running broker.",
        )
        flag = "--login-password-file" if hasattr(command, "takes_password") else "--password-file"
        return data_dir(config_option(http(login_option(found, password_flag=flag))))

    return decorate


def call_rest(address: str, method: str, path: str, body: object = None) -> Any:
    """The answer of a broker; CommandFailed with what it says is wrong."""
    from tailrace.cli.rest import call, message_of

    status, answer = call(address, method, path, body=body, timeout_s=_CALL_S)
    if status < 400:
        return answer
    codes = {401: ExitCode.AUTH, 403: ExitCode.AUTH, 404: ExitCode.NOT_FOUND}
    raise CommandFailed(message_of(answer, status), exit_code=codes.get(status, ExitCode.ERROR))
