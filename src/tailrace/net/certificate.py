"""What a certificate says: when it ends, and the principal of its owner. Pure.

    rule        principal of CN=alice,OU=ops,O=Acme,C=DE
    DN          User:CN=alice,OU=ops,O=Acme,C=DE    the whole subject as Kafka writes it (RFC 2253)
    CN, UID     User:alice                          this attribute of the subject
    SAN:DNS     User:alice.acme.example             the name of this kind in subjectAltName; also SAN:EMAIL,
    SAN:URI     User:spiffe://acme.example/alice    SAN:URI

A rule never guesses: a certificate without the value, or with two of them, is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.model.session import ANONYMOUS, Principal

if TYPE_CHECKING:
    from cryptography import x509

PRINCIPAL_RULES: Final = ("DN", "CN", "UID", "SAN:DNS", "SAN:EMAIL", "SAN:URI")
_NAME_CHARACTERS_MAX: Final = 1024
_UTF8_STRING, _PRINTABLE_STRING, _IA5_STRING = 0x0C, 0x13, 0x16
_SPECIAL: Final = frozenset(',+"\\<>;')


class CertificateRefused(Exception):
    """No principal can be read from a certificate; the message says why and repeats nothing secret."""


def principal_of(der: bytes, rule: str) -> Principal:
    """The principal of a certificate's owner; CertificateRefused if the rule finds none or several."""
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(der)
        name = distinguished_name(certificate.subject) if rule == "DN" else _value(certificate, rule)
    except ValueError as error:
        raise CertificateRefused(f"the certificate cannot be read: {error}") from error
    if not name or len(name) > _NAME_CHARACTERS_MAX or not name.isprintable():
        raise CertificateRefused(
            f"its {rule} is no name of a principal: 1 to {_NAME_CHARACTERS_MAX} printable characters"
        )
    principal = Principal("User", name)
    if principal == ANONYMOUS:
        raise CertificateRefused(f"its {rule} is {name}, which is the name of clients without a login")
    return principal


def expiry_of(pem: bytes) -> float:
    """When the first certificate of a PEM file ends, in seconds since 1970; ValueError if there is none."""
    from cryptography import x509

    return x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc.timestamp()


def distinguished_name(name: x509.Name) -> str:
    """A subject as Java's X500Principal.getName() writes it, by which Kafka's ACLs know it (RFC 2253)."""
    return ",".join("+".join(map(_attribute, each)) for each in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    known = _short_name(attribute)
    if known:
        return f"{known}={_escaped(str(attribute.value))}"
    # An attribute without a name in RFC 2253, such as emailAddress, is its number and its value in DER.
    return f"{attribute.oid.dotted_string}=#{_der_of(attribute).hex()}"


def _short_name(attribute: x509.NameAttribute[str | bytes]) -> str:
    from cryptography.x509.oid import NameOID

    names = {
        NameOID.COMMON_NAME: "CN",
        NameOID.LOCALITY_NAME: "L",
        NameOID.STATE_OR_PROVINCE_NAME: "ST",
        NameOID.ORGANIZATION_NAME: "O",
        NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
        NameOID.COUNTRY_NAME: "C",
        NameOID.STREET_ADDRESS: "STREET",
        NameOID.DOMAIN_COMPONENT: "DC",
        NameOID.USER_ID: "UID",
    }
    return names.get(attribute.oid, "")


def _escaped(value: str) -> str:
    """A value of RFC 2253 section 2.4."""
    text = "".join(f"\\{each}" if each in _SPECIAL else each for each in value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if len(value) > 1 and value.endswith(" ") else text


def _der_of(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    value = attribute.value
    if isinstance(value, bytes):
        raise CertificateRefused("its subject has a value that is no text")
    tag = int(attribute._type.value)  # cryptography keeps it, and has no public name for it
    data = value.encode("utf-8" if tag == _UTF8_STRING else "latin-1", "strict")
    if tag not in (_UTF8_STRING, _PRINTABLE_STRING, _IA5_STRING) or len(data) > 0x7F:
        raise CertificateRefused("its subject has an attribute that no short name stands for")
    return bytes([tag, len(data)]) + data


def _value(certificate: x509.Certificate, rule: str) -> str:
    found = _alternative_names(certificate, rule) if rule.startswith("SAN:") else _subject(certificate, rule)
    if len(found) != 1:
        raise CertificateRefused(f"it has {len(found) or 'no'} {rule}, and the rule needs exactly one")
    return found[0]


def _subject(certificate: x509.Certificate, rule: str) -> list[str]:
    from cryptography.x509.oid import NameOID

    oid = NameOID.COMMON_NAME if rule == "CN" else NameOID.USER_ID
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(oid)]


def _alternative_names(certificate: x509.Certificate, rule: str) -> list[str]:
    from cryptography import x509

    kinds: dict[str, type[x509.DNSName | x509.RFC822Name | x509.UniformResourceIdentifier]] = {
        "SAN:DNS": x509.DNSName,
        "SAN:EMAIL": x509.RFC822Name,
        "SAN:URI": x509.UniformResourceIdentifier,
    }
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return list(names.get_values_for_type(kinds[rule]))
