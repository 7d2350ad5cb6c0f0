"""Certificates as principals: what each rule reads, and what is refused."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from tests.certificates import issue, named

from tailrace.model.session import Principal
from tailrace.net.certificate import CertificateRefused, distinguished_name, principal_of
from tailrace.server.authority import make_ca

CA = make_ca()
CN, OU, ORG, C, UID, EMAIL = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.COUNTRY_NAME,
    NameOID.USER_ID,
    NameOID.EMAIL_ADDRESS,
)


def name(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def der(subject: x509.Name, *names: x509.GeneralName) -> bytes:
    return issue(CA, subject, names=names).certificate.public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        # As Java's X500Principal.getName() writes them: the last attribute first.
        (name((C, "DE"), (ORG, "Acme"), (OU, "ops"), (CN, "alice")), "CN=alice,OU=ops,O=Acme,C=DE"),
        (name((ORG, "Acme, Inc."), (CN, 'a"b\\c+d<e>;')), 'CN=a\\"b\\\\c\\+d\\<e\\>\\;,O=Acme\\, Inc.'),
        (name((CN, "#1 ")), "CN=\\#1\\ "),
        (name((CN, " x")), "CN=\\ x"),
        (name((UID, "7"), (CN, "ü")), "CN=ü,UID=7"),
        (name((EMAIL, "a@b"), (CN, "x")), "CN=x,1.2.840.113549.1.9.1=#1603614062"),
    ],
)
def test_a_subject_is_written_as_kafka_writes_it(subject: x509.Name, text: str) -> None:
    assert distinguished_name(subject) == text
    assert principal_of(der(subject), "DN") == Principal("User", text)


def test_attributes_of_one_rdn_are_joined() -> None:
    rdn = x509.RelativeDistinguishedName([x509.NameAttribute(CN, "alice"), x509.NameAttribute(OU, "ops")])
    assert distinguished_name(x509.Name([rdn])) in ("CN=alice+OU=ops", "OU=ops+CN=alice")


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ("CN", "alice"),
        ("UID", "7"),
        ("SAN:DNS", "alice.acme.example"),
        ("SAN:EMAIL", "alice@acme.example"),
        ("SAN:URI", "spiffe://acme.example/alice"),
    ],
)
def test_a_rule_takes_one_value(rule: str, found: str) -> None:
    certificate = der(
        name((UID, "7"), (CN, "alice")),
        x509.DNSName("alice.acme.example"),
        x509.RFC822Name("alice@acme.example"),
        x509.UniformResourceIdentifier("spiffe://acme.example/alice"),
    )
    assert principal_of(certificate, rule) == Principal("User", found)


@pytest.mark.parametrize(
    ("certificate", "rule", "reason"),
    [
        (der(name((ORG, "Acme"))), "CN", "it has no CN"),
        (der(name((CN, "alice"), (CN, "admin"))), "CN", "it has 2 CN"),
        (der(named("alice")), "SAN:URI", "it has no SAN:URI"),
        (der(named("a"), x509.DNSName("a"), x509.DNSName("b")), "SAN:DNS", "it has 2 SAN:DNS"),
        (der(named("ANONYMOUS")), "CN", "clients without a login"),
        (der(named("a\nb")), "CN", "printable"),
        (der(x509.Name([])), "DN", "printable"),
        (b"no certificate", "DN", "cannot be read"),
    ],
)
def test_a_rule_never_guesses(certificate: bytes, rule: str, reason: str) -> None:
    with pytest.raises(CertificateRefused, match=reason):
        principal_of(certificate, rule)
