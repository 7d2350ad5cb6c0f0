"""`tailrace acl`: who may do what. On a running broker over its HTTP listener, else in its data directory."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final

import rich_click as click

from tailrace.cli.acl_access import AclAccess, Row
from tailrace.cli.connection import confirm
from tailrace.cli.data_directory import Place, place_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.model import escape
from tailrace.model.operation import CLUSTER, Operation

_place_option = place_option("access control entries")

_OPERATIONS: Final = ("all", *(each.name.lower() for each in Operation))
_NAMED: Final = ("topic", "group", "subscription", "transactional_id")


@click.group(name="acl", no_args_is_help=True)
def command() -> None:
    """Say who may do what, by access control entries.

    They count where security.authorizer = "acl". What no entry allows is denied, and one that denies wins.
    """


class Terms:
    """What the options of a command say of entries: lists of values, each for an entry of its own."""

    def __init__(
        self,
        *,
        allow: tuple[str, ...],
        deny: tuple[str, ...],
        operation: tuple[str, ...],
        host: str | None,
        cluster: bool,
        prefixed: bool,
        names: dict[str, tuple[str, ...]],
    ) -> None:
        self.principals = [("allow", each) for each in allow] + [("deny", each) for each in deny]
        self.operations = list(dict.fromkeys(operation))
        self.resources = [(kind, name) for kind, given in names.items() for name in given]
        if cluster:
            self.resources.append(("cluster", CLUSTER.name))
        if prefixed and (cluster or not self.resources):
            raise click.UsageError("--prefixed goes with the name of a topic, group, subscription or id.")
        self.host = host
        self.is_prefixed = prefixed

    def rows(self) -> list[dict[str, str]]:
        """One for each combination of what was given; what was not given is left out."""
        who: list[tuple[str, str] | None] = [*self.principals] or [None]
        operations: list[str | None] = [*self.operations] or [None]
        resources: list[tuple[str, str] | None] = [*self.resources] or [None]
        combined = itertools.product(who, operations, resources)
        return [self._row(*each) for each in combined]

    def _row(
        self, who: tuple[str, str] | None, operation: str | None, resource: tuple[str, str] | None
    ) -> dict[str, str]:
        row: dict[str, str] = {}
        if who is not None:
            row["permission"], row["principal"] = who
        if self.host is not None:
            row["host"] = self.host
        if operation is not None:
            row["operation"] = operation
        if resource is not None:
            row["resource"], row["name"] = resource
        if self.is_prefixed:
            row["pattern"] = "prefixed"
        return row


def _terms_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that describe entries; it receives them as `terms`."""

    @functools.wraps(command)
    def given(
        *args: Any,
        allow: tuple[str, ...],
        deny: tuple[str, ...],
        operation: tuple[str, ...],
        host: str | None,
        cluster: bool,
        prefixed: bool,
        **options: Any,
    ) -> Any:
        names = {kind: options.pop(kind) for kind in _NAMED}
        terms = Terms(
            allow=allow,
            deny=deny,
            operation=operation,
            host=host,
            cluster=cluster,
            prefixed=prefixed,
            names=names,
        )
        return command(*args, terms=terms, **options)

    several = functools.partial(click.option, multiple=True)
    options = (
        several(
            "--allow", metavar="PRINCIPAL", help="Whom to allow, such as User:alice; User:* is everybody."
        ),
        several("--deny", metavar="PRINCIPAL", help="Whom to deny, whatever else allows it."),
        several(
            "--operation",
            type=click.Choice(_OPERATIONS, case_sensitive=False),
            metavar="OPERATION",
            help=f"{', '.join(_OPERATIONS)}.",
        ),
        several("--topic", metavar="NAME", help="A topic; * is every topic but the broker's own."),
        several("--group", metavar="NAME", help="A consumer group."),
        several("--subscription", metavar="NAME", help="A subscription."),
        several("--transactional-id", metavar="ID", help="A transactional id."),
        click.option("--cluster", is_flag=True, help="The cluster."),
        click.option("--prefixed", is_flag=True, help="Every name that begins with NAME."),
        click.option("--host", metavar="ADDRESS", help="Only for clients at this address."),
    )
    for option in reversed(options):
        given = option(given)
    return given


# ---- the commands


