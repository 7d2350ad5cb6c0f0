"""Plans of migrations without a database, and how long back-offs are."""

from __future__ import annotations

import pytest

from tailrace.model import ConfigError
from tailrace.postgres import Backoff, Migration
from tailrace.postgres.migration import Applied, plan_migrations
from tailrace.postgres.role import quoted

KNOWN = [Migration(number=number, name=f"step{number}", sql=f"SELECT {number}") for number in (1, 2, 3)]


def applied(*migrations: Migration) -> dict[int, Applied]:
    return {each.number: Applied(name=each.name, checksum=each.checksum) for each in migrations}


def test_what_is_missing_is_applied_in_order() -> None:
    assert plan_migrations("users", KNOWN, {}, where="x") == KNOWN
    assert plan_migrations("users", KNOWN, applied(*KNOWN[:2]), where="x") == KNOWN[2:]
    assert plan_migrations("users", KNOWN, applied(*KNOWN), where="x") == []


def test_a_newer_database_is_refused() -> None:
    newer = Migration(number=4, name="step4", sql="SELECT 4")
    with pytest.raises(ConfigError, match=r"x has version 4 of the tables of users.*knows 3.*newer tailrace"):
        plan_migrations("users", KNOWN, applied(*KNOWN, newer), where="x")


def test_a_database_that_had_another_migration_is_refused() -> None:
    other = Migration(number=2, name="step2", sql="SELECT 22")
    with pytest.raises(ConfigError, match="another 0002_step2 of users"):
        plan_migrations("users", KNOWN, applied(KNOWN[0], other), where="x")
    with pytest.raises(ConfigError, match="another 0001_step1 of users"):
        plan_migrations("users", KNOWN, applied(KNOWN[1]), where="x")


def test_a_backoff_doubles_to_a_limit_and_begins_again() -> None:
    backoff = Backoff(chance=lambda: 1.0)
    assert [backoff.failed() for _ in range(8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    backoff.succeeded()
    assert backoff.failed() == 0.05
    assert Backoff(chance=lambda: 0.0).failed() == 0.025


def test_names_are_quoted() -> None:
    assert quoted('a"; DROP TABLE x --') == '"a""; DROP TABLE x --"'
    for bad in ("", "a\0b", "a" * 64):
        with pytest.raises(ValueError, match="63 bytes"):
            quoted(bad)
