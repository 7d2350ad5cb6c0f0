"""How commands reach a broker: `--bootstrap`, and what a broker's answer means as an exit code.

`connection_option` gives a command `--bootstrap` and `--timeout`; it receives a `Cluster` as its parameter
`cluster`, whose `run` connects, runs a coroutine and disconnects.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from tailrace.cli.alias import BOOTSTRAP_ALIASES, AliasedOption
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.login import login_option
from tailrace.model import BrokerError, ErrorCode

if TYPE_CHECKING:  # the client is imported when a command runs, not when it shows its help
    from tailrace.client.kafka import KafkaClient

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_TIMEOUT_S = 30.0

_NOT_FOUND = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
_REFUSED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a command works."""

    bootstrap: str
    timeout_s: float = _TIMEOUT_S

    def run(self, work: Callable[[KafkaClient], Coroutine[Any, Any, T]]) -> T:
        """Connect, do the work in an event loop of its own, disconnect."""
        try:
            return asyncio.run(self._connected(work))
        except BrokerError as error:
            raise CommandFailed(str(error), exit_code=exit_code_of(error)) from error

    async def _connected(self, work: Callable[[KafkaClient], Coroutine[Any, Any, T]]) -> T:
        from tailrace.client.credentials import from_environment
        from tailrace.client.kafka import KafkaClient
        from tailrace.client.tls import from_environment as tls_from_environment

        async with KafkaClient(
            self.bootstrap,
            client_id="tailrace-cli",
            request_timeout_s=self.timeout_s,
            credentials=from_environment(),
            tls=tls_from_environment(),
        ) as client:
            return await work(client)


def exit_code_of(error: BrokerError) -> ExitCode:
    """What a broker's answer is worth to a script."""
    if error.code in _NOT_FOUND:
        return ExitCode.NOT_FOUND
    if error.code in _REFUSED:
        return ExitCode.AUTH
    if error.code == ErrorCode.REQUEST_TIMED_OUT:
        return ExitCode.TIMEOUT
    return ExitCode.ERROR


def connection_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--bootstrap`, `--timeout` and the login; it receives a `Cluster` as `cluster`."""
    return login_option(anonymous_connection_option(command))


def anonymous_connection_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same without a login, for commands whose clients cannot log in."""

    @functools.wraps(command)
    def connected(*args: Any, bootstrap: str, timeout: float, **options: Any) -> Any:
        return command(*args, cluster=Cluster(bootstrap, timeout), **options)

    return bootstrap_option(_TIMEOUT(connected))


bootstrap_option = click.option(
    "-b",
    "--bootstrap",
    cls=AliasedOption,
    aliases=BOOTSTRAP_ALIASES,
    envvar="TAILRACE_BOOTSTRAP",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT",
    help="A broker of the cluster; several with commas.",
)
_TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer.",
)


def confirm(question: str, *, yes: bool) -> None:
    """Go on only if somebody wants that: by --yes, or by an answer at a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Say --yes to do it, or --dry-run to see what would happen.")
    click.confirm(question, abort=True, err=True)
