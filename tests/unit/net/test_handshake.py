"""Handshakes over real sockets, on both loops: bounds, downgrades, certificates, clients without TLS."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from tests.certificates import Certificates, Files, certificates, client_context, issue, named
from tests.unhurried import UnhurriedLoop

from tailrace.model.address import Address
from tailrace.model.session import Principal
from tailrace.net.certificate import CertificateRefused
from tailrace.net.handshake import TlsServer
from tailrace.net.logins import PendingLogins
from tailrace.net.tls import ServerTls
from tailrace.net.transport import Listening, listen
from tailrace.server.authority import make_ca

DEADLINE_S = 60.0
Scenario = Callable[["Rig"], Awaitable[None]]


class Echo(asyncio.Protocol):
    """A connection: says who its client is, and what the client says."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast(asyncio.Transport, transport)
        try:
            principal = self._rig.tls.identify(transport)
        except CertificateRefused as error:
            self._rig.refused.append(str(error))
            transport.abort()
            return
        self._rig.made += 1
        transport.write(f"{principal}\n".encode())

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Rig:
    """One listening place with TLS."""

    def __init__(self, tls: ServerTls) -> None:
        self.tls = tls
        self.made = 0
        self.refused: list[str] = []
        self.listening: Listening | None = None

    @property
    def port(self) -> int:
        assert self.listening is not None
        return self.listening.address.port

    async def greet(self, context: ssl.SSLContext, *, host: str = "localhost") -> str:
        """What a client is told first; what its TLS raises."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname=host
        )
        try:
            return (await reader.readline()).decode().strip()
        finally:
            writer.transport.abort()

    async def raw(self, data: bytes) -> bytes:
        """Everything that a client without TLS is answered."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()

    async def wait(self, until: Callable[[], bool]) -> None:
        while not until():  # noqa: ASYNC110 - what another task or thread of OpenSSL does has no event
            await asyncio.sleep(0.001)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return pytest.importorskip("uvloop").new_event_loop if request.param else UnhurriedLoop


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return certificates(tmp_path)


