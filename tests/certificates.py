"""Certificates for tests: a CA, a server's certificate, and clients' that are good, expired or revoked."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tailrace.net.tls import TlsConfig
from tailrace.server.authority import Pair, make_ca, make_client, make_server, write_pair

NAMES: Final = ("localhost", "127.0.0.1", "::1")
DAY: Final = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Files:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """A directory with a CA and what it issues."""

    directory: Path
    authority: Pair

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    def server(self, *names: str) -> Files:
        return self.write("server", make_server(self.authority, names=names or NAMES))

    def client(self, name: str = "alice") -> Files:
        return self.write(name, make_client(self.authority, name))

    def write(self, name: str, pair: Pair) -> Files:
        files = Files(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        for each in (files.cert, files.key):
            each.unlink(missing_ok=True)
        write_pair(pair, files.cert, files.key)
        return files

    def revocations(self, *revoked: Files) -> Path:
        """A CRL with some certificates."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.authority.certificate.subject)
        builder = builder.last_update(now - DAY).next_update(now + DAY)
        for each in revoked:
            serial = x509.load_pem_x509_certificate(each.cert.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - DAY)
            builder = builder.add_revoked_certificate(entry.build())
        made = builder.sign(self.authority.key, hashes.SHA256())
        path = self.directory / "revoked.crl"
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return path

    def config(self, **settings: object) -> TlsConfig:
        """TLS with a new certificate of this CA."""
        files = self.server()
        return TlsConfig(cert=files.cert, key=files.key, **settings)  # type: ignore[arg-type]


def certificates(directory: Path) -> Certificates:
    """A CA whose certificate is ca.crt in a directory."""
    made = _authority()
    (directory / "ca.crt").write_bytes(made.certificate.public_bytes(serialization.Encoding.PEM))
    return Certificates(directory, made)


@cache
def _authority() -> Pair:
    return make_ca()


def issue(
    authority: Pair,
    subject: x509.Name,
    *,
    names: tuple[x509.GeneralName, ...] = (),
    ends: datetime.timedelta = DAY,
    purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
) -> Pair:
    """A certificate for any subject; with a negative `ends` one that has expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * DAY)
        .not_valid_after(now + ends)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
    return Pair(builder.sign(authority.key, hashes.SHA256()), key)


def named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def client_context(ca: Path, files: Files | None = None) -> ssl.SSLContext:
    """Of a client that verifies chain and host name, and presents a certificate."""
    context = ssl.create_default_context(cafile=ca)
    if files is not None:
        context.load_cert_chain(files.cert, files.key)
    return context
