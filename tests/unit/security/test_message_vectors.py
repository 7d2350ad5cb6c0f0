"""docs/protocol/message-encryption.md: its vectors, computed anew from its words, and by our code."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from tests.document import ROOT, broken_links

from tailrace.security.messages import Encryption, Opener, Sealer

PAGE = ROOT / "docs" / "protocol" / "message-encryption.md"
(BLOCK,) = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
VECTORS: list[dict[str, Any]] = json.loads(BLOCK)
each_vector = pytest.mark.parametrize(
    "vector", VECTORS, ids=lambda vector: vector["tailrace-encryption"][-8:]
)


def data(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def test_links_lead_somewhere() -> None:
    assert broken_links(PAGE) == []


def test_the_vectors_cover_every_form() -> None:
    assert {vector["record_key"] is None for vector in VECTORS} == {True, False}
    assert {vector["value"] for vector in VECTORS} >= {None, ""}
    assert "" in {vector["record_key"] for vector in VECTORS}


@each_vector
def test_a_vector_follows_from_the_document_alone(vector: dict[str, Any]) -> None:
    info = b"tailrace message encryption 1\x00" + vector["key_id"].encode()
    derived = HKDF(algorithm=SHA256(), length=32, salt=data(vector["salt"]), info=info)
    data_key = derived.derive(data(vector["key"]) or b"")
    assert data_key.hex() == vector["data_key"]

    key, value, topic = data(vector["record_key"]), data(vector["value"]), vector["topic"].encode()
    additional = bytes([1, 1 if value is None else 0]) + len(topic).to_bytes(4, "big") + topic
    additional += b"\x00" if key is None else b"\x01" + len(key).to_bytes(4, "big") + key
    assert additional.hex() == vector["additional_data"]

    sealed = AESGCM(data_key).encrypt(data(vector["nonce"]) or b"", value or b"", additional)
    envelope = f"1;{vector['key_id']};{vector['salt']};{vector['nonce']}"
    if value is None:
        assert (vector["sealed_value"], vector["tailrace-encryption"]) == (None, f"{envelope};{sealed.hex()}")
    else:
        assert (vector["sealed_value"], vector["tailrace-encryption"]) == (sealed.hex(), envelope)
    assert vector["tailrace-origin"] == vector["topic"]


@each_vector
def test_our_code_writes_and_reads_a_vector(vector: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    encryption = Encryption(keys={vector["key_id"]: data(vector["key"]) or b""})
    sealer = Sealer(encryption)
    with monkeypatch.context() as patched:
        patched.setattr(os, "urandom", lambda _count: data(vector["salt"]))
        sealer._begin()
    sealer._count = int(vector["nonce"], 16)
    key, value = data(vector["record_key"]), data(vector["value"])
    sealed, headers = sealer.seal(vector["topic"], key, value)
    assert sealed == data(vector["sealed_value"])
    assert {name: content.decode() for name, content in headers} == {
        name: vector[name] for name in ("tailrace-encryption", "tailrace-origin")
    }
    assert Opener(encryption).open(vector["topic"], key, sealed, headers) == (value, ())
