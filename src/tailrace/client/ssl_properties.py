"""Kafka's properties of TLS: `security.protocol` and `ssl.*`, as clients and Spark are given them.

    security.protocol=SASL_SSL          or SSL
    ssl.ca.location=ca.crt              as librdkafka has them, or
    ssl.truststore.type=PEM             as Java has them; ssl.truststore.certificates is the text itself
    ssl.truststore.location=ca.crt

    ssl.certificate.location=me.crt     ssl.key.location=me.key       ssl.key.password=...
    ssl.keystore.type=PEM               ssl.keystore.location=me.pem: the certificate and its key in one file
    ssl.endpoint.identification.algorithm=https                      "" or none: the host name is not verified

Files are PEM: JKS and PKCS12 are stores of Java, and the error for one says how to turn it into PEM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.client.address import PROTOCOLS
from tailrace.client.sasl_properties import PROTOCOL
from tailrace.client.tls import ClientTls
from tailrace.model import ConfigError
from tailrace.security import Secret

SSL_PROPERTIES: Final = frozenset(
    {
        "enable.ssl.certificate.verification",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
_VERIFIES: Final = {"true": True, "false": False}
_IDENTIFIES: Final = {"https": True, "": False, "none": False}


def read_tls(given: Mapping[str, str | None]) -> ClientTls | None:
    """How a broker is verified; None without TLS. ConfigError names the property and never its value."""
    protocol = (given.get(PROTOCOL) or "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"{PROTOCOL}: {protocol!r} is not one of {', '.join(PROTOCOLS)}")
    if not protocol.endswith("SSL"):
        if named := sorted(name for name in SSL_PROPERTIES if given.get(name)):
            raise ConfigError(f"{named[0]} needs {PROTOCOL}=SSL or SASL_SSL")
        return None
    _check_types(given)
    verify = _choice(given, "enable.ssl.certificate.verification", "true", _VERIFIES)
    identify = _choice(given, "ssl.endpoint.identification.algorithm", "https", _IDENTIFIES)
    certificate, key = _own(given)
    password = given.get("ssl.key.password")
    return ClientTls(
        ca=_one(given, "ssl.ca.location", "ssl.truststore.location"),
        ca_text=given.get("ssl.truststore.certificates"),
        cert=certificate,
        key=key,
        key_password=Secret(password) if password else None,
        verify=verify,
        check_hostname=verify and identify,
    )


def _own(given: Mapping[str, str | None]) -> tuple[str | None, str | None]:
    """The certificate to present, and the file of its key."""
    certificate = _one(given, "ssl.certificate.location", "ssl.keystore.location")
    key = given.get("ssl.key.location")
    if key and not certificate:
        raise ConfigError("ssl.key.location needs ssl.certificate.location")
    return certificate, key or None


def _one(given: Mapping[str, str | None], first: str, second: str) -> str | None:
    if given.get(first) and given.get(second):
        raise ConfigError(f"{first} and {second} say the same. Leave one of them out")
    return given.get(first) or given.get(second) or None


def _choice(given: Mapping[str, str | None], name: str, default: str, choices: Mapping[str, bool]) -> bool:
    value = given.get(name)
    word = (default if value is None else value).lower()
    if word not in choices:
        listed = ", ".join(each or '""' for each in choices)
        raise ConfigError(f"{name}: {value!r} is not one of {listed}")
    return choices[word]


def _check_types(given: Mapping[str, str | None]) -> None:
    for store in ("keystore", "truststore"):
        place = given.get(f"ssl.{store}.location") or ""
        kind = (given.get(f"ssl.{store}.type") or "PEM").upper()
        if kind != "PEM" or place.lower().endswith((".jks", ".p12", ".pfx")):
            raise ConfigError(
                f"ssl.{store}.type: only PEM is read, and {kind if kind != 'PEM' else place} is not it. "
                "Convert it: "
                "openssl pkcs12 -in STORE.p12 -out STORE.pem -nodes"
            )
