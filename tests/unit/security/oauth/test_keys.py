"""The keys of an issuer: when they are fetched, how long they are believed, and what a bad server can do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.issuer import AUDIENCE, ISSUER, TokenIssuer, ec_key, rsa_key

from tailrace.security.oauth import keys as module
from tailrace.security.oauth.config import OauthConfig, check_url
from tailrace.security.oauth.fetch import CannotFetch, fetch
from tailrace.security.oauth.key_set import DOCUMENT_BYTES_MAX, KEYS_MAX, KeySet, read_key_set
from tailrace.security.oauth.keys import AGAIN_S, FRESH_S, KEPT_S, IssuerKeys, load_document

CONFIG = OauthConfig(issuer=ISSUER, audience=AUDIENCE, jwks="https://issuer.example/keys")


class Source:
    """Gives the keys of an issuer, or fails, and counts."""

    def __init__(self) -> None:
        self.issuer = TokenIssuer()
        self.now = 0.0
        self.loads = 0
        self.fails = False
        self.keys = IssuerKeys(CONFIG, monotonic=lambda: self.now, load=self.load)

    async def load(self) -> bytes:
        self.loads += 1
        await asyncio.sleep(0)
        if self.fails:
            raise CannotFetch("issuer.example did not answer")
        return self.issuer.document()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def play(scenario: Callable[[Source], Awaitable[None]]) -> None:
    async def main() -> None:
        source = Source()
        await scenario(source)
        await source.keys.close()

    asyncio.run(main())


def test_keys_are_fetched_when_they_are_needed_and_once_for_all_who_wait() -> None:
    async def scenario(source: Source) -> None:
        assert source.loads == 0
        found = await asyncio.gather(*(source.keys.for_kid("rsa-0") for _ in range(10)))
        assert source.loads == 1 and all(each.has("rsa-0") for each in found)

    play(scenario)


def test_a_flood_of_unknown_kids_costs_one_fetch_a_minute() -> None:
    async def scenario(source: Source) -> None:
        for number in range(100):
            assert not (await source.keys.for_kid(f"kid-{number}")).has(f"kid-{number}")
        assert source.loads == 1
        source.now = AGAIN_S
        for number in range(100):
            await source.keys.for_kid(f"kid-{number}")
        assert source.loads == 2
        assert (await source.keys.for_kid("rsa-0")).has("rsa-0")  # the others are served meanwhile

    play(scenario)


def test_a_new_key_of_the_issuer_is_found_after_a_minute() -> None:
    async def scenario(source: Source) -> None:
        await source.keys.for_kid("rsa-0")
        before = source.keys.generation
        source.issuer.keys = [rsa_key(1)]
        source.now = AGAIN_S
        assert (await source.keys.for_kid("rsa-1")).has("rsa-1")
        assert source.keys.generation != before
        assert not (await source.keys.for_kid("rsa-0")).has("rsa-0")  # which was withdrawn

    play(scenario)


def test_keys_are_kept_while_the_issuer_is_away_but_not_for_ever() -> None:
    async def scenario(source: Source) -> None:
        await source.keys.for_kid("rsa-0")
        source.fails = True
        source.now = FRESH_S
        assert (await source.keys.for_kid("rsa-0")).keys  # at once: the fetch runs beside
        await source.settle()
        assert source.loads == 2
        await source.keys.for_kid("rsa-0")
        await source.settle()
        assert source.loads == 2  # not again within a minute
        source.now = KEPT_S - 1
        assert (await source.keys.for_kid("rsa-0")).keys
        await source.settle()
        source.now = KEPT_S + AGAIN_S
        assert not (await source.keys.for_kid("rsa-0")).keys
        source.fails = False
        source.now += AGAIN_S
        assert (await source.keys.for_kid("rsa-0")).keys

    play(scenario)


def test_an_answer_that_is_no_key_set_leaves_the_keys_alone() -> None:
    async def scenario(source: Source) -> None:
        await source.keys.for_kid("rsa-0")
        source.issuer.answer = b"<html>"
        source.now = FRESH_S
        await source.keys.for_kid("rsa-0")
        await source.settle()
        assert source.loads == 2 and (await source.keys.for_kid("rsa-0")).has("rsa-0")

    play(scenario)


# ---- key sets


def rows(*changes: dict[str, Any]) -> bytes:
    return json.dumps({"keys": [{**rsa_key().as_dict(private=False), **each} for each in changes]}).encode()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", 'no list "keys"'),
        (b'{"keys": {}}', 'no list "keys"'),
        (b'{"keys": []}', "no RSA key"),
        (b'{"keys": [1, "x", null]}', "no RSA key"),
        (b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "no RSA key"),
        (b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}', "no RSA key"),
        (b'{"keys": [{"kty": "RSA", "n": "***", "e": "AQAB"}]}', "no RSA key"),
        (b'{"keys": [{"kty": "RSA"}]}', "no RSA key"),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}', "no RSA key"),
        (b'{"keys": [{"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"}]}', "no RSA key"),
        (b" " * (DOCUMENT_BYTES_MAX + 1), "bytes"),
        (rows(*[{}] * (KEYS_MAX + 1)), "at most are read"),
        (rows({"use": "enc"}), "no RSA key"),
        (rows({"key_ops": ["encrypt"]}), "no RSA key"),
        (rows({"kid": 7}), "no RSA key"),
        (rows({"alg": "HS256"}), "no RSA key"),
        (rows({"alg": "ES256"}), "no RSA key"),
    ],
)
def test_what_is_no_key_set_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_key_set(data)


def test_keys_are_found_by_name_and_algorithm() -> None:
    found = read_key_set(TokenIssuer().document())
    assert [each.kid for each in found.keys] == ["rsa-0", "ec-0"]
    assert found.find("rsa-0", "RS256") and found.find("rsa-0", "PS256") and found.find("ec-0", "ES256")
    assert (
        not found.find("rsa-0", "ES256") and not found.find("ec-0", "RS256") and not found.find(None, "RS256")
    )
    only = read_key_set(rows({"alg": "PS256"}))
    assert only.find(None, "PS256") and not only.find(None, "RS256")
    assert not KeySet(()).has("x") and KeySet(()).has(None)


def test_a_private_key_in_the_document_is_not_kept() -> None:
    document = json.dumps({"keys": [ec_key().as_dict(private=True)]}).encode()
    (key,) = read_key_set(document).keys
    assert not key.key.is_private


# ---- fetching


@asynccontextmanager
async def hostile(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server that answers as it likes."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    finally:
        server.close()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def fetched(*pieces: bytes, bytes_max: int = 1000) -> tuple[int, bytes]:
    async def main() -> tuple[int, bytes]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for each in pieces:
                writer.write(each)
                await writer.drain()

        async with hostile(answer) as url:
            return await fetch(url, timeout_s=30.0, bytes_max=bytes_max)

    return asyncio.run(main())


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (OK + b"content-length: 2\r\n\r\nhi",),
        (OK + b"content-length: 2\r\n\r\n", b"h", b"i"),
        (OK + b"transfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",),
        (OK + b"\r\nhi",),
    ],
)
def test_an_answer_is_read_whole(pieces: tuple[bytes, ...]) -> None:
    assert fetched(*pieces) == (200, b"hi")


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ((), "ends in the middle"),
        ((b"nonsense\r\n\r\n",), "did not answer with HTTP"),
        ((OK + b"content-length: 5\r\n\r\nhi",), "ends in the middle"),
        ((OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhi",), "ends in the middle"),
        ((OK + b"content-length: 5000\r\n\r\n" + b"x" * 5000,), "more than 1000 bytes"),
        ((OK + b"\r\n" + b"x" * 100_000,), "more than 1000 bytes"),
        ((OK + b"x-header: y\r\n" * 10_000,), "more than 1000 bytes"),
        ((OK + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1001,), "more than 1000 bytes"),
    ],
)
def test_an_answer_that_is_cut_or_huge_is_refused(pieces: tuple[bytes, ...], said: str) -> None:
    with pytest.raises(CannotFetch, match=said):
        fetched(*pieces)


def test_a_server_that_is_slow_has_a_time_for_all_of_it() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"H")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def main() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        for answer in (silent, drip):
            async with hostile(answer) as url:
                with pytest.raises(CannotFetch, match=r"did not answer"):
                    await fetch(url, timeout_s=0.1, bytes_max=1000)

    asyncio.run(main())


def test_a_redirect_is_not_followed() -> None:
    assert fetched(b"HTTP/1.1 302 Found\r\nlocation: http://evil.example/\r\ncontent-length: 0\r\n\r\n") == (
        302,
        b"",
    )


def test_other_statuses_and_closed_ports_are_errors_that_name_the_host() -> None:
    async def main() -> None:
        issuer = TokenIssuer()
        issuer.status = 503
        with issuer.serve() as url:
            config = OauthConfig(issuer=ISSUER, audience=AUDIENCE, jwks=f"{url}/keys")
            with pytest.raises(CannotFetch, match=r"127\.0\.0\.1 answered with status 503"):
                await load_document(config)
            issuer.status = 200
            assert read_key_set(await load_document(config)).has("rsa-0")
        with pytest.raises(CannotFetch, match=r"127\.0\.0\.1 cannot be reached"):
            await load_document(config)

    asyncio.run(main())


def test_keys_come_from_a_file_too(tmp_path: Path) -> None:
    async def main() -> None:
        file = tmp_path / "the keys.json"
        config = OauthConfig(issuer=ISSUER, audience=AUDIENCE, jwks=file.as_uri())
        with pytest.raises(ValueError, match="cannot be read"):
            await load_document(config)
        file.write_bytes(TokenIssuer().document())
        assert read_key_set(await load_document(config)).has("rsa-0")
        file.write_bytes(b" " * (DOCUMENT_BYTES_MAX + 100))
        assert len(await load_document(config)) == DOCUMENT_BYTES_MAX + 1

    asyncio.run(main())
    assert module.FETCH_S <= 5


@pytest.mark.parametrize(
    "url",
    [
        "https://issuer.example/keys",
        "https://issuer.example:8443/keys?a=b",
        "http://127.0.0.1:1/keys",
        "http://localhost/keys",
        "http://[::1]/keys",
        "file:///etc/keys.json",
    ],
)
def test_where_keys_may_come_from(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "issuer.example/keys",
        "http://issuer.example/keys",
        "http://127.0.0.1.evil.example/keys",
        "ftp://issuer.example/keys",
        "https://",
        "https:///keys",
        "https://user:word@issuer.example/keys",
        "https://issuer.example:99999/keys",
        "file://host/keys",
        "file:keys",
        "//issuer.example/keys",
    ],
)
def test_where_keys_may_not_come_from(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_url(url)
