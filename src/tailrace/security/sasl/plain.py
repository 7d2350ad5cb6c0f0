"""The one message of PLAIN (RFC 4616): who to act as, who logs in, and the password.

authzid NUL authcid NUL password
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tailrace.security.secret import Secret

MESSAGE_BYTES_MAX: Final = 4096


class PlainMessage(NamedTuple):
    """What a client says of itself; `authzid` is empty or the user."""

    user: str
    password: Secret


def read_plain(data: bytes) -> PlainMessage:
    """ValueError with a reason that repeats nothing of the message."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise ValueError(f"it is over {MESSAGE_BYTES_MAX} bytes")
    try:
        parts = data.decode().split("\0")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if len(parts) != 3:
        raise ValueError("it does not have three parts")
    authzid, user, password = parts
    if not user or not password:
        raise ValueError("its user name or its password is empty")
    if authzid not in ("", user):
        raise ValueError("a user may act as nobody else (authzid)")
    return PlainMessage(user, Secret(password))


def write_plain(user: str, password: Secret) -> bytes:
    return f"\0{user}\0{password.reveal()}".encode()