@command.command(
    name="add",
    epilog=examples(
        "tailrace acl add --allow User:alice --operation read --topic orders",
        "tailrace acl add --allow User:alice --operation read --group billing- --prefixed",
        "tailrace acl add --deny User:bob --operation all --topic '*' --host 192.0.2.7",
    ),
)
@_place_option
@_terms_option
@click.option("--dry-run", is_flag=True, help="Show what would be added, and change nothing.")
@output_option
def add_acls(terms: Terms, dry_run: bool, place: Place, output: Output) -> None:
    """Add entries: one for each principal, operation and resource that is named."""
    if not terms.principals or not terms.operations or not terms.resources:
        raise click.UsageError(
            "An entry needs --allow or --deny, --operation, and a resource: --topic, --group, "
            "--subscription, --transactional-id or --cluster."
        )
    rows = terms.rows()
    if dry_run:
        from tailrace.security.acl import binding_id, check_binding
        from tailrace.security.acl.text import read_acl, view_acl

        bindings = [read_acl(each) for each in rows]
        for each in bindings:
            check_binding(each)
        _tell(output, [view_acl(binding_id(each), each) for each in bindings], "would be added")
    else:
        _tell(output, AclAccess(place).add(rows), "added")


@command.command(
    name="remove",
    epilog=examples(
        "tailrace acl remove --allow User:alice --operation read --topic orders",
        "tailrace acl remove --allow User:alice --yes",
        "tailrace acl remove --id 3f0c6a2b9d1e4f5a8c7b6d5e4f3a2b1c",
    ),
)
@click.option("--id", "ids", metavar="ID", multiple=True, help="The entry with this id.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@_place_option
@_terms_option
@output_option
def remove_acls(
    ids: tuple[str, ...], terms: Terms, yes: bool, dry_run: bool, place: Place, output: Output
) -> None:
    """Remove the entries that have all that is named; without --prefixed those with literal names."""
    filters = [each for each in terms.rows() if each]
    if not ids and not filters:
        raise click.UsageError("Say which entries: --id, or --allow, --deny, --operation, --topic and so on.")
    access = AclAccess(place)
    rows = [each for each in access.find({}) if each["id"] in ids]
    for wanted in filters:
        literal = {"pattern": "literal"} if terms.resources else {}
        rows += access.find({**literal, **wanted})
    rows = list({each["id"]: each for each in rows}.values())
    if not rows:
        raise CommandFailed("there is no such entry. Try: tailrace acl list", exit_code=ExitCode.NOT_FOUND)
    if dry_run:
        _tell(output, rows, "would be removed")
        return
    if not _is_named_exactly(ids, filters):
        confirm(f"Remove {len(rows)} {'entry' if len(rows) == 1 else 'entries'}?", yes=yes)
    for each in rows:
        access.remove(each["id"])
    _tell(output, rows, "removed")


@command.command(
    name="list",
    epilog=examples(
        "tailrace acl list",
        "tailrace acl list --allow User:alice -o json",
        "tailrace acl list --topic orders --matching",
    ),
)
@click.option("--matching", is_flag=True, help="Also * and prefixes that match the name.")
@_place_option
@_terms_option
@output_option
def list_acls(matching: bool, terms: Terms, place: Place, output: Output) -> None:
    """List entries, or those that have all that is named."""
    if matching and not terms.resources:
        raise click.UsageError("--matching goes with the name of a resource.")
    pattern = {"pattern": "match"} if matching else {}
    access, rows = AclAccess(place), list[Row]()
    for wanted in terms.rows():
        rows += access.find({**wanted, **pattern})
    output.rows(list({each["id"]: each for each in rows}.values()), columns=_COLUMNS)


_COLUMNS: Final = [
    Column("permission"),
    Column("principal"),
    Column("operation"),
    Column("resource"),
    Column("name"),
    Column("pattern"),
    Column("host"),
    Column("id"),
]


def _is_named_exactly(ids: tuple[str, ...], filters: list[dict[str, str]]) -> bool:
    """Whether each entry was named by all that makes it, so that there is nothing to ask."""
    wanted = {"permission", "principal", "operation", "resource", "name"}
    return (bool(ids) or bool(filters)) and all(wanted <= each.keys() for each in filters)


def _tell(output: Output, rows: list[Row], done: str) -> None:
    if output.format == "table":
        for each in rows:
            click.echo(f"{escape(_sentence(each))}: {done}")
    else:
        output.rows([{**each, "result": done} for each in rows], columns=_COLUMNS)


def _sentence(row: Row) -> str:
    what = "cluster" if row["resource"] == "cluster" else f"{row['resource'].replace('_', ' ')} {row['name']}"
    wide = " and what begins so" if row["pattern"] == "prefixed" else ""
    where = "" if row["host"] == "*" else f" at {row['host']}"
    return f"{row['permission']} {row['principal']}{where} to {row['operation']} {what}{wide}"
