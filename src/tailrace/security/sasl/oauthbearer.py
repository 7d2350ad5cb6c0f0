"""The messages of OAUTHBEARER (RFC 7628 section 3): a token in, and nothing or a refusal out.

    client   n,,^Aauth=Bearer <token>^A^A              ^A is the byte 1; other keys may follow, as in Kafka
    server   (empty)                                   accepted
             {"status":"invalid_token"}                refused; the client answers ^A, and the exchange fails

Channel binding is not offered. A reader raises ValueError with a reason that repeats nothing of the message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from tailrace.security.sasl.scram_message import escape, unescape
from tailrace.security.secret import Secret

MESSAGE_BYTES_MAX: Final = 32 * 1024
REFUSAL: Final = json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()
ACKNOWLEDGED: Final = b"\x01"
"""What a client answers to a refusal."""
_SEPARATOR: Final = "\x01"
_GS2: Final = re.compile(r"(?P<flag>n|y|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>[^,\x01]+))?,", re.ASCII)
_PAIR: Final = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[\x20-\x7e\t\r\n]*)", re.ASCII)
_BEARER: Final = re.compile(r"bearer +(?P<token>[A-Za-z0-9._~+/-]+=*) *", re.ASCII | re.IGNORECASE)


class BearerMessage(NamedTuple):
    """What a client says: as whom it acts, or "", and its token."""

    authzid: str
    token: Secret


def read_bearer(data: bytes) -> BearerMessage:
    if len(data) > MESSAGE_BYTES_MAX:
        raise ValueError(f"it is over {MESSAGE_BYTES_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    header = _GS2.match(text)
    if header is None:
        raise ValueError("it does not begin with a gs2 header")
    if header["flag"].startswith("p="):
        raise ValueError("channel binding is not offered here")
    authzid = "" if header["authzid"] is None else unescape(header["authzid"])
    return BearerMessage(authzid, _token(_read_pairs(text[header.end() :])))


def write_bearer(token: Secret, extensions: Mapping[str, str] | None = None, *, authzid: str = "") -> bytes:
    """The message of a client; ValueError for an extension that would not be read."""
    pairs = {"auth": f"Bearer {token.reveal()}", **(extensions or {})}
    written = [f"{key}={value}" for key, value in pairs.items()]
    if any(_PAIR.fullmatch(each) is None for each in written):
        raise ValueError("a SASL extension has letters as its name and printable characters as its value")
    header = f"n,a={escape(authzid)}," if authzid else "n,,"
    return (header + _SEPARATOR + _SEPARATOR.join(written) + _SEPARATOR * 2).encode()


def _read_pairs(text: str) -> dict[str, str]:
    if not text.startswith(_SEPARATOR) or not text.endswith(_SEPARATOR * 2):
        raise ValueError("its parts are not between bytes of value 1")
    pairs: dict[str, str] = {}
    for each in text[1:-2].split(_SEPARATOR):
        found = _PAIR.fullmatch(each)
        if found is None:
            raise ValueError("a part of it is not KEY=VALUE")
        if found["key"] in pairs:
            raise ValueError("it has a key twice")
        pairs[found["key"]] = found["value"]
    return pairs


def _token(pairs: Mapping[str, str]) -> Secret:
    if "auth" not in pairs:
        raise ValueError("it has no auth=")
    found = _BEARER.fullmatch(pairs["auth"])
    if found is None:
        raise ValueError("its auth= is not Bearer and a token")
    return Secret(found["token"])
