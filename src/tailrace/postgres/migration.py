"""Numbered SQL files: what a part of the program keeps in a database, step by step.

    NNNN_name.sql       0001_users.sql, 0002_..., without a gap; each is one transaction and never edited

`plan_migrations` compares the files with what a database has had, purely. `schema` applies the plan.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

from tailrace.model import ConfigError

_NAME: Final = re.compile(r"([0-9]{4})_([a-z0-9_]{1,60})\.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.number:04}_{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a database knows of a migration that it has had."""

    name: str
    checksum: str


def read_migrations(package: str, folder: str) -> tuple[Migration, ...]:
    """The files in a folder of an installed package, in their order; a wrong name or a gap is our own bug."""
    found = []
    for file in (resources.files(package) / folder).iterdir():
        if file.name.endswith(".sql"):
            match = _NAME.fullmatch(file.name)
            assert match is not None, f"{file.name} is not NNNN_name.sql"
            found.append(Migration(number=int(match[1]), name=match[2], sql=file.read_text("utf-8")))
    found.sort(key=lambda each: each.number)
    assert [each.number for each in found] == list(range(1, len(found) + 1)), f"{folder} has a gap"
    return tuple(found)


def plan_migrations(
    part: str, known: Sequence[Migration], applied: Mapping[int, Applied], *, where: object
) -> Sequence[Migration]:
    """What is to be applied, in order; ConfigError for a database that this program must not touch."""
    newer = max(applied, default=0)
    if newer > len(known):
        raise ConfigError(
            f"{where} has version {newer} of the tables of {part}, and this program knows {len(known)}: a "
            "newer tailrace has used it. Start that one, or name another database"
        )
    for each in known[:newer]:
        had = applied.get(each.number)
        if had is None or had.checksum != each.checksum:
            raise ConfigError(
                f"{where} has had another {each} of {part} than this program has. The tables are not those "
                "of a release: restore the database, or name another one"
            )
    return known[newer:]
