"""SCRAM, both sides: the RFC's own exchanges, every rule of the messages, and what an attacker may try."""

from __future__ import annotations

import base64
import contextlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.security.failure import AuthenticationFailed
from tailrace.security.sasl.scram_client import ScramClient
from tailrace.security.sasl.scram_message import (
    escape,
    read_client_final,
    read_client_first,
    read_server_final,
    read_server_first,
    unescape,
)
from tailrace.security.sasl.scram_server import ScramServer
from tailrace.security.secret import Secret
from tailrace.security.verifier import (
    HASHES,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Verifier,
    client_key,
    salted_password,
    verifier_of,
)

PASSWORD = Secret("pencil")
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
NONCE = CLIENT_NONCE + SERVER_NONCE
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def verifier(mechanism: str = SCRAM_SHA_256, password: Secret = PASSWORD, salt: bytes = RFC_SALT) -> Verifier:
    salted = salted_password(mechanism, password, salt=salt, iterations=4096)
    return verifier_of(mechanism, salted, salt=salt, iterations=4096)


def server(mechanism: str = SCRAM_SHA_256, nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(mechanism, make_nonce=lambda: nonce)


def challenged() -> ScramServer:
    begun = server()
    begun.challenge(CLIENT_FIRST, lambda _: verifier())
    return begun


def test_the_server_answers_the_exchange_of_rfc_7677() -> None:
    begun = server()
    assert begun.challenge(CLIENT_FIRST, lambda _: verifier()) == SERVER_FIRST
    assert begun.finish(CLIENT_FINAL) == SERVER_FINAL
    assert begun.user == "user"


def test_the_client_makes_the_exchange_of_rfc_7677() -> None:
    client = ScramClient(SCRAM_SHA_256, "user", PASSWORD, make_nonce=lambda: CLIENT_NONCE)
    assert client.first() == CLIENT_FIRST
    assert client.prove(SERVER_FIRST) == CLIENT_FINAL
    client.check(SERVER_FINAL)


@pytest.mark.parametrize("mechanism", list(HASHES))
@pytest.mark.parametrize("user", ["alice", "a,b", "x=y", "=2C", "Zoë", "=3D,="])
def test_both_sides_understand_each_other(mechanism: str, user: str) -> None:
    known = verifier(mechanism)
    asked: list[str] = []

    def find(name: str) -> Verifier:
        asked.append(name)
        return known

    client, begun = ScramClient(mechanism, user, PASSWORD), ScramServer(mechanism)
    proof = client.prove(begun.challenge(client.first(), find))
    client.check(begun.finish(proof))
    assert asked == [user] == [begun.user]


@pytest.mark.parametrize("mechanism", list(HASHES))
def test_a_wrong_password_fails_at_the_last_step(mechanism: str) -> None:
    client, begun = ScramClient(mechanism, "user", Secret("pencils")), ScramServer(mechanism)
    proof = client.prove(begun.challenge(client.first(), lambda _: verifier(mechanism)))
    with pytest.raises(AuthenticationFailed, match="user name or the password is wrong"):
        begun.finish(proof)


def test_nonces_of_the_server_differ() -> None:
    answers = {ScramServer(SCRAM_SHA_256).challenge(CLIENT_FIRST, lambda _: verifier()) for _ in range(50)}
    assert len(answers) == 50


# ---- what is accepted and refused of the first message


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=user,", "y,a=user,"])
def test_flags_without_channel_binding_are_accepted(header: str) -> None:
    found = read_client_first(f"{header}n=user,r=abc".encode())
    assert (found.gs2_header, found.user, found.nonce) == (header, "user", "abc")
    assert found.bare == "n=user,r=abc"


@pytest.mark.parametrize(
    "message",
    [
        "p=tls-unique,,n=user,r=abc",
        "p=tls-server-end-point,,n=user,r=abc",
        "z,,n=user,r=abc",
        "n,n=user,r=abc",
        "n,,n=user,r=abc,tokenauth=true",
        "n,,m=ext,n=user,r=abc",
        "n,,n=user,r=abc,m=ext",
        "n,,n=user",
        "n,,n=,r=abc",
        "n,,r=abc,n=user",
        "n,,n=user,r=",
        "n,,n=user,r=a b",
        "n,,n=user,r=ä",
        "n,,n=us=er,r=abc",
        "n,,n=user=2c,r=abc",
        "n,,n=user=,r=abc",
        "n,,n=us\0er,r=abc",
        "n,,n=user,r=abc,",
        "n,,n=user,r=abc,x",
        "n,,n=user,r=abc\0",
        "n,a=,n=user,r=abc",
        "",
        "n",
        "n,,",
        " n,,n=user,r=abc",
        "n,,n=user,r=" + "a" * 257,
        "n,,n=" + "u" * 4090 + ",r=a",
    ],
)
def test_first_messages_that_are_refused(message: str) -> None:
    with pytest.raises(AuthenticationFailed, match="is not valid"):
        server().challenge(message.encode(), lambda _: verifier())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="UTF-8"):
        server().challenge(b"n,,n=\xff,r=abc", lambda _: verifier())


