"""Message encryption without a broker: what is sealed opens, what was changed does not, and counters end."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tailrace.model import ConfigError
from tailrace.security.decryption import DecryptionFailed, Failure
from tailrace.security.messages import Encryption, Opener, Sealer, opening, parse_keys, sealing
from tailrace.security.messages.envelope import ENVELOPE, ORIGIN, additional_data, read_envelope

KEY, OTHER_KEY = bytes(range(32)), bytes(range(100, 132))
Headers = list[tuple[str, bytes | None]]


def encryption(**changes: Any) -> Encryption:
    return Encryption(**{"keys": {"k1": KEY}, "active": "k1", **changes})


def sealed(
    value: bytes | None = b"secret",
    *,
    key: bytes | None = b"customer-7",
    topic: str = "orders",
    sealer: Sealer | None = None,
) -> tuple[bytes | None, Headers]:
    body, added = (sealer or Sealer(encryption())).seal(topic, key, value)
    return body, list(added)


def failure_of(
    opener: Opener, topic: str, key: bytes | None, value: bytes | None, headers: Headers
) -> Failure:
    with pytest.raises(DecryptionFailed) as caught:
        opener.open(topic, key, value, headers)
    assert b"secret" not in str(caught.value).encode() and KEY.hex() not in str(caught.value)
    return caught.value.failure


def with_envelope(headers: Headers, change: Any) -> Headers:
    return [(name, change(value) if name == ENVELOPE else value) for name, value in headers]


# ---- there and back


@pytest.mark.parametrize("key", [None, b"", b"k", b"\x00" * 5])
@pytest.mark.parametrize("value", [None, b"", b"v", os.urandom(100_000)])
def test_what_is_sealed_opens(key: bytes | None, value: bytes | None) -> None:
    body, headers = sealed(value, key=key)
    assert body != value if value is not None else body is None
    given: Headers = [("colour", b"red"), ("none", None)]
    assert Opener(encryption()).open("orders", key, body, [*given, *headers]) == (value, tuple(given))


def test_a_value_takes_sixteen_bytes_more_and_is_not_to_be_seen() -> None:
    body, headers = sealed(b"secret" * 100)
    assert body is not None and len(body) == 616
    assert b"secret" not in body + b"".join(value or b"" for _, value in headers)


def test_the_format_is_what_the_document_says() -> None:
    body, headers = sealed(b"secret")
    assert body is not None
    version, key_id, salt, nonce = (dict(headers)[ENVELOPE] or b"").split(b";")
    assert (version, key_id, int(nonce, 16), dict(headers)[ORIGIN]) == (b"1", b"k1", 0, b"orders")
    info = b"tailrace message encryption 1\0k1"
    data_key = HKDF(algorithm=SHA256(), length=32, salt=bytes.fromhex(salt.decode()), info=info).derive(KEY)
    aad = b"\x01\x00" + b"\x00\x00\x00\x06orders" + b"\x01" + b"\x00\x00\x00\x0acustomer-7"
    assert AESGCM(data_key).decrypt(bytes(12), body, aad) == b"secret"


def test_no_two_records_have_the_same_additional_data() -> None:
    cases = [
        (topic, key, has_value)
        for topic in ("", "a", "ab", "a\x00")
        for key in (None, b"", b"b", b"\x00", b"\x00\x00\x00\x00")
        for has_value in (True, False)
    ]
    assert len({additional_data(topic, key, has_value=has) for topic, key, has in cases}) == len(cases)


# ---- what was changed


def flip(data: bytes | None, at: int = 0) -> bytes:
    assert data is not None
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("at", [0, 5, 6, -1])
def test_a_changed_value_or_tag_is_refused(at: int) -> None:
    body, headers = sealed()
    assert body is not None
    assert failure_of(Opener(encryption()), "orders", b"customer-7", flip(body, at % len(body)), headers) == (
        Failure.UNVERIFIED
    )


@pytest.mark.parametrize("value", [b"", b"short", b"x" * 15, b"x" * 16])
def test_a_value_cut_short_is_refused(value: bytes) -> None:
    _, headers = sealed()
    assert failure_of(Opener(encryption()), "orders", b"customer-7", value, headers) == Failure.UNVERIFIED


@pytest.mark.parametrize("key", [None, b"", b"customer-8", b"customer-7\x00"])
def test_another_key_is_refused(key: bytes | None) -> None:
    body, headers = sealed()
    assert failure_of(Opener(encryption()), "orders", key, body, headers) == Failure.UNVERIFIED


def test_a_null_key_is_not_an_empty_one() -> None:
    for wrote, read in ((None, b""), (b"", None)):
        body, headers = sealed(key=wrote)
        assert failure_of(Opener(encryption()), "orders", read, body, headers) == Failure.UNVERIFIED


def test_another_topic_is_refused_even_if_its_header_says_so() -> None:
    body, headers = sealed()
    opener = Opener(encryption())
    assert failure_of(opener, "payments", b"customer-7", body, headers) == Failure.ORIGIN
    renamed = [(name, b"payments" if name == ORIGIN else value) for name, value in headers]
    assert failure_of(opener, "payments", b"customer-7", body, renamed) == Failure.UNVERIFIED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b";k1;", b";k2;"),  # the same key under another id
        (b"000000000000000000000000", b"000000000000000000000001"),
    ],
)
def test_another_key_id_or_nonce_is_refused(old: bytes, new: bytes) -> None:
    body, headers = sealed()
    changed = with_envelope(headers, lambda value: value.replace(old, new))
    assert changed != headers
    opener = Opener(encryption(keys={"k1": KEY, "k2": KEY}))
    assert failure_of(opener, "orders", b"customer-7", body, changed) == Failure.UNVERIFIED


def test_another_salt_is_refused() -> None:
    body, headers = sealed()
    changed = with_envelope(headers, lambda value: value[:5] + b"0" * 64 + value[69:])
    assert failure_of(Opener(encryption()), "orders", b"customer-7", body, changed) == Failure.UNVERIFIED


def test_headers_of_another_record_are_refused() -> None:
    sealer = Sealer(encryption())
    (one, of_one), (other, of_other) = sealed(sealer=sealer), sealed(sealer=sealer)
    foreign, of_foreign = sealed()
    opener = Opener(encryption())
    for body, headers in ((one, of_other), (other, of_one), (one, of_foreign), (foreign, of_one)):
        assert failure_of(opener, "orders", b"customer-7", body, headers) == Failure.UNVERIFIED
    assert opener.open("orders", b"customer-7", one, of_one)[0] == b"secret"


def test_a_deletion_is_proven_and_cannot_be_made_of_a_value() -> None:
    opener = Opener(encryption())
    body, headers = sealed(None)
    assert opener.open("orders", b"customer-7", body, headers) == (None, ())
    empty, of_empty = sealed(b"")
    assert empty is not None
    forged = with_envelope(of_empty, lambda value: value + b";" + empty.hex().encode())
    assert failure_of(opener, "orders", b"customer-7", None, forged) == Failure.UNVERIFIED
    assert failure_of(opener, "orders", b"customer-7", None, of_empty) == Failure.UNVERIFIED
    as_value = bytes.fromhex((dict(headers)[ENVELOPE] or b"").rpartition(b";")[2].decode())
    back = with_envelope(headers, lambda value: value.rpartition(b";")[0])
    assert failure_of(opener, "orders", b"customer-7", as_value, back) == Failure.UNVERIFIED
    assert failure_of(opener, "orders", b"customer-7", as_value, headers) == Failure.UNVERIFIED


def test_a_wrong_key_is_refused() -> None:
    body, headers = sealed()
    opener = Opener(encryption(keys={"k1": OTHER_KEY}))
    assert failure_of(opener, "orders", b"customer-7", body, headers) == Failure.UNVERIFIED
    with pytest.raises(DecryptionFailed, match=r"key k1, and the keys here are k9\. Add k1"):
        Opener(encryption(keys={"k9": KEY}, active="k9")).open("orders", b"customer-7", body, headers)


SALT, NONCE = b"0" * 64, b"0" * 24


@pytest.mark.parametrize(
    "envelope",
    [
        None,
        b"",
        b"1",
        b"1;k1",
        b"1;k1;" + SALT,
        b"1;;" + SALT + b";" + NONCE,
        b"1;k 1;" + SALT + b";" + NONCE,
        b"1;" + b"k" * 65 + b";" + SALT + b";" + NONCE,
        b"1;k1;" + SALT[1:] + b";" + NONCE,
        b"1;k1;" + SALT + b"0;" + NONCE,
        b"1;k1;" + SALT.replace(b"0", b"A") + b";" + NONCE,
        b"1;k1;" + SALT + b";" + NONCE[1:],
        b"1;k1;" + SALT + b";" + NONCE + b";",
        b"1;k1;" + SALT + b";" + NONCE + b";" + b"0" * 31,
        b"1;k1;" + SALT + b";" + NONCE + b"\n",
        b" 1;k1;" + SALT + b";" + NONCE,
        "1;k1;\u0660".encode() + SALT[1:] + b";" + NONCE,
    ],
)
def test_a_damaged_header_is_refused(envelope: bytes | None) -> None:
    body, headers = sealed()
    changed = with_envelope(headers, lambda _: envelope)
    assert failure_of(Opener(encryption()), "orders", b"customer-7", body, changed) == Failure.MALFORMED


@pytest.mark.parametrize("drop", [ENVELOPE, ORIGIN])
def test_a_header_that_is_missing_or_there_twice_is_refused(drop: str) -> None:
    body, headers = sealed()
    opener = Opener(encryption(policy="allow"))
    one = [header for header in headers if header[0] == drop]
    others = [header for header in headers if header[0] != drop]
    assert failure_of(opener, "orders", b"customer-7", body, others) == Failure.MALFORMED
    assert failure_of(opener, "orders", b"customer-7", body, [*headers, *one]) == Failure.MALFORMED
    assert failure_of(opener, "orders", b"customer-7", body, [(ORIGIN, b"\xff"), headers[0]]) == (
        Failure.MALFORMED
    )


def test_a_newer_format_says_so() -> None:
    body, headers = sealed()
    changed = with_envelope(headers, lambda value: b"2" + value[1:])
    with pytest.raises(DecryptionFailed, match=r"its format 2 is newer than this client\. Update the client"):
        Opener(encryption()).open("orders", b"customer-7", body, changed)


# ---- plain records


def test_plain_records_are_refused_unless_they_are_allowed() -> None:
    plain: Headers = [("colour", b"red")]
    opener = Opener(encryption())
    with pytest.raises(DecryptionFailed, match=r'not encrypted, and encryption is required.*policy="allow"'):
        opener.open("orders", None, b"plain", plain)
    assert opener.counts.failed == {Failure.PLAIN: 1}
    lenient = Opener(encryption(policy="allow"))
    assert lenient.open("orders", None, b"plain", plain) == (b"plain", tuple(plain))
    assert (lenient.counts.plain, lenient.counts.opened) == (1, 0)


# ---- where a record may have been written


@pytest.mark.parametrize(
    ("topic", "named", "changes", "is_read"),
    [
        ("orders", None, {}, True),
        ("workers.dlq", ("_dlq_topic", b"orders"), {}, True),
        ("workers.dlq", ("_dlq_topic", b"payments"), {}, False),
        ("workers.dlq", ("_dlq_topic", None), {}, False),
        ("workers.dlq", ("_dlq_reason", b"orders"), {}, False),
        ("again", ("_replay_topic", b"orders"), {}, True),
        ("far", ("_mirror_topic", b"orders"), {}, True),
        ("us.orders", None, {}, False),
        ("us.orders", None, {"mirrors": ["us"]}, True),
        ("us.payments", None, {"mirrors": ["us"]}, False),
        ("eu.orders", None, {"mirrors": ["us"]}, False),
        ("us.eu.orders", None, {"mirrors": ["us", "eu"]}, True),
        ("us.eu.orders", None, {"mirrors": ["us"]}, False),
        ("us.us.orders", None, {"mirrors": ["us"]}, True),
        ("again", ("_replay_topic", b"orders"), {"origins": ["orders"]}, True),
        ("again", ("_replay_topic", b"orders"), {"origins": ["payments"]}, False),
        ("us.orders", None, {"mirrors": ["us"], "origins": []}, False),
        ("orders", None, {"origins": []}, True),
    ],
)
def test_an_origin_is_accepted_only_if_something_names_it(
    topic: str, named: tuple[str, bytes | None] | None, changes: dict[str, Any], is_read: bool
) -> None:
    body, headers = sealed()
    headers += [named] if named else []
    opener = Opener(encryption(**changes))
    if is_read:
        assert opener.open(topic, b"customer-7", body, headers)[0] == b"secret"
    else:
        assert failure_of(opener, topic, b"customer-7", body, headers) == Failure.ORIGIN


# ---- sessions


def test_no_nonce_is_used_twice_with_one_data_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MESSAGES_MAX", 3)
    sealer = Sealer(encryption())
    written = [sealed(b"v%d" % number, sealer=sealer) for number in range(8)]
    envelopes = [read_envelope(dict(headers)[ENVELOPE]) for _, headers in written]
    assert len({(each.salt, each.nonce) for each in envelopes}) == 8
    assert [int.from_bytes(each.nonce, "big") for each in envelopes] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert (len({each.salt for each in envelopes}), sealer.sessions, sealer.sealed) == (3, 3, 8)
    opener = Opener(encryption())
    assert [opener.open("orders", b"customer-7", *each)[0] for each in written] == [
        b"v%d" % number for number in range(8)
    ]


def test_a_data_key_ends_at_two_to_the_thirty_two() -> None:
    assert sealing.MESSAGES_MAX == 1 << 32
    sealer = Sealer(encryption())
    first = sealed(sealer=sealer)
    sealer._count = sealing.MESSAGES_MAX - 1
    last, after = sealed(sealer=sealer), sealed(sealer=sealer)
    salts = [read_envelope(dict(headers)[ENVELOPE]).salt for _, headers in (first, last, after)]
    assert salts[0] == salts[1] != salts[2]
    assert read_envelope(dict(last[1])[ENVELOPE]).nonce == bytes(8) + b"\xff" * 4
    assert read_envelope(dict(after[1])[ENVELOPE]).nonce == bytes(12)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
def test_a_forked_process_begins_with_a_salt_of_its_own() -> None:
    sealer = Sealer(encryption())
    sealed(sealer=sealer)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, dict(sealed(sealer=sealer)[1])[ENVELOPE] or b"")
        os._exit(0)
    os.waitpid(child, 0)
    in_child = read_envelope(os.read(reading, 1000))
    in_parent = read_envelope(dict(sealed(sealer=sealer)[1])[ENVELOPE])
    os.close(reading)
    os.close(writing)
    assert in_child.salt != in_parent.salt
    assert in_parent.nonce == bytes(11) + b"\x01"


def test_each_client_has_a_salt_of_its_own() -> None:
    handed = encryption()
    salts = {read_envelope(dict(sealed(sealer=Sealer(handed))[1])[ENVELOPE]).salt for _ in range(3)}
    assert len(salts) == 3


def test_derived_keys_of_a_reader_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "DERIVED_MAX", 2)
    opener = Opener(encryption())
    written = [sealed() for _ in range(5)]
    for _ in range(2):
        for each in written:
            assert opener.open("orders", b"customer-7", *each)[0] == b"secret"
    assert len(opener._ciphers) == 2


def test_topics_known_to_a_writer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "_TOPICS_MAX", 2)
    sealer, opener = Sealer(encryption()), Opener(encryption())
    for number in range(5):
        topic = f"t{number}"
        assert opener.open(topic, b"customer-7", *sealed(topic=topic, sealer=sealer))[0] == b"secret"
    assert len(sealer._topics) <= 2


def test_a_rotated_key_reads_what_the_old_one_wrote() -> None:
    old = sealed()
    rotated = encryption(keys={"k1": KEY, "k2": OTHER_KEY}, active="k2")
    new = sealed(sealer=Sealer(rotated))
    opener = Opener(rotated)
    assert [opener.open("orders", b"customer-7", *each)[0] for each in (old, new)] == [b"secret"] * 2
    assert b";k2;" in (dict(new[1])[ENVELOPE] or b"")


def test_an_encrypted_record_is_not_encrypted_again() -> None:
    _, headers = sealed()
    with pytest.raises(ConfigError, match=r"has the header tailrace-encryption already.*without encryption"):
        Sealer(encryption()).check_names("copies", [name for name, _ in headers])


# ---- keys


@pytest.mark.parametrize("form", ["raw", "hex", "HEX\n", "base64", "newline"])
def test_a_key_file_holds_bytes_or_text(form: str, tmp_path: Path) -> None:
    import base64

    key = bytes([10]) * 32 if form == "newline" else KEY
    content = {
        "raw": key,
        "newline": key,
        "hex": key.hex().encode(),
        "HEX\n": key.hex().upper().encode() + b"\n",
        "base64": base64.b64encode(key) + b"\n",
    }[form]
    path = tmp_path / "k1.key"
    path.write_bytes(content)
    path.chmod(0o600)
    assert Encryption(keys={"k1": path}).keys.get("k1") == key
    assert Encryption(keys={"k1": str(path)}).active == "k1"


@pytest.mark.skipif(os.name != "posix", reason="files have no modes here")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o777])
def test_a_key_file_that_others_have_rights_on_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "k1.key"
    path.write_bytes(KEY)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"key k1, .*has mode {mode:04o}.*Try: chmod 600 "):
        Encryption(keys={"k1": path})


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33, b"z" * 64, b"0" * 63, b"x" * 5_000_000])
def test_a_file_without_a_key_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "k1.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"does not hold 32 bytes.*umask 077"):
        Encryption(keys={"k1": path})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"keys": {}}, "no keys"),
        ({"keys": {"k1": b"short"}}, "key k1 has 5 bytes, and 32 are needed"),
        ({"keys": {"k1": 7}}, "key k1 is 32 bytes or the name of a file, not int"),
        ({"keys": {"k;1": KEY}}, "key id 'k;1' is not 1 to 64 of"),
        ({"keys": {"": KEY}}, "key id '' is not"),
        (
            {"keys": {"k1": "/nowhere/k1.key"}},
            "cannot read the file of key k1, /nowhere/k1.key: No such file",
        ),
        ({"keys": {"k1": KEY}, "active": "k2"}, "the active key 'k2' is none of the keys: k1"),
        ({"keys": {"k1": KEY}, "policy": "maybe"}, "policy = 'maybe' is none of require, allow"),
        ({"keys": {"k1": KEY}, "on_failure": "x"}, "on_failure = 'x' is none of fail, dead-letter, skip"),
        ({"keys": {"k1": KEY}, "mirrors": "us"}, r"mirrors is a list of names.*mirrors=\['us'\]"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Encryption(**given)


def test_a_key_given_as_text_is_not_repeated() -> None:
    import base64

    for text in (KEY.hex(), base64.b64encode(KEY).decode()):
        with pytest.raises(ConfigError, match="given as text, where others can see it") as caught:
            Encryption(keys={"k1": text})
        assert text not in str(caught.value)
        with pytest.raises(ConfigError) as caught:
            parse_keys([text], what="--encryption-key")
        assert text not in str(caught.value)


def test_keys_on_a_command_line_are_files() -> None:
    assert parse_keys(["k1=/a/k1.key", "k2=b=c"], what="-") == {"k1": "/a/k1.key", "k2": "b=c"}
    for wrong in (["k1"], ["k1="], [""], ["k1=a", "k1=b"]):
        with pytest.raises(ConfigError, match="--encryption-key"):
            parse_keys(wrong, what="--encryption-key")


def test_nothing_shows_a_key_and_none_is_pickled() -> None:
    handed = encryption()
    shown = f"{handed!r} {handed} {handed.keys!r} {Sealer(handed)!r} {Opener(handed)!r}"
    assert "k1" in shown and KEY.hex() not in shown and repr(KEY)[2:-1] not in shown
    for each in (handed, handed.keys):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(each)
    with pytest.raises(TypeError):
        copy.deepcopy(handed)


def test_a_reader_needs_no_active_key_and_a_writer_does() -> None:
    reader = Encryption(keys={"k1": KEY, "k2": OTHER_KEY})
    assert Opener(reader).open("orders", b"customer-7", *sealed())[0] == b"secret"
    with pytest.raises(ConfigError, match=r"k1, k2, and active names none of them\. Set active"):
        Sealer(reader).seal("orders", None, b"v")