@pytest.fixture
def play(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    def run(scenario: Scenario, tls: ServerTls, *, handshake_s: float = 5.0) -> None:
        async def main() -> None:
            rig = Rig(tls)
            defaults = dict(TlsServer.__init__.__kwdefaults__ or {}, handshake_s=handshake_s)
            monkeypatch.setattr(TlsServer.__init__, "__kwdefaults__", defaults)
            rig.listening = await listen(Address("127.0.0.1", 0), lambda: Echo(rig), tls)
            try:
                await scenario(rig)
            finally:
                rig.listening.close()
            await rig.wait(lambda: not len(tls.pending))

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(asyncio.wait_for(main(), DEADLINE_S))

    return run


# ---- who comes in


def test_a_client_that_trusts_the_ca_comes_in(made: Certificates, play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        assert await rig.greet(client_context(made.ca)) == "None"
        assert rig.tls.counts.succeeded == 1

    play(scenario, ServerTls(made.config()))


def test_a_certificate_is_the_principal(made: Certificates, play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        assert await rig.greet(client_context(made.ca, made.client("alice"))) == "User:CN=alice"

    play(scenario, ServerTls(made.config(client_ca=made.ca)))


def test_a_disabled_principal_does_not_come_in(made: Certificates, play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises((OSError, AssertionError)):
            assert await rig.greet(client_context(made.ca, made.client("alice")))
        await rig.wait(lambda: bool(rig.refused))
        assert rig.refused == ["User:alice is disabled"] and rig.made == 0

    play(
        scenario,
        ServerTls(
            made.config(client_ca=made.ca, principal="CN"),
            admits=lambda each: each != Principal("User", "alice"),
        ),
    )


def _none(made: Certificates) -> Files | None:
    return None


def _expired(made: Certificates) -> Files:
    return made.write("old", issue(made.authority, named("old"), ends=timedelta(days=-1)))


def _of_another_ca(made: Certificates) -> Files:
    return made.write("mallory", issue(make_ca(), named("alice")))


def _revoked(made: Certificates) -> Files:
    files = made.client("bob")
    made.revocations(files)
    return files


def _of_a_server(made: Certificates) -> Files:
    return made.server()


@pytest.mark.parametrize(
    ("client_of", "reason"),
    [
        (_none, "it presented no certificate, and the listener has client_ca"),
        (_expired, "certificate has expired"),
        (_of_another_ca, "its certificate is refused: (unable|certificate signature|self)"),
        (_revoked, "its certificate is refused: certificate revoked"),
        (_of_a_server, "its certificate is refused: (unsupported|unsuitable) certificate purpose"),
    ],
)
def test_a_certificate_that_will_not_do_is_refused(
    made: Certificates,
    play: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    client_of: Callable[[Certificates], Files | None],
    reason: str,
) -> None:
    made.revocations()
    files = client_of(made)

    async def scenario(rig: Rig) -> None:
        with pytest.raises(ssl.SSLError, match=r"(?i)alert.*(certificate|unknown.ca)"):
            await rig.greet(client_context(made.ca, files))
        await rig.wait(lambda: rig.tls.counts.failed["certificate"] == 1)
        assert rig.made == 0

    crl = made.directory / "revoked.crl"
    play(scenario, ServerTls(made.config(client_ca=made.ca, crl=crl), listener="kafka"))
    (line,) = [each.message for each in caplog.records if "TLS refused" in each.message]
    assert "on listener kafka" in line
    assert re.search(reason, line), line


def test_a_certificate_that_is_revoked_later_is_refused_then(
    made: Certificates, play: Callable[..., None]
) -> None:
    bob, crl = made.client("bob"), made.revocations()

    async def scenario(rig: Rig) -> None:
        context = client_context(made.ca, bob)
        assert await rig.greet(context) == "User:CN=bob"
        made.revocations(bob)
        assert rig.tls.reload_if_changed()
        with pytest.raises((OSError, AssertionError)):  # also with the session of before
            assert await rig.greet(context)
        assert rig.made == 1

    play(scenario, ServerTls(made.config(client_ca=made.ca, crl=crl)))


def test_a_new_certificate_is_presented_without_a_restart(
    made: Certificates, play: Callable[..., None]
) -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            await rig.greet(client_context(made.ca), host="broker.example.com")
        made.server("broker.example.com")
        assert rig.tls.reload_if_changed()
        assert await rig.greet(client_context(made.ca), host="broker.example.com") == "None"

    play(scenario, ServerTls(made.config()))


# ---- downgrades


def test_an_older_tls_than_the_minimum_is_refused(made: Certificates, play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        context = client_context(made.ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError, match=r"(?i)protocol.version"):
            await rig.greet(context)
        await rig.wait(lambda: rig.tls.counts.failed["version"] == 1)

    play(scenario, ServerTls(made.config()))


@pytest.mark.parametrize(
    "ciphers",
    ["ECDHE-ECDSA-AES128-SHA256:@SECLEVEL=0", "AES128-GCM-SHA256:@SECLEVEL=0", "ECDHE-ECDSA-AES256-SHA"],
)
def test_a_weak_cipher_is_refused(made: Certificates, play: Callable[..., None], ciphers: str) -> None:
    async def scenario(rig: Rig) -> None:
        context = client_context(made.ca)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(ciphers)
        with pytest.raises(ssl.SSLError, match=r"(?i)handshake.failure"):
            await rig.greet(context)
        await rig.wait(lambda: rig.tls.counts.failed["cipher"] == 1)
        good = client_context(made.ca)
        good.maximum_version = ssl.TLSVersion.TLSv1_2
        assert await rig.greet(good) == "None"

    play(scenario, ServerTls(made.config(min_version="1.2")))


# ---- bounds


@pytest.mark.parametrize(
    "sent", [b"", b"\x16", b"\x16\x03\x01\x01\x00\x01\x00"], ids=["silent", "a byte", "half"]
)
def test_a_handshake_that_does_not_come_is_ended(
    made: Certificates, play: Callable[..., None], sent: bytes
) -> None:
    async def scenario(rig: Rig) -> None:
        assert await rig.raw(sent) == b""
        assert rig.tls.counts.failed["slow"] == 1

    play(scenario, ServerTls(made.config()), handshake_s=0.05)


def test_handshakes_under_way_are_bounded_by_address_and_in_all(
    made: Certificates, play: Callable[..., None]
) -> None:
    async def scenario(rig: Rig) -> None:
        half_open = [await asyncio.open_connection("127.0.0.1", rig.port) for _ in range(3)]
        await rig.wait(lambda: len(rig.tls.pending) == 3)
        with pytest.raises(ConnectionError):
            await rig.greet(client_context(made.ca))
        assert rig.tls.counts.failed["busy"] == 1
        half_open[0][1].transport.abort()
        await rig.wait(lambda: len(rig.tls.pending) == 2)
        assert await rig.greet(client_context(made.ca)) == "None"
        for _, writer in half_open[1:]:
            writer.transport.abort()

    play(scenario, ServerTls(made.config(), pending=PendingLogins(per_address_max=3)))


def test_an_oversized_handshake_is_refused_before_it_has_come(
    made: Certificates, play: Callable[..., None]
) -> None:
    """A ClientHello that announces 16 MB, in records of 16 KiB, is refused by its announcement."""
    record = b"\x16\x03\x01\x40\x00"
    hello = b"\x01\xff\xff\xff" + bytes(0x4000 - 4)

    async def scenario(rig: Rig) -> None:
        await rig.raw(record + hello + (record + bytes(0x4000)) * 8)
        await rig.wait(lambda: rig.tls.counts.failed.total() == 1)
        assert not rig.tls.counts.failed["slow"] and rig.made == 0

    play(scenario, ServerTls(made.config()))


def test_a_client_that_leaves_in_its_handshake_costs_nothing(
    made: Certificates, play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        for sent in (b"", b"\x16\x03\x01\x01\x00\x01\x00"):
            with socket.create_connection(("127.0.0.1", rig.port)) as client:
                client.sendall(sent)
        await rig.wait(lambda: not len(rig.tls.pending))
        assert await rig.greet(client_context(made.ca)) == "None"

    with caplog.at_level(logging.ERROR):
        play(scenario, ServerTls(made.config()))
    assert not caplog.records


def test_closing_ends_handshakes_under_way(made: Certificates, play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        await rig.wait(lambda: len(rig.tls.pending) == 1)
        assert rig.listening is not None
        rig.listening.close()
        assert await reader.read() == b""
        writer.transport.abort()

    play(scenario, ServerTls(made.config()))


def test_closing_sends_what_was_written_though_the_client_reads_slowly(
    made: Certificates, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    written = bytes(range(256)) * 4096

    class Speaker(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sending = cast(asyncio.Transport, transport)
            for begin in range(0, len(written), 64 * 1024):
                sending.write(written[begin : begin + 64 * 1024])
            sending.close()

    def read(port: int) -> bytes:
        found = bytearray()
        with (
            socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as plain,
            client_context(made.ca).wrap_socket(plain, server_hostname="localhost") as client,
        ):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            while data := client.recv(5_000):
                found += data
        return bytes(found)

    async def main() -> bool:
        listening = await listen(Address("127.0.0.1", 0), Speaker, ServerTls(made.config()))
        found = await asyncio.to_thread(read, listening.address.port)
        listening.close()
        return found == written

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(asyncio.wait_for(main(), DEADLINE_S))


# ---- clients without TLS

HTTP = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
KAFKA = b"\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("protocol", "sent", "named_as", "answer"),
    [
        ("http", HTTP, "HTTP", b"Use https://127.0.0.1:"),
        ("kafka", HTTP, "HTTP", b"for the kafka protocol over TLS"),
        ("kafka", KAFKA, "Kafka's protocol", b""),
        ("native", b"\x00\x00\x00\x14\x00\x00\x00\x01", "native protocol", b""),
        ("kafka", b"\xff" * 16, "unknown protocol", b""),
    ],
)
def test_a_client_without_tls_is_named_in_the_log(
    made: Certificates,
    play: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    protocol: str,
    sent: bytes,
    named_as: str,
    answer: bytes,
) -> None:
    async def scenario(rig: Rig) -> None:
        answered = await rig.raw(sent)
        assert answer in answered and answered.startswith(b"HTTP/1.1 400" if answer else b"")
        await rig.raw(sent)
        assert rig.tls.counts.failed["plain"] == 2

    play(scenario, ServerTls(made.config(), listener="one", protocol=protocol))
    (line,) = [each.message for each in caplog.records]  # one a minute and address
    assert named_as in line and "without TLS to a TLS listener" in line and "on listener one" in line
