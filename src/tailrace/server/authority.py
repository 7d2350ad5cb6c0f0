"""A certificate authority in a directory, for `tailrace cert`, and the certificates that it issues.

    DIR/ca.crt            the CA: what clients trust
    DIR/ca/ca.key         its key, apart: a broker does not need it, and keeps it best on another machine
    DIR/server.crt, .key  of the listeners
    DIR/clients/NAME.crt, NAME.key

Keys are P-256, unencrypted, and readable by their owner only. Nothing that exists is written over.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tailrace.model import ConfigError

DAYS: Final = 365
CA_DAYS: Final = 3650
_SKEW: Final = datetime.timedelta(hours=1)  # of clocks that are behind ours
_KEY_MODE: Final = 0o600
_CLIENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_HOST: Final = re.compile(
    r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?)*"
)
_HOST_CHARACTERS_MAX: Final = 253


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def ca_paths(directory: Path) -> tuple[Path, Path]:
    return directory / "ca.crt", directory / "ca" / "ca.key"


def server_paths(directory: Path) -> tuple[Path, Path]:
    return directory / "server.crt", directory / "server.key"


def client_paths(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / "clients" / f"{name}.crt", directory / "clients" / f"{name}.key"


def check_new(paths: Iterable[Path]) -> None:
    """ConfigError if one of the files is there already."""
    for path in paths:
        if os.path.lexists(path):
            raise ConfigError(
                f"{path} exists already and is not written over: who trusts it would lose its broker. "
                "Choose another directory, or remove the file"
            )


# ---- making


def make_ca() -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: of two CAs with one name, in one file, OpenSSL may try the wrong one.
    title = f"Tailrace CA {secrets.token_hex(4)}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
    usage = _usage(certificates=True)
    builder = _builder(name, name, key.public_key(), days=CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def make_server(ca: Pair, *, names: Iterable[str]) -> Pair:
    """A certificate for host names and addresses; ConfigError for what is neither."""
    listed = list(dict.fromkeys(names))
    alternative = x509.SubjectAlternativeName([_general_name(each) for each in listed])
    return _issue(
        ca, common_name=listed[0][:64], purpose=ExtendedKeyUsageOID.SERVER_AUTH, alternative=alternative
    )


def make_client(ca: Pair, name: str) -> Pair:
    """A certificate for a client; ConfigError unless the name is a plain one."""
    if not _CLIENT.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} is no name for a client: 1 to 64 letters, digits and . _ @ -, the first a letter "
            "or a digit"
        )
    return _issue(ca, common_name=name, purpose=ExtendedKeyUsageOID.CLIENT_AUTH)


def _issue(
    ca: Pair,
    *,
    common_name: str,
    purpose: x509.ObjectIdentifier,
    alternative: x509.SubjectAlternativeName | None = None,
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = _builder(subject, ca.certificate.subject, key.public_key(), days=DAYS)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(authority, critical=False)
    if alternative is not None:
        builder = builder.add_extension(alternative, critical=False)
    return Pair(builder.sign(ca.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        key_cert_sign=certificates,
        crl_sign=certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def is_host_name(text: str) -> bool:
    """Whether a certificate can be for this name; `*.` may stand in front of it."""
    return len(text) <= _HOST_CHARACTERS_MAX and _HOST.fullmatch(text) is not None


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not is_host_name(text):
        raise ConfigError(
            f"{text[:80]!r} is no host name and no address: --san broker.example.com, --san 10.0.0.7"
        )
    return x509.DNSName(text)


# ---- files


def read_ca(directory: Path) -> Pair:
    """The CA of a directory; ConfigError if it is not there."""
    certificate, key = ca_paths(directory)
    try:
        loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"cannot read {error.filename}: {error.strerror}. To make a CA: tailrace cert init {directory}"
        ) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{certificate} and {key} are not a certificate and its key in PEM") from error
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{key} is no key of an elliptic curve, as tailrace cert init makes it")
    return Pair(found, loaded)


def write_pair(pair: Pair, certificate: Path, key: Path) -> None:
    """Write both; the key first, for its owner alone. FileExistsError where there is one."""
    private = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_new(key, private, mode=_KEY_MODE)
    write_new(certificate, pair.certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


def write_new(path: Path, data: bytes, *, mode: int) -> None:
    """A file that was not there, with this mode from its first byte on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
