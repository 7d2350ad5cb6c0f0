"""TLS of a client: whom it trusts, the certificate that it presents, and what a failed handshake is called.

    ClientTls          the CA file, or the CAs of this machine; certificate and key for mTLS
    from_environment   TAILRACE_TLS_CA, TAILRACE_TLS_CERT, TAILRACE_TLS_KEY, TAILRACE_TLS_PIN,
                       TAILRACE_TLS_INSECURE

Chain and host name are verified. Where that is switched off, each client that is made so logs a warning.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tailrace.model import ConfigError
from tailrace.model.address import Address
from tailrace.security import Secret

logger = logging.getLogger(__name__)

CA_VARIABLE: Final = "TAILRACE_TLS_CA"
CERT_VARIABLE: Final = "TAILRACE_TLS_CERT"
KEY_VARIABLE: Final = "TAILRACE_TLS_KEY"
PIN_VARIABLE: Final = "TAILRACE_TLS_PIN"
INSECURE_VARIABLE: Final = "TAILRACE_TLS_INSECURE"
SYSTEM: Final = "system"
"""As a CA: those of this machine."""
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_PEM_CHARACTERS_MAX: Final = 1 << 20
_YES: Final = frozenset({"1", "true", "yes", "on"})
_CIPHERS_1_2: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """How a client verifies a broker, and shows who it is. Files and texts are PEM."""

    ca: str | None = None  # a file of certificates; None: the CAs of this machine
    ca_text: str | None = None  # the certificates themselves
    cert: str | None = None  # its own, with those between it and its CA
    key: str | None = None  # None: in the file of the certificate
    key_password: Secret | None = field(default=None, hash=False, repr=False)
    check_hostname: bool = True
    verify: bool = True
    pinned: bool = False  # `ca` is the broker's own certificate: that one, and no other, is trusted

    def __post_init__(self) -> None:
        if not self.verify:
            logger.warning(
                "the broker's certificate is not verified: another machine on the way can read and change "
                "everything. Give the CA instead: --tls-ca FILE, %s, or tls=FILE",
                CA_VARIABLE,
            )

    def context(self) -> ssl.SSLContext:
        """For one connection, from the files as they are now; ConfigError names one that will not do."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS_1_2)
        if self.verify:
            context.check_hostname = self.check_hostname
            _load_ca(context, self)
        else:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert is not None:
            _load_own(context, self, self.cert)
        return context


def tls_of(tls: ClientTls | str | os.PathLike[str] | bool | None) -> ClientTls | None:
    """What a client was given as `tls=`: the file of a CA, True for those of this machine, or a ClientTls."""
    if tls is None or tls is False:
        return None
    if isinstance(tls, ClientTls):
        return tls
    return ClientTls() if tls is True else ClientTls(ca=os.fspath(tls))


def from_environment(environment: Mapping[str, str] | None = None) -> ClientTls | None:
    """How the environment says that brokers are verified; None if it names nothing of TLS."""
    given = os.environ if environment is None else environment
    ca, cert, key = (given.get(name) or None for name in (CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE))
    pin = given.get(PIN_VARIABLE) or None
    insecure = given.get(INSECURE_VARIABLE, "").lower() in _YES
    if key and not cert:
        raise ConfigError(f"{KEY_VARIABLE} is set and {CERT_VARIABLE} is not: the key needs its certificate")
    if not (ca or cert or insecure or pin):
        return None
    is_pinned = pin is not None and ca is None
    return ClientTls(
        ca=pin if is_pinned else None if ca == SYSTEM else ca,
        cert=cert,
        key=key,
        verify=not insecure,
        check_hostname=not insecure and not is_pinned,
        pinned=is_pinned,
    )


def beside(cert: str | os.PathLike[str] | None) -> ClientTls | None:
    """For a client on the broker's machine, which may read the broker's certificate and trust just that.

    What the environment says of a CA or a pin comes first. None without a certificate.
    """
    if cert is None:
        return from_environment()
    return from_environment({PIN_VARIABLE: os.fspath(cert), **os.environ})


def _load_ca(context: ssl.SSLContext, tls: ClientTls) -> None:
    if tls.pinned:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        if tls.pinned and tls.ca is not None:
            context.load_verify_locations(cadata=_first_certificate(tls.ca))
        elif tls.ca is not None or tls.ca_text is not None:
            context.load_verify_locations(cafile=tls.ca, cadata=tls.ca_text)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    except ssl.SSLError as error:
        raise ConfigError(f"{tls.ca or 'the CA'} has no certificates in PEM ({error.reason})") from error
    except OSError as error:
        raise ConfigError(f"cannot read the CA file {tls.ca}: {error.strerror}") from error


def _first_certificate(path: str) -> str:
    """The broker's own, without the CAs that follow it in the file."""
    with open(path, encoding="ascii", errors="replace") as file:
        text = file.read(_PEM_CHARACTERS_MAX)
    head, end, _ = text.partition(_END)
    if not end:
        raise ConfigError(f"{path} has no certificate in PEM")
    return head[head.rfind(_BEGIN) :] + end + "\n"


def _load_own(context: ssl.SSLContext, tls: ClientTls, cert: str) -> None:
    def password() -> str:
        if tls.key_password is None:
            raise ConfigError(f"the key {tls.key or cert} is encrypted. Give its password: ssl.key.password")
        return tls.key_password.reveal()

    try:
        context.load_cert_chain(cert, tls.key, password=password)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{cert} and {tls.key or cert} are not a certificate and its private key in PEM "
            f"({error.reason or 'is the password of the key wrong?'})"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read {cert} or {tls.key or cert}: {error.strerror}") from error


# ---- failures


def handshake_failure(address: Address, error: ssl.SSLError) -> str:
    """To a person: why a handshake with a broker failed, and the way out."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"cannot trust {address}: {_distrust(address, error)}"
    reason = error.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return (
            f"{address} does not speak TLS. Leave the CA out (--tls-ca, TAILRACE_TLS_CA, tls=), or connect "
            "to a port with TLS"
        )
    return f"{address} refused the TLS handshake: {refusal(error) or reason.lower().replace('_', ' ')}"


def refusal(error: BaseException | None) -> str:
    """What a broker said when it ended a connection of TLS; "" if it said nothing of TLS."""
    if not isinstance(error, ssl.SSLError):
        return ""
    reason = error.reason or ""
    if "CERTIFICATE_REQUIRED" in reason:
        return "the listener demands a certificate of the client. Give one: --tls-cert and --tls-key"
    if "UNKNOWN_CA" in reason:
        return "the broker does not know the CA of the client's certificate"
    if "CERTIFICATE" in reason:
        kind = reason.partition("ALERT_")[2].lower().replace("_", " ")
        return f"the broker refuses the client's certificate ({kind})"
    if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
        return "client and broker have no version of TLS in common"
    if "HANDSHAKE_FAILURE" in reason:
        return "client and broker have no cipher suite in common"
    return ""


def _distrust(address: Address, error: ssl.SSLCertVerificationError) -> str:
    said = error.verify_message
    if "mismatch" in said.lower():
        return (
            f"its certificate is for other names than {address.host} ({said}). Connect by a name that is in "
            "it, or make one that has the name: tailrace cert init DIR --san NAME"
        )
    if "expired" in said:
        return "its certificate has expired. Renew it; the broker takes the new file without a restart"
    return f"its certificate is not of a CA that is trusted here ({said}). Give the CA: --tls-ca FILE"
