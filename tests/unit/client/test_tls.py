"""TLS of clients: what properties and the environment say, and what is told of a handshake that fails."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.certificates import Certificates, certificates

from tailrace.client.address import connect
from tailrace.client.error import CannotConnect
from tailrace.client.ssl_properties import read_tls
from tailrace.client.tls import ClientTls, beside, from_environment, tls_of
from tailrace.model import ConfigError
from tailrace.model.address import Address
from tailrace.net.tls import ServerTls, TlsConfig
from tailrace.net.transport import listen
from tailrace.server.authority import make_ca, make_server, write_pair

SSL = {"security.protocol": "SSL"}


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return certificates(tmp_path)


# ---- what is asked for


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, None),
        ({"security.protocol": "sasl_plaintext"}, None),
        ({"security.protocol": "PLAINTEXT", "ssl.endpoint.identification.algorithm": ""}, None),
        (SSL, ClientTls()),
        ({"security.protocol": "SASL_SSL", "ssl.ca.location": "ca"}, ClientTls(ca="ca")),
        ({**SSL, "ssl.truststore.location": "ca", "ssl.truststore.type": "PEM"}, ClientTls(ca="ca")),
        ({**SSL, "ssl.truststore.certificates": "PEM"}, ClientTls(ca_text="PEM")),
        ({**SSL, "ssl.keystore.location": "me.pem"}, ClientTls(cert="me.pem")),
        (
            {**SSL, "ssl.certificate.location": "me.crt", "ssl.key.location": "me.key"},
            ClientTls(cert="me.crt", key="me.key"),
        ),
        ({**SSL, "ssl.endpoint.identification.algorithm": ""}, ClientTls(check_hostname=False)),
    ],
)
def test_properties_are_those_of_java_and_librdkafka(given: dict[str, str], found: ClientTls | None) -> None:
    assert read_tls(given) == found


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"security.protocol": "TLS"}, "is not one of"),
        ({"ssl.ca.location": "ca"}, "needs security.protocol=SSL"),
        ({**SSL, "ssl.ca.location": "a", "ssl.truststore.location": "b"}, "say the same"),
        ({**SSL, "ssl.key.location": "k"}, "needs ssl.certificate.location"),
        ({**SSL, "ssl.truststore.location": "a.jks"}, "only PEM is read.*openssl pkcs12"),
        ({**SSL, "ssl.keystore.type": "PKCS12"}, "only PEM is read"),
        ({**SSL, "ssl.endpoint.identification.algorithm": "htps"}, "is not one of https"),
        ({**SSL, "enable.ssl.certificate.verification": "no"}, "is not one of true, false"),
    ],
)
def test_properties_that_will_not_do_are_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_tls(given)


def test_the_environment_names_files() -> None:
    assert from_environment({}) is None
    assert from_environment({"TAILRACE_TLS_CA": "ca"}) == ClientTls(ca="ca")
    assert from_environment({"TAILRACE_TLS_CA": "system"}) == ClientTls()
    assert from_environment({"TAILRACE_TLS_CERT": "c", "TAILRACE_TLS_KEY": "k"}) == ClientTls(
        cert="c", key="k"
    )
    assert tls_of("ca") == ClientTls(ca="ca")
    with pytest.raises(ConfigError, match="TAILRACE_TLS_CERT"):
        from_environment({"TAILRACE_TLS_KEY": "k"})


def test_a_ca_comes_before_the_certificate_of_the_broker_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_TLS_CA", raising=False)
    pinned = beside("server.crt")
    assert pinned == ClientTls(ca="server.crt", check_hostname=False, pinned=True)
    monkeypatch.setenv("TAILRACE_TLS_CA", "ca")
    assert beside("server.crt") == ClientTls(ca="ca")


def test_switching_verification_off_warns_each_time(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        from_environment({"TAILRACE_TLS_INSECURE": "1"})
    read_tls({**SSL, "enable.ssl.certificate.verification": "false"})
    assert caplog.text.count("is not verified") == 3
    assert all(each.levelno == logging.WARNING for each in caplog.records)


# ---- what is trusted


def _meet(tls: ClientTls, config: TlsConfig, *, host: str = "127.0.0.1") -> None:
    """Connect to a listener once; raises what the client is told."""

    async def main() -> None:
        listening = await listen(Address("127.0.0.1", 0), asyncio.Protocol, ServerTls(config))
        lost = asyncio.get_running_loop().create_future()

        class Client(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                lost.set_result(None)

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                transport.close()

        try:
            await connect(Address(host, listening.address.port), Client, tls)
            await lost
        finally:
            listening.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_chain_and_host_name_are_verified(made: Certificates) -> None:
    config = made.config()
    _meet(ClientTls(ca=str(made.ca)), config)
    _meet(ClientTls(ca=str(made.ca)), config, host="localhost")
    _meet(ClientTls(ca_text=made.ca.read_text()), config)


def test_a_wrong_host_name_is_refused_unless_it_is_not_asked_for(made: Certificates) -> None:
    files = made.server("broker.example.com")
    config = TlsConfig(cert=files.cert, key=files.key)
    with pytest.raises(CannotConnect, match=r"for other names than 127.0.0.1.*--san"):
        _meet(ClientTls(ca=str(made.ca)), config)
    _meet(ClientTls(ca=str(made.ca), check_hostname=False), config)


def _other_ca(made: Certificates) -> ClientTls:
    other = made.write("other-ca", make_ca())
    return ClientTls(ca=str(other.cert))


@pytest.mark.parametrize("tls_for", [_other_ca, lambda made: ClientTls()])
def test_an_unknown_ca_is_refused(made: Certificates, tls_for: Callable[[Certificates], ClientTls]) -> None:
    with pytest.raises(CannotConnect, match=r"not of a CA that is trusted here.*--tls-ca FILE"):
        _meet(tls_for(made), made.config())


def test_a_pinned_certificate_is_trusted_alone_and_whatever_its_names(made: Certificates) -> None:
    files = made.server("broker.example.com")
    config = TlsConfig(cert=files.cert, key=files.key)
    pinned = ClientTls(ca=str(files.cert), check_hostname=False, pinned=True)
    _meet(pinned, config)
    # The CA that issued it does not make another certificate good, even if its own is in the file.
    kept = made.directory / "pin.crt"
    kept.write_text(files.cert.read_text() + made.ca.read_text())
    other = made.directory / "impostor.crt", made.directory / "impostor.key"
    write_pair(make_server(made.authority, names=["127.0.0.1"]), *other)
    with pytest.raises(CannotConnect, match="not of a CA that is trusted"):
        _meet(
            ClientTls(ca=str(kept), check_hostname=False, pinned=True),
            TlsConfig(cert=other[0], key=other[1]),
        )


def test_a_ca_file_that_will_not_do_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.crt").write_text("")
    with pytest.raises(ConfigError, match=r"empty.crt has no certificates in PEM"):
        ClientTls(ca=str(tmp_path / "empty.crt")).context()
    with pytest.raises(ConfigError, match="cannot read the CA file"):
        ClientTls(ca=str(tmp_path / "none.crt")).context()


def test_no_client_speaks_less_than_tls_1_2() -> None:
    assert ClientTls().context().minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x10\x00\x00\x00\x01", b""],
    ids=["http", "native", "end"],
)
def test_a_port_without_tls_is_named(answer: bytes) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            with pytest.raises(CannotConnect, match=r"does not speak TLS|Is this a port with TLS"):
                await connect(Address("127.0.0.1", port), asyncio.Protocol, ClientTls())
        finally:
            server.close()

    asyncio.run(asyncio.wait_for(main(), 60))
