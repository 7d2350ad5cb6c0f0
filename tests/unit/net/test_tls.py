"""TLS of a listener without a socket: files that will not do, reload, and which clients are admitted."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from tests.certificates import Certificates, certificates, issue, named

from tailrace.model import ConfigError
from tailrace.net.tls import ServerTls, TlsConfig, make_context


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return certificates(tmp_path)


def test_only_tls_1_3_by_default_and_1_2_by_choice(made: Certificates) -> None:
    config = made.config()
    assert make_context(config).minimum_version == ssl.TLSVersion.TLSv1_3
    assert make_context(replace(config, min_version="1.2")).minimum_version == ssl.TLSVersion.TLSv1_2


def test_every_cipher_is_aead_with_an_ephemeral_exchange(made: Certificates) -> None:
    ciphers = make_context(replace(made.config(), min_version="1.2")).get_ciphers()
    assert ciphers and all(each["aead"] for each in ciphers)
    assert all(each["kea"] in ("kx-ecdhe", "kx-any") for each in ciphers)  # any: of TLS 1.3, always ephemeral


def _encrypted_key(made: Certificates) -> TlsConfig:
    config = made.config()
    key = serialization.load_pem_private_key(config.key.read_bytes(), None)
    config.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    return config


def _text_for_the_certificate(made: Certificates) -> TlsConfig:
    config = made.config()
    config.cert.write_text("not PEM")
    return config


def _another_key(made: Certificates) -> TlsConfig:
    return replace(made.config(), key=made.client().key)


@pytest.mark.parametrize(
    ("config_of", "problem"),
    [
        (
            lambda made: replace(made.config(), cert=made.directory / "none"),
            "cannot read tls cert .*cert init",
        ),
        (lambda made: replace(made.config(), key=made.directory), "tls key|cannot read"),
        (lambda made: replace(made.config(), client_ca=made.config().key), "is not certificates in PEM"),
        (
            lambda made: replace(made.config(), client_ca=made.ca, crl=made.config().key),
            "is not a revocation list",
        ),
        (_encrypted_key, "is encrypted.*openssl pkey"),
        (_text_for_the_certificate, "are not a certificate and its private key"),
        (_another_key, "do not belong together"),
    ],
)
def test_a_file_that_will_not_do_is_named(
    made: Certificates, config_of: Callable[[Certificates], TlsConfig], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        ServerTls(config_of(made))


def test_a_new_certificate_is_taken_and_its_end_is_known(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ServerTls(made.config(), listener="kafka")
    before, ends = tls.context, tls.expires_at
    assert not tls.reload_if_changed() and tls.context is before
    with caplog.at_level(logging.INFO):
        made.write("server", issue(made.authority, named("localhost")))
        assert tls.reload_if_changed()
    assert tls.context is not before and tls.expires_at < ends
    assert "certificate reloaded: listener kafka" in caplog.text


def test_a_reload_that_fails_keeps_the_old_certificate_and_says_so_once(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ServerTls(made.config(), listener="kafka")
    before = tls.context
    tls.config.cert.write_text("half a file")
    assert not tls.reload_if_changed() and not tls.reload_if_changed()
    assert tls.context is before
    assert caplog.text.count("certificate kept: listener kafka goes on with the old one") == 1
    os.unlink(tls.config.cert)
    assert not tls.reload_if_changed() and tls.context is before
    made.write("server", issue(made.authority, named("localhost")))
    assert tls.reload_if_changed()


def test_a_key_that_others_may_read_is_warned_of(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    config = made.config()
    ServerTls(config)
    assert not caplog.text
    config.key.chmod(0o644)
    ServerTls(config)
    assert "chmod 600" in caplog.text
