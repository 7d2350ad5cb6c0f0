"""Names of options and commands that the help does not show: other tools' names, and older ones of ours.

Kafka's own tools have `--bootstrap-server`, rpk and others `--brokers`; `-p` is a partition, or their number.
"""

from __future__ import annotations

import copy
from typing import Any

import rich_click as click

BOOTSTRAP_ALIASES = ("--bootstrap-server", "--brokers")


class AliasedOption(click.Option):
    """An option that is parsed under its `aliases` too, and shown without them."""

    def __init__(self, *args: Any, aliases: tuple[str, ...] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.aliases = aliases

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown = self.opts
        self.opts = [*shown, *self.aliases]  # the parser copies them
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def hidden_alias(command: click.Command, name: str) -> click.Command:
    """The same command under another name, which the help of its group does not list."""
    alias = copy.copy(command)
    alias.name, alias.hidden = name, True
    return alias
