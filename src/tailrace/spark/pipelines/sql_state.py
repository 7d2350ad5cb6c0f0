"""Where a query keeps how far it has come, and what makes it the same query again.

    --checkpoint DIR   there
    to the console     in a temporary folder: the next run starts over
    to a folder        inside it
    to a topic         <state>/sql/<name>, the name being --name, else a hash of the query's normal text, its
                       target and the cluster: neither white space nor comments make another query

The state is the folder of --state, else the data directory if this machine has one, else the user's state
folder (XDG_STATE_HOME, ~/.local/state). `_tailrace_query.json` beside a topic's checkpoint says which query
that is, so that one that has changed is told.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.model import ConfigError
from tailrace.spark.pipelines.sql_query import normal_text
from tailrace.spark.pipelines.sql_sink import write_marker

if TYPE_CHECKING:
    from tailrace.spark.pipelines.sql import SqlConfig

CONSOLE = "console"
TOPIC = "topic:"
QUERY_FILE = "_tailrace_query.json"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder of a checkpoint."""

    path: Path | None  # None for a temporary one
    notice: str = ""  # what a user should know about it


def check_name(name: str) -> None:
    """Raise ConfigError unless the name can be that of a folder."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"sql: name = {name!r} is not possible. Use up to 100 of A-Z a-z 0-9 . _ - (no dot in front)"
        )


def plan_checkpoint(config: SqlConfig, *, environment: Mapping[str, str] = os.environ) -> Place:
    """Where the checkpoint is, and whether the query begins there, goes on, or has changed."""
    if config.checkpoint is not None:
        return Place(path=local_path(config.checkpoint))
    if config.to == CONSOLE:
        return Place(path=None)
    if not config.to.startswith(TOPIC):
        return Place(path=local_path(config.to) / "_checkpoint")
    home = _home(environment)
    state = home if config.state is None else local_path(config.state)
    path = state / "sql" / (config.name or _hash(config.bootstrap, normal_text(config.query), config.to))
    before = home / "sql" / _hash(config.bootstrap, config.query, config.to)
    if not path.exists() and before.exists():
        return Place(path=before)  # of a version that told queries apart by every space
    return Place(path=path, notice=_notice(config, path))


def keep_query(config: SqlConfig, checkpoint: Path) -> None:
    """Note beside a topic's checkpoint which query it is of."""
    content = _identity(config)
    if _read_query(checkpoint) != content:
        checkpoint.mkdir(parents=True, exist_ok=True)
        write_marker(checkpoint / QUERY_FILE, content)


def local_path(place: str) -> Path:
    """A folder of this machine, as a setting names it."""
    return Path(place.removeprefix("file://")).absolute()


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tailrace"


def _hash(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def _identity(config: SqlConfig) -> dict[str, object]:
    return {"v": 1, "query": normal_text(config.query), "to": config.to, "bootstrap": config.bootstrap}


def _notice(config: SqlConfig, path: Path) -> str:
    mine = _identity(config)
    if config.name is not None:
        kept = _read_query(path)
        if kept is None or kept.get("query") == mine["query"]:
            return ""
        return (
            f"the query {config.name} has changed: it goes on where its former text ended, with the state in"
            f" {path}. To start over give it another --name"
        )
    if path.exists():
        return ""
    for other in sorted(path.parent.glob(f"*/{QUERY_FILE}")):
        kept = _read_query(other.parent)
        if kept is not None and {**kept, "query": mine["query"]} == mine:
            return (
                f"another query has written to {config.to} before, and this one starts over: its progress"
                f" is kept in {path}, that of the other in {other.parent}. A query that has a --name goes"
                " on when its text changes"
            )
    return ""


def _read_query(checkpoint: Path) -> dict[str, Any] | None:
    """What `keep_query` noted; None if that is not there or cannot be read: it is for notices alone."""
    try:
        found = json.loads((checkpoint / QUERY_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
