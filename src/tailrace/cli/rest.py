"""Calls of a broker's REST API: JSON in, JSON out, with the login that the environment names."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
from typing import Any

from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.client.bearer import BearerCredentials
from tailrace.client.credentials import from_environment
from tailrace.client.tls import ClientTls, handshake_failure
from tailrace.client.tls import from_environment as from_environment_tls
from tailrace.model import ConfigError
from tailrace.model.address import Address
from tailrace.security import Secret


def call(
    address: str,
    method: str,
    path: str,
    *,
    body: object = None,
    timeout_s: float,
    tls: ClientTls | None = None,
) -> tuple[int, Any]:
    """Status and answer; CommandFailed if nobody answers in time.

    `address` may begin with https://. Without `tls` the environment says how the broker is verified.
    """
    tls = from_environment_tls() if tls is None else tls
    try:
        connection = _connection(address, tls, timeout_s)
    except http.client.InvalidURL as error:
        raise ConfigError(f"--http {address!r} is not HOST:PORT, such as 127.0.0.1:8080") from error
    headers = {"accept": "application/json", **_authorization()}
    data, answer = None, b""
    if body is not None:
        data, headers["content-type"] = json.dumps(body).encode(), "application/json"
    try:
        connection.request(method, path, body=data, headers=headers)
        response = connection.getresponse()
        answer = response.read()
        return response.status, json.loads(answer) if answer else {}
    except ssl.SSLError as error:
        raise CommandFailed(handshake_failure(_place(address), error)) from error
    except TimeoutError as error:
        raise CommandFailed(
            f"no answer from {address} within {timeout_s:.0f} s", exit_code=ExitCode.TIMEOUT
        ) from error
    except ValueError as error:
        if b"HTTPS" in answer:
            raise CommandFailed(
                f"the HTTP listener at {address} has TLS. Give its CA: --tls-ca FILE"
            ) from error
        raise CommandFailed(
            f"the listener at {address} did not answer with JSON. Is it the HTTP listener of a broker? "
            "Name another with --http HOST:PORT"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise CommandFailed(
            f"the HTTP listener at {address} does not answer: {error}. Is it that of a broker? "
            "Name another with --http HOST:PORT"
        ) from error
    finally:
        connection.close()


def _connection(address: str, tls: ClientTls | None, timeout_s: float) -> http.client.HTTPConnection:
    bare = address.removeprefix("http://").removeprefix("https://").rstrip("/")
    if tls is None and address.startswith("https://"):
        tls = ClientTls()
    if tls is None:
        return http.client.HTTPConnection(bare, timeout=timeout_s)
    return http.client.HTTPSConnection(bare, timeout=timeout_s, context=tls.context())


def _place(address: str) -> Address:
    host, _, port = address.rpartition("://")[2].rstrip("/").rpartition(":")
    return Address(host.strip("[]"), int(port) if port.isdecimal() else 0)


def message_of(answer: Any, status: int) -> str:
    """What an error says."""
    try:
        return str(answer["error"]["message"])
    except (KeyError, TypeError):
        return f"HTTP status {status}"


async def _token(given: BearerCredentials) -> Secret:
    return await given.source()


def _authorization() -> dict[str, str]:
    given = from_environment()
    if given is None:
        return {}
    if isinstance(given, BearerCredentials):
        token = asyncio.run(_token(given))
        return {"authorization": f"Bearer {token.reveal()}"}
    pair = f"{given.username}:{given.password.reveal()}".encode()
    return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
