"""What the driver raises becomes an error of ours with the right fate, and repeats no value."""

from __future__ import annotations

import pytest

asyncpg = pytest.importorskip("asyncpg")

from tailrace.model import ErrorCode  # noqa: E402
from tailrace.postgres import (  # noqa: E402
    DatabaseAway,
    DatabaseBusy,
    DatabaseError,
    DatabaseFull,
    DatabaseRefused,
    map_error,
    mapped,
)
from tailrace.postgres.error import DatabaseFailed  # noqa: E402


@pytest.mark.parametrize(
    ("sqlstate", "family", "retriable"),
    [
        ("08006", DatabaseAway, True),
        ("57P01", DatabaseAway, True),
        ("57P03", DatabaseAway, True),
        ("55P03", DatabaseBusy, True),
        ("57014", DatabaseBusy, True),
        ("40001", DatabaseBusy, True),
        ("53300", DatabaseBusy, True),
        ("53100", DatabaseFull, True),
        ("28P01", DatabaseRefused, False),
        ("3D000", DatabaseRefused, False),
        ("42501", DatabaseRefused, False),
        ("42P01", DatabaseFailed, False),
        ("23505", DatabaseFailed, False),
    ],
)
def test_sqlstates_have_families(sqlstate: str, family: type[DatabaseError], retriable: bool) -> None:
    given = asyncpg.PostgresError.new(
        {"C": sqlstate, "M": "it says why\nand more", "D": "Key (name)=(hidden)"}, query="SELECT hidden"
    )
    ours = map_error(given, where="PostgreSQL x")
    assert type(ours) is family
    assert (ours.sqlstate, ours.retriable) == (sqlstate, retriable)
    assert "PostgreSQL x" in str(ours) and "it says why" in str(ours) and sqlstate in str(ours)
    assert "hidden" not in str(ours) and "more" not in str(ours)


@pytest.mark.parametrize(
    "given",
    [
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError(),
        asyncpg.InterfaceError("the connection is closed"),
        asyncpg.InternalClientError("got result for unknown protocol state"),
    ],
)
def test_without_an_sqlstate_the_database_is_away(given: Exception) -> None:
    ours = map_error(given, where="PostgreSQL x")
    assert type(ours) is DatabaseAway
    assert (ours.sqlstate, ours.code) == ("", ErrorCode.BROKER_NOT_AVAILABLE)


def test_bugs_stay_bugs() -> None:
    of_arguments = type("Wrong", (asyncpg.InterfaceError, ValueError), {"__module__": "asyncpg.exceptions"})
    for bug in (KeyError("x"), ValueError("x"), of_arguments("expected str, got int")):
        assert map_error(bug, where="x") is None
        with pytest.raises(type(bug)), mapped("x"):
            raise bug


def test_an_error_of_ours_stays_as_it_is() -> None:
    given = DatabaseBusy("busy")
    with pytest.raises(DatabaseBusy) as caught, mapped("x"):
        raise given
    assert caught.value is given


def test_control_characters_of_a_server_are_written_out() -> None:
    given = asyncpg.PostgresError.new({"C": "42P01", "M": "a\x1b[31mb" + "c" * 500}, query="")
    text = str(map_error(given, where="x"))
    assert "\x1b" not in text and len(text) < 300
