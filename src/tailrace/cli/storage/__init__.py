"""`tailrace storage`: mend a data directory. Every verb is a module of this package that offers `command`."""

from __future__ import annotations

from tailrace.cli.main import NounGroup

VERBS = {
    "confirm-clock": "Let records expire again, after a start whose clock was not believed.",
    "rebuild-checkpoint": "Make an unreadable checkpoint again, from segments and journal.",
    "rebuild-metadata": "Make lost or damaged metadata again, from its copy or from the logs.",
}

command = NounGroup(
    name="storage",
    nouns=VERBS,
    package="tailrace.cli.storage",
    help="Mend a data directory.",
    no_args_is_help=True,
)
