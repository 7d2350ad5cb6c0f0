"""`tailrace cert`: what it makes, and what it refuses to write over or to sign."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from tailrace.cli.main import main
from tailrace.model import ConfigError
from tailrace.net.tls import ServerTls
from tailrace.server.configuration import check_file, read_config
from tailrace.server.secure_start import add_client, init


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_server_certificate_is_for_this_machine_and_a_year(tmp_path: Path) -> None:
    init(tmp_path / "s", names=["broker.example.com", "10.0.0.7", "*.example.com"])
    made = certificate(tmp_path / "s" / "server.crt")
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = {"localhost", socket.gethostname(), "broker.example.com", "*.example.com"}
    assert set(names.get_values_for_type(x509.DNSName)) == hosts
    addresses = {ipaddress.ip_address(each) for each in ("127.0.0.1", "::1", "10.0.0.7")}
    assert set(names.get_values_for_type(x509.IPAddress)) == addresses
    left = made.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=364) < left <= datetime.timedelta(days=365)
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    made.verify_directly_issued_by(certificate(tmp_path / "s" / "ca.crt"))


def test_keys_are_p_256_and_for_their_owner_alone_and_the_ca_is_apart(tmp_path: Path) -> None:
    init(tmp_path / "s")
    for path in (tmp_path / "s" / "server.key", tmp_path / "s" / "ca" / "ca.key"):
        assert path.stat().st_mode & 0o777 == 0o600
        key = load_pem_private_key(path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1"
    assert (tmp_path / "s" / "ca").stat().st_mode & 0o777 == 0o700


def test_the_configuration_has_tls_and_a_login_on_every_listener_and_access_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    init(Path("secure"))
    file = Path("secure/tailrace.toml")
    assert check_file(file) == []
    config = read_config(environment={}, file=file)
    server = config.server()
    assert server.data_dir == Path("secure/data")
    kafka, native, http = (server.listeners_of(each)[0] for each in ("kafka", "native", "http"))
    assert [each.address.port for each in (kafka, native, http)] == [9092, 9999, 8080]
    assert [each.security_protocol for each in (kafka, native, http)] == ["SASL_SSL"] * 3
    assert http.sasl == ("PLAIN",) and kafka.sasl == native.sasl == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert (config["security.authorizer"], config["security.super_users"]) == ("acl", "User:admin")
    assert kafka.tls is not None
    ServerTls(kafka.tls)


@pytest.mark.parametrize("file", ["ca.crt", "ca/ca.key", "server.crt", "server.key", "tailrace.toml"])
def test_nothing_that_exists_is_written_over(tmp_path: Path, file: str) -> None:
    kept = tmp_path / file
    kept.parent.mkdir(exist_ok=True)
    kept.symlink_to(tmp_path / "elsewhere")  # a dangling link is something that exists
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="exists already and is not written over"):
        init(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["", "a b", "-x", "broker.example.com:9092", "a..b", "x" * 254, "ümlaut"])
def test_what_is_no_name_is_refused_and_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is no host name and no address"):
        init(tmp_path / "s", names=[name])
    assert not (tmp_path / "s").exists()


def test_a_machine_whose_name_is_none_gets_a_certificate_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "no name!")
    init(tmp_path / "s")
    names = certificate(tmp_path / "s" / "server.crt").extensions
    found = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["localhost"]


def test_a_client_gets_a_certificate_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(tmp_path)
    assert main(["cert", "client", str(tmp_path), "billing"]) == 0
    assert "The broker knows its owner as User:CN=billing" in capsys.readouterr().out
    made = certificate(tmp_path / "clients" / "billing.crt")
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert (tmp_path / "clients" / "billing.key").stat().st_mode & 0o777 == 0o600
    assert main(["cert", "client", str(tmp_path), "billing"]) == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a,O=Acme", "x" * 65, "-a", "a\n"])
def test_a_name_that_is_none_gets_no_certificate(tmp_path: Path, name: str) -> None:
    init(tmp_path)
    with pytest.raises(ConfigError, match="is no name for a client"):
        add_client(tmp_path, name)
    assert not (tmp_path / "clients").exists()


def test_without_a_ca_there_are_no_clients(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="To make a CA: tailrace cert init"):
        add_client(tmp_path, "billing")