def test_a_user_may_act_as_nobody_else() -> None:
    with pytest.raises(AuthenticationFailed, match="authzid"):
        server().challenge(b"n,a=admin,n=user,r=abc", lambda _: verifier())


def test_optional_extensions_are_passed_over_and_signed() -> None:
    begun = server()
    begun.challenge(CLIENT_FIRST + b",x=1", lambda _: verifier())
    with pytest.raises(AuthenticationFailed, match="wrong"):
        begun.finish(CLIENT_FINAL)  # proves a message without the extension


# ---- the second message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("c=biws", "c=eSws"), "gs2 header"),  # y,,
        (lambda text: text.replace("c=biws", "c=biwsYQ=="), "gs2 header"),
        (lambda text: text.replace(f"r={NONCE}", f"r={CLIENT_NONCE}"), "nonce"),
        (lambda text: text.replace(f"r={NONCE}", f"r={NONCE}x"), "nonce"),
        (lambda text: text.replace(f"r={NONCE}", "r=" + "x" * len(NONCE)), "nonce"),
        (lambda text: text.replace("p=d", "p=e"), "wrong"),
        (lambda text: text.partition(",p=")[0], "is not valid"),
        (lambda text: text.partition("p=")[0] + "p=", "is not valid"),
        (lambda text: text.partition("p=")[0] + "p=AAAA", "size"),
        (lambda text: text.replace("c=biws,", ""), "is not valid"),
        (lambda text: text.replace("c=biws", "c=bi\nws"), "base64"),
        (lambda text: text + ",x=1", "is not valid"),
        (lambda text: text + "\0", "is not valid"),
        (lambda text: text.replace(",p=", ",m=x,p="), "mandatory"),
        (lambda text: "", "is not valid"),
    ],
)
def test_a_tampered_proof_is_refused(change: Callable[[str], str], reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        challenged().finish(change(CLIENT_FINAL.decode()).encode())


def test_a_recorded_exchange_cannot_be_replayed() -> None:
    recorded = server()
    recorded.challenge(CLIENT_FIRST, lambda _: verifier())
    recorded.finish(CLIENT_FINAL)
    again = server(nonce="another")
    again.challenge(CLIENT_FIRST, lambda _: verifier())
    with pytest.raises(AuthenticationFailed, match="nonce"):
        again.finish(CLIENT_FINAL)


def test_the_doubled_nonce_of_an_older_librdkafka_is_accepted_and_must_be_proven() -> None:
    doubled = f"c=biws,r={CLIENT_NONCE}{NONCE}"
    signed = f"{CLIENT_FIRST.decode()[3:]},{SERVER_FIRST.decode()},{doubled}".encode()
    known = verifier()
    salted = salted_password(SCRAM_SHA_256, PASSWORD, salt=RFC_SALT, iterations=4096)
    key = client_key(SCRAM_SHA_256, salted)
    signature = hmac.digest(known.stored_key, signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    assert challenged().finish(f"{doubled},p={base64.b64encode(proof).decode()}".encode()).startswith(b"v=")
    with pytest.raises(AuthenticationFailed, match="wrong"):
        challenged().finish(CLIENT_FINAL.replace(NONCE.encode(), (CLIENT_NONCE + NONCE).encode()))
    for other in (SERVER_NONCE + NONCE, NONCE + NONCE, CLIENT_NONCE * 2 + NONCE):
        with pytest.raises(AuthenticationFailed, match="nonce"):
            challenged().finish(f"c=biws,r={other},p={base64.b64encode(proof).decode()}".encode())


@pytest.mark.parametrize("length", range(len(CLIENT_FINAL)))
def test_every_truncation_of_a_proof_is_refused(length: int) -> None:
    with pytest.raises(AuthenticationFailed):
        challenged().finish(CLIENT_FINAL[:length])


@pytest.mark.parametrize("at", range(len(CLIENT_FINAL)))
def test_every_flipped_bit_of_a_proof_is_refused(at: int) -> None:
    with pytest.raises(AuthenticationFailed):
        challenged().finish(CLIENT_FINAL[:at] + bytes([CLIENT_FINAL[at] ^ 1]) + CLIENT_FINAL[at + 1 :])


# ---- the client's trust


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={CLIENT_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),  # nothing of the server's in it
        SERVER_FIRST.replace(b"4096", b"1"),
        SERVER_FIRST.replace(b"4096", b"4095"),
        SERVER_FIRST.replace(b"4096", b"99999999"),
        SERVER_FIRST.replace(b"4096", b"-4096"),
        SERVER_FIRST.replace(b"4096", b"04096"),
        SERVER_FIRST + b",m=x",
        b"m=x," + SERVER_FIRST,
        SERVER_FIRST[:-7],
        b"",
        b"e=other-error",
    ],
)
def test_the_client_refuses_a_bad_challenge(challenge: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", PASSWORD, make_nonce=lambda: CLIENT_NONCE)
    with pytest.raises(AuthenticationFailed, match="the broker's"):
        client.prove(challenge)


@pytest.mark.parametrize(
    "final", [b"", b"v=", b"v=AAAA", b"e=unknown-user", SERVER_FINAL[:-2] + b"0=", b"x=1"]
)
def test_the_client_refuses_a_server_that_does_not_know_the_password(final: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", PASSWORD, make_nonce=lambda: CLIENT_NONCE)
    client.prove(SERVER_FIRST)
    with pytest.raises(AuthenticationFailed):
        client.check(final)


def test_the_client_refuses_a_signature_before_its_proof() -> None:
    with pytest.raises(AuthenticationFailed):
        ScramClient(SCRAM_SHA_256, "user", PASSWORD).check(b"v=AAAA")


# ---- any bytes


@given(st.binary(max_size=200))
def test_readers_refuse_any_bytes_with_a_value_error(data: bytes) -> None:
    for read in (read_client_first, read_server_first, read_client_final, read_server_final):
        with contextlib.suppress(ValueError):
            read(data)


@given(st.text(st.sampled_from("nyp,a=r2C3Dbc="), max_size=40))
def test_what_is_read_of_a_first_message_is_what_was_sent(text: str) -> None:
    try:
        found = read_client_first(text.encode())
    except ValueError:
        return
    assert found.gs2_header + found.bare == text
    assert found.bare.startswith(f"n={escape(found.user)},r={found.nonce}")


@given(st.text(max_size=50))
def test_names_travel_whole(name: str) -> None:
    assert unescape(escape(name)) == name
    assert "," not in escape(name)


def test_an_exchange_of_one_mechanism_proves_nothing_to_the_other() -> None:
    client, begun = ScramClient(SCRAM_SHA_256, "user", PASSWORD), ScramServer(SCRAM_SHA_512)
    proof = client.prove(begun.challenge(client.first(), lambda _: verifier(SCRAM_SHA_512)))
    with pytest.raises(AuthenticationFailed):
        begun.finish(proof)
