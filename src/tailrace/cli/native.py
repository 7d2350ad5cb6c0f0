"""How commands reach the native listener: `--node`, where to begin in a topic, answers as exit codes.

`node_option` gives a command `--node` and `--timeout`; it receives a `NativeNode` as its parameter `node`.
Its `run` connects, runs a coroutine and disconnects: nobody there is an error at once. Its `stay` is for
commands that wait for messages: once connected it comes back after every loss. Deadlines that no flag gives
are those of the configuration (`client.request_timeout_ms`, `client.heartbeat_interval_ms`).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from tailrace.cli.connection import exit_code_of
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.login import login_option
from tailrace.model import BrokerError, ErrorCode, escape

if TYPE_CHECKING:  # the client is imported when a command runs, not when it shows its help
    from tailrace.client.async_client import AsyncClient
    from tailrace.client.tls import ClientTls
    from tailrace.model.address import Address
    from tailrace.security.messages import Encryption

    _AddressType = click.ParamType[Address]
    _TextType = click.ParamType[str]
else:  # in older versions of click it has no parameter
    _AddressType = _TextType = click.ParamType

T = TypeVar("T")
Work = Callable[["AsyncClient"], Coroutine[Any, Any, T]]

DEFAULT_NODE = "127.0.0.1:9999"
NODE_VARIABLE = "TAILRACE_NODE"
_DEFAULT_PORT = 9999
_OFFSET_MAX = (1 << 63) - 1
_OFFSET = re.compile("[0-9]{1,19}")

_WAYS_OUT = {
    ErrorCode.RESOURCE_NOT_FOUND: "Try: tailrace subscription list",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Try: tailrace inspect",
}


@dataclass(frozen=True, slots=True)
class NativeNode:
    """Where a command works."""

    address: Address
    timeout_s: float | None = None  # None: as the configuration says
    encryption: Encryption | None = None

    def run(self, work: Work[T]) -> T:
        """Connect, do the work in an event loop of its own, disconnect."""
        tls = _tls()  # its warning is shown
        with _client_logs(logging.NullHandler()):  # what went wrong is the error that comes out of here
            return self._run(self._connected(work, tls, come_back=False))

    def stay(self, work: Work[T]) -> T:
        """The same for work that goes on until somebody ends it: a lost connection is opened again."""
        tls = _tls()
        with _client_logs(_Lines(logging.WARNING)):
            return self._run(self._connected(work, tls, come_back=True))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run(work)
        except BrokerError as error:
            raise CommandFailed(_message(error), exit_code=native_exit_code_of(error)) from error

    async def _connected(self, work: Work[T], tls: ClientTls | None, *, come_back: bool) -> T:
        from tailrace.client.async_client import AsyncClient
        from tailrace.client.bearer import BearerCredentials
        from tailrace.client.credentials import Credentials, from_environment
        from tailrace.client.native.reconnect import Reconnect

        configured = _configured()
        timeout_s = configured.timeout_s if self.timeout_s is None else self.timeout_s
        login = from_environment()
        client = AsyncClient(
            self.address.host,
            self.address.port,
            f"tailrace-cli-{os.getpid()}",
            reconnect=Reconnect() if come_back else None,
            request_timeout_s=timeout_s,
            publish_timeout_s=timeout_s,
            heartbeat_interval_s=configured.heartbeat_interval_s,
            on_status=_Status(),
            username=login.username if isinstance(login, Credentials) else None,
            password=login.password if isinstance(login, Credentials) else None,
            token=login.source if isinstance(login, BearerCredentials) else None,
            tls=tls,
            encryption=self.encryption,
        )
        async with client:
            return await work(client)


def _tls() -> ClientTls | None:
    from tailrace.client.tls import from_environment

    return from_environment()


# ---- deadlines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deadlines:
    timeout_s: float
    heartbeat_interval_s: float


def _configured() -> _Deadlines:
    from tailrace.server.configuration import read_config

    configuration = read_config(environment=os.environ)
    return _Deadlines(
        timeout_s=int(configuration["client.request_timeout_ms"]) / 1000,
        heartbeat_interval_s=int(configuration["client.heartbeat_interval_ms"]) / 1000,
    )


# ---- what went wrong


def native_exit_code_of(error: BrokerError) -> ExitCode:
    """What a broker's answer is worth to a script; a subscription that does not exist is not found either."""
    return ExitCode.NOT_FOUND if error.code == ErrorCode.RESOURCE_NOT_FOUND else exit_code_of(error)


def _message(error: BrokerError) -> str:
    way_out = _WAYS_OUT.get(error.code)
    return f"{error}. {way_out}" if way_out else str(error)


class _Lines(logging.Handler):
    """What the client has to say meanwhile, such as that it tries again: a line each, on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{record.levelname.lower()}: {escape(record.getMessage())}", err=True)


class _Status:
    """Tells that a connection which was lost is there again."""

    def __init__(self) -> None:
        self._is_lost = False

    def __call__(self, status: str) -> None:
        if status == "connected" and self._is_lost:
            click.echo("connected again", err=True)
        self._is_lost = status == "reconnecting"


@contextmanager
def _client_logs(handler: logging.Handler) -> Iterator[None]:
    """Who gets the client's logs meanwhile; without anybody Python would print them as they are."""
    logger = logging.getLogger("tailrace.client")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


# ---- options


class NodeType(_AddressType):
    """HOST:PORT, or HOST alone for the usual port; an IPv6 address stands in brackets. Or unix:/path."""

    name = "node"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        from tailrace.model.address import Address, parse_address

        if isinstance(value, Address):
            return value
        try:
            return parse_address(value.strip(), default_port=_DEFAULT_PORT)
        except ValueError as error:
            return self.fail(f"{error}, such as {DEFAULT_NODE} or unix:/run/tailrace.sock", param, ctx)


class StartType(_TextType):
    """Where to begin in a topic, turned into the protocol's words: `time:` takes what people write."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind, _, rest = str(value).partition(":")
        if value in ("earliest", "latest"):
            return str(value)
        if kind == "offset" and _OFFSET.fullmatch(rest) and int(rest) <= _OFFSET_MAX:
            return f"offset:{int(rest)}"
        if kind == "time" and rest:
            return f"time:{self._moment(rest, param, ctx)}"
        return self.fail(f"{value!r} is none of {START}", param, ctx)

    def _moment(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from tailrace.model import ConfigError
        from tailrace.runtime import SystemClock
        from tailrace.wire.json.moment import parse_moment

        try:
            return max(0, parse_moment(text, now_ms=SystemClock().now_ms()))
        except ConfigError as error:
            return self.fail(str(error), param, ctx)


START = "earliest, latest, offset:N, time:2h (ago) and time:2026-11-16T09:00"
START_METAVAR = "earliest|latest|offset:N|time:T"


def node_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--node`, `--timeout` and the login; it receives a `NativeNode` as `node`."""
    return login_option(anonymous_node_option(command))


def anonymous_node_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same without a login, for commands whose clients cannot log in."""

    @functools.wraps(command)
    def connected(*args: Any, node_address: Address, timeout: float | None, **options: Any) -> Any:
        return command(*args, node=NativeNode(node_address, timeout), **options)

    return node_address_option(_TIMEOUT(connected))


node_address_option = click.option(
    "--node",
    "node_address",
    type=NodeType(),
    envvar=NODE_VARIABLE,
    default=DEFAULT_NODE,
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    help="The native listener of a broker; unix:/path is its Unix socket.",
)
_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    show_default="client.request_timeout_ms, 30 s",
    metavar="SECONDS",
    help="How long to wait for an answer.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
