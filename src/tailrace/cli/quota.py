"""`tailrace quota`: how much users, client ids and addresses may ask of a broker, running or not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import rich_click as click

from tailrace.cli.data_directory import Place, place_option
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.cli.quota_access import QuotaAccess
from tailrace.model import escape

_place_option = place_option("quotas")
_DEFAULT_WORD = "(default)"


@click.group(name="quota", no_args_is_help=True)
def command() -> None:
    """Set, list and remove quotas.

    A client over its quota is answered, and then not read for as long as it takes to be within the quota.
    """


def _entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name an entity; it receives the names by type as `entity`."""

    @functools.wraps(command)
    def found(*args: Any, **options: Any) -> Any:
        entity: dict[str, str | None] = {}
        for kind in ("ip", "client-id", "user"):
            key = kind.replace("-", "_")
            name, is_default = options.pop(f"entity_{key}"), options.pop(f"default_{key}")
            if name is not None and is_default:
                raise click.UsageError(f"--{kind}-default is for those that have no --{kind} of their own.")
            if name is not None or is_default:
                entity[kind] = name
        if not entity:
            raise click.UsageError("name for whom the quota is: --for-user, --client-id, --ip, or a default.")
        return command(*args, entity=entity, **options)

    for kind, flag, what in (
        ("ip", "--ip", "address"),
        ("client_id", "--client-id", "client id"),
        ("user", "--for-user", "user"),
    ):
        default = f"--{flag.removeprefix('--').removeprefix('for-')}-default"
        each = f"Each {what} without a quota of its own."
        found = click.option(default, f"default_{kind}", is_flag=True, help=each)(found)
        found = click.option(flag, f"entity_{kind}", metavar="NAME", help=f"One {what}.")(found)
    return found


def _value_options(command: Callable[..., Any], *, removing: bool) -> Callable[..., Any]:
    """Give a command the options that name quotas; it receives them by Kafka's names as `values`."""

    @functools.wraps(command)
    def found(*args: Any, **options: Any) -> Any:
        given = {name: options.pop(key) for name, (_, key, _) in _QUOTAS.items()}
        return command(*args, values={name: each for name, each in given.items() if each}, **options)

    for flag, key, what in reversed(list(_QUOTAS.values())):
        if removing:
            found = click.option(flag, key, is_flag=True, help=f"Remove the quota of {what}.")(found)
        else:
            kind = click.FloatRange(min=0, min_open=True)
            found = click.option(flag, key, metavar="NUMBER", type=kind, help=f"At most so many {what}.")(
                found
            )
    return found


_QUOTAS: Mapping[str, tuple[str, str, str]] = {
    "producer_byte_rate": ("--produce", "produce", "bytes sent in a second"),
    "consumer_byte_rate": ("--fetch", "fetch", "bytes received in a second"),
    "request_percentage": ("--request-percent", "request_percent", "percent of the broker's thread"),
    "connection_creation_rate": ("--connections", "connections", "new connections of an address in a second"),
}


@command.command(
    name="set",
    epilog=examples(
        "tailrace quota set --for-user alice --produce 1048576 --fetch 2097152",
        "tailrace quota set --user-default --request-percent 20",
        "tailrace quota set --for-user alice --client-id etl --produce 524288 --data-dir ./tailrace-data",
        "tailrace quota set --ip-default --connections 20",
    ),
)
@_entity_options
@functools.partial(_value_options, removing=False)
@_place_option
@output_option
def set_quota(entity: dict[str, str | None], values: dict[str, float], place: Place, output: Output) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    if not values:
        raise click.UsageError(f"name a quota: {', '.join(flag for flag, _, _ in _QUOTAS.values())}.")
    _tell(output, QuotaAccess(place).alter(entity, dict(values)))


@command.command(
    name="remove",
    epilog=examples(
        "tailrace quota remove --for-user alice", "tailrace quota remove --for-user alice --fetch"
    ),
)
@_entity_options
@functools.partial(_value_options, removing=True)
@_place_option
@output_option
def remove_quota(
    entity: dict[str, str | None], values: dict[str, bool], place: Place, output: Output
) -> None:
    """Remove the quotas that are named, or all of an entity."""
    access = QuotaAccess(place)
    names = list(values) or access.names_of(entity)
    _tell(output, access.alter(entity, dict.fromkeys(names)))


@command.command(name="list", epilog=examples("tailrace quota list", "tailrace quota list -o json"))
@_place_option
@output_option
def list_quotas(place: Place, output: Output) -> None:
    """List quotas, and for whom they are."""
    columns = [Column("entity", show=_shown), Column("values", show=_shown_values)]
    output.rows(QuotaAccess(place).rows(), columns=columns)


def _tell(output: Output, record: dict[str, Any]) -> None:
    if output.format == "table":
        values = _shown_values(record["values"]) or "no quota"
        click.echo(f"{_shown(record['entity'])}: {values}")
    else:
        output.record(record)


def _shown(entity: Mapping[str, str | None]) -> str:
    return ", ".join(
        f"{kind} {_DEFAULT_WORD if name is None else escape(name)}" for kind, name in entity.items()
    )


def _shown_values(values: Mapping[str, float]) -> str:
    return ", ".join(
        f"{name} {value:g}" if value < 1e6 else f"{name} {value:.0f}" for name, value in values.items()
    )
