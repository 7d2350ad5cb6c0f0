"""The messages of SCRAM (RFC 5802 section 7), read strictly.

    client-first   n,,n=user,r=nonce            gs2 header, user, nonce of the client
    server-first   r=nonce,s=salt,i=iterations  the nonce continued by the server
    client-final   c=biws,r=nonce,p=proof       the gs2 header again, in base64
    server-final   v=signature

Channel binding is not offered: the flags `n` and `y` are accepted, `p=` is refused. Delegation tokens
(`tokenauth`, KIP-48) are refused, as is the mandatory extension `m=`. Readers raise ValueError with a reason
that repeats nothing of the message.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

MESSAGE_BYTES_MAX: Final = 4096
NONCE_LENGTH_MAX: Final = 256
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,256}", re.ASCII)
_GS2 = re.compile(r"(?P<flag>n|y|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>[^,]+))?,(?P<rest>.*)", re.DOTALL)
_EXTENSION = re.compile(r"(?P<name>[A-Za-z]+)=[^,\0]+")
_ESCAPE = re.compile(r"=(2C|3D)?")
_ESCAPED = {"2C": ",", "3D": "="}
_ITERATIONS = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    """What a client begins with."""

    gs2_header: str  # as it was sent: the client repeats it
    authzid: str  # "": none
    user: str
    nonce: str
    bare: str  # the message without its gs2 header: part of what is signed


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFirst:
    """What a server asks for."""

    nonce: str
    salt: bytes
    iterations: int
    text: str  # as it was sent: part of what is signed


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFinal:
    """What a client proves."""

    gs2_header: bytes
    nonce: str
    proof: bytes
    without_proof: str  # part of what is signed


def read_client_first(data: bytes) -> ClientFirst:
    text = _text(data)
    found = _GS2.fullmatch(text)
    if found is None:
        raise ValueError("it does not begin with a gs2 header")
    if found["flag"].startswith("p="):
        raise ValueError("channel binding is not offered here")
    bare = found["rest"]
    user, nonce, *extensions = _split(bare, 2)
    if user.startswith("m="):
        raise ValueError("it has a mandatory extension, and none is known")
    _check_extensions(extensions)
    authzid = found["authzid"]
    return ClientFirst(
        gs2_header=text[: len(text) - len(bare)],
        authzid="" if authzid is None else unescape(authzid),
        user=unescape(_value(user, "n")),
        nonce=_nonce(nonce),
        bare=bare,
    )


def read_server_first(data: bytes) -> ServerFirst:
    text = _text(data)
    nonce, salt, iterations, *extensions = _split(text, 3)
    _check_extensions(extensions)
    number = _value(iterations, "i")
    if _ITERATIONS.fullmatch(number) is None:
        raise ValueError("its number of iterations is not a number")
    return ServerFirst(
        nonce=_nonce(nonce), salt=_base64(_value(salt, "s")), iterations=int(number), text=text
    )


def read_client_final(data: bytes) -> ClientFinal:
    text = _text(data)
    without_proof, comma, proof = text.rpartition(",")
    if not comma:
        raise ValueError("it has no proof")
    binding, nonce, *extensions = _split(without_proof, 2)
    _check_extensions(extensions)
    return ClientFinal(
        gs2_header=_base64(_value(binding, "c")),
        nonce=_nonce(nonce),
        proof=_base64(_value(proof, "p")),
        without_proof=without_proof,
    )


def read_server_final(data: bytes) -> bytes:
    """The server's signature; ValueError too for a message that says why it failed."""
    signature, *extensions = _split(_text(data), 1)
    if signature.startswith("e="):
        raise ValueError("it reports a failure")
    _check_extensions(extensions)
    return _base64(_value(signature, "v"))


def escape(name: str) -> str:
    """A user name as it travels: `=` and `,` have other meanings."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape(name: str) -> str:
    """The user name; ValueError for `=` that escapes nothing."""

    def replaced(found: re.Match[str]) -> str:
        if found[1] is None:
            raise ValueError("its user name has an equals sign that is not escaped")
        return _ESCAPED[found[1]]

    return _ESCAPE.sub(replaced, name)


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# ---- inside


def _text(data: bytes) -> str:
    if len(data) > MESSAGE_BYTES_MAX:
        raise ValueError(f"it is over {MESSAGE_BYTES_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    if "\0" in text:
        raise ValueError("it has a zero character")
    return text


def _split(text: str, count: int) -> list[str]:
    parts = text.split(",")
    if len(parts) < count:
        raise ValueError("a part of it is missing")
    return parts


def _value(part: str, name: str) -> str:
    if not part.startswith(f"{name}=") or len(part) == 2:
        raise ValueError(f"it has no {name}= where one belongs")
    return part[2:]


def _nonce(part: str) -> str:
    nonce = _value(part, "r")
    if _NONCE.fullmatch(nonce) is None:
        raise ValueError(f"its nonce is not 1 to {NONCE_LENGTH_MAX} printable characters")
    return nonce


def _base64(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a part of it is not base64") from None
    if encode_base64(data) != text:  # several texts would stand for the same bytes
        raise ValueError("a part of it is not base64")
    return data


def _check_extensions(extensions: list[str]) -> None:
    """Optional extensions are passed over (RFC 5802 section 5.1), but for those that change the meaning."""
    for each in extensions:
        found = _EXTENSION.fullmatch(each)
        if found is None:
            raise ValueError("one of its extensions has no name or no value")
        if found["name"] == "tokenauth":
            raise ValueError("delegation tokens are not supported")
        if found["name"] == "m":
            raise ValueError("it has a mandatory extension, and none is known")
