"""Calls of a broker's REST API: JSON in, JSON out, with the login that the environment names."""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any

from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.client.credentials import from_environment
from tailrace.model import ConfigError


def call(address: str, method: str, path: str, *, body: object = None, timeout_s: float) -> tuple[int, Any]:
    """Status and answer; CommandFailed if nobody answers in time."""
    try:
        connection = http.client.HTTPConnection(address, timeout=timeout_s)
    except http.client.InvalidURL as error:
        raise ConfigError(f"--http {address!r} is not HOST:PORT, such as 127.0.0.1:8080") from error
    headers = {"accept": "application/json", **_authorization()}
    data = None
    if body is not None:
        data, headers["content-type"] = json.dumps(body).encode(), "application/json"
    try:
        connection.request(method, path, body=data, headers=headers)
        response = connection.getresponse()
        answer = response.read()
        return response.status, json.loads(answer) if answer else {}
    except TimeoutError as error:
        raise CommandFailed(
            f"no answer from {address} within {timeout_s:.0f} s", exit_code=ExitCode.TIMEOUT
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise CommandFailed(
            f"the HTTP listener at {address} does not answer: {error}. Is it that of a broker? "
            "Name another with --http HOST:PORT"
        ) from error
    finally:
        connection.close()


def message_of(answer: Any, status: int) -> str:
    """What an error says."""
    try:
        return str(answer["error"]["message"])
    except (KeyError, TypeError):
        return f"HTTP status {status}"


def _authorization() -> dict[str, str]:
    given = from_environment()
    if given is None:
        return {}
    pair = f"{given.username}:{given.password.reveal()}".encode()
    return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
