"""Connection URIs: what is read, what is refused, and that no password is ever shown."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tailrace.model import ConfigError
from tailrace.postgres import Dsn, parse_dsn
from tailrace.postgres.dsn import tls_context
from tailrace.security import Secret

PASSWORD = "s3cret/p@ss"


def read(text: str) -> Dsn:
    return parse_dsn(Secret(text), key="security.postgres_dsn")


def test_a_whole_uri_is_read() -> None:
    dsn = read(
        "postgres://ann:s3cret%2Fp%40ss@[::1]:6000/tail%20race?application_name=me&connect_timeout=3\n"
    )
    assert (dsn.user, dsn.host, dsn.port, dsn.database) == ("ann", "::1", 6000, "tail race")
    assert dsn.password is not None and dsn.password.reveal() == PASSWORD
    assert (dsn.application_name, dsn.connect_timeout_s, dsn.sslmode) == ("me", 3, "disable")


def test_parameters_win_over_what_stands_before_them() -> None:
    dsn = read("postgresql://ann@localhost/a?host=/run/postgresql&user=bob&dbname=b&password=x&port=99")
    assert (dsn.user, dsn.host, dsn.port, dsn.database) == ("bob", "/run/postgresql", 99, "b")


def test_the_database_is_named_after_the_user_if_none_is_given() -> None:
    assert read("postgresql://ann@localhost").database == "ann"


@pytest.mark.parametrize("host", ["db.example.com", "10.0.0.7", "localhost.example.com"])
def test_another_machine_is_reached_with_a_verified_certificate_only(host: str) -> None:
    dsn = read(f"postgresql://ann@{host}/a")
    assert dsn.sslmode == "verify-full"
    context = tls_context(dsn)
    assert context is not None and context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
    for weak in ("disable", "allow", "prefer", "require", "verify-ca"):
        with pytest.raises(ConfigError, match="sslmode"):
            read(f"postgresql://ann@{host}/a?sslmode={weak}")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "[::1]"])
def test_on_loopback_tls_is_a_choice(host: str) -> None:
    assert tls_context(read(f"postgresql://ann@{host}/a")) is None
    assert tls_context(read(f"postgresql://ann@{host}/a?sslmode=verify-full")) is not None


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "missing.pem"):
        dsn = read(f"postgresql://ann@db.lan/a?sslrootcert={tmp_path / name}")
        with pytest.raises(ConfigError, match=f"{name}.*sslrootcert"):
            tls_context(dsn)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begin with postgresql"),
        (f"mysql://ann:{PASSWORD}@h/a", "begin with postgresql"),
        (f"host=h password={PASSWORD}", "begin with postgresql"),
        ("postgresql://ann:s3cret#p@h/a", "%23|cannot be read"),
        ("postgresql://ann:s3cret@h:99999/a", "cannot be read"),
        ("postgresql://ann:s3cret@h:x/a", "cannot be read"),
        ("postgresql://ann:s3cret@[::1/a", "cannot be read"),
        ("postgresql://ann:s3cret@localhost:0/a", "port must be"),
        ("postgresql://ann:s3cret@a,b/a", "several hosts|cannot be read"),
        ("postgresql://ann:s3cret@localhost/a?options=-c%20s3cret", "There are: application_name"),
        ("postgresql://ann:s3cret@localhost/a?connect_timeout=s3cret", "connect_timeout must be"),
        ("postgresql://ann:s3cret@localhost/a?connect_timeout=-1", "connect_timeout must be"),
        ("postgresql:///a?host=/run&sslmode=verify-full&password=s3cret", "Unix socket"),
        ("postgresql://ann:s3cret@localhost/\0", "cannot be printed"),
        ("postgresql://ann:s3cret@localhost/" + "a" * 5000, "4096"),
    ],
)
def test_what_is_no_uri_is_refused_without_showing_it(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        read(text)
    assert "security.postgres_dsn is no connection URI" in str(caught.value)
    assert "s3cret" not in str(caught.value) and caught.value.__cause__ is None


def test_a_database_shows_itself_without_its_password() -> None:
    dsn = read("postgresql://ann:s3cret@localhost/a")
    for shown in (repr(dsn), str(dsn), f"{dsn}"):
        assert "s3cret" not in shown
    assert str(dsn) == "PostgreSQL localhost:5432/a"
