"""Secrets, PLAIN messages, password rules, verifiers, and how long failures wait: each rule by itself."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import BrokerError
from tailrace.security.guessing import DELAY_S_MAX, DELAY_S_MIN, Guessing
from tailrace.security.password import check_password, check_user_name, generate_password
from tailrace.security.sasl.plain import read_plain, write_plain
from tailrace.security.secret import Secret
from tailrace.security.verifier import (
    ITERATIONS,
    SALT_BYTES,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Verifier,
    check_parameters,
    make_verifiers,
    proves,
)

TEXT = "open-sesame-42"


# ---- secrets


def test_a_secret_shows_itself_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(TEXT)
    logging.getLogger("test").warning("%s %r", secret, [secret])
    try:
        raise RuntimeError(f"{secret} {secret!r} {secret:>20} {[secret]} {secret!s}")
    except RuntimeError:
        shown = traceback.format_exc()
    assert TEXT not in shown + caplog.text + str(vars(type(secret)))
    assert "<secret>" in shown and "<secret>" in caplog.text
    assert secret.reveal() == TEXT


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_secret_is_not_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps({"password": Secret(TEXT)}, protocol)


def test_secrets_are_equal_by_their_texts_and_are_copied_as_they_are() -> None:
    secret = Secret(TEXT)
    assert secret == Secret(TEXT)
    assert secret != Secret("other") and secret != TEXT
    assert copy.copy(secret) is secret and copy.deepcopy([secret])[0] is secret
    with pytest.raises(TypeError):
        hash(secret)


# ---- PLAIN


@pytest.mark.parametrize("data", [b"\0alice\0pw", b"alice\0alice\0pw"])
def test_plain_is_read(data: bytes) -> None:
    assert read_plain(data) == ("alice", Secret("pw"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"alice",
        b"alice\0pw",
        b"\0alice\0",
        b"\0\0pw",
        b"\0alice\0pw\0",
        b"\0alice\0pw\0more",
        b"admin\0alice\0pw",
        b"\0\xff\0pw",
        b"\0alice\0" + b"x" * 4096,
    ],
)
def test_plain_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"it|authzid") as raised:
        read_plain(data)
    assert "alice" not in str(raised.value)


@given(st.binary(max_size=60))
def test_plain_is_read_as_it_was_written_or_refused(data: bytes) -> None:
    try:
        user, password = read_plain(data)
    except ValueError:
        return
    assert data.partition(b"\0")[2] == write_plain(user, password)[1:]


# ---- passwords


@pytest.mark.parametrize(
    "text",
    ["", "short12", "x" * 257, "password", "PassWord", "12345678", "aaaaaaaaaaaa", "user-name", "tab\there1"],
)
def test_passwords_that_are_refused(text: str) -> None:
    with pytest.raises(BrokerError) as raised:
        check_password(Secret(text), user="user-name")
    assert raised.value.code.name == "UNACCEPTABLE_CREDENTIAL"
    assert len(text) < 9 or text not in str(raised.value)


@pytest.mark.parametrize("text", ["8letters", "x y z 1 2", "Grüße-aus-Köln", "ab" * 128])
def test_passwords_that_are_accepted(text: str) -> None:
    check_password(Secret(text), user="user-name")


def test_generated_passwords_differ_and_are_accepted() -> None:
    made = {generate_password().reveal() for _ in range(100)}
    assert len(made) == 100
    for each in made:
        check_password(Secret(each), user="u")


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\nb", "token", "ANONYMOUS", "x" * 129, "\0"])
def test_names_that_no_user_has(name: str) -> None:
    with pytest.raises(BrokerError):
        check_user_name(name)


@pytest.mark.parametrize("name", ["alice", "a,b=c", "svc@example.com", "Zoë", "x" * 128])
def test_names_that_users_have(name: str) -> None:
    check_user_name(name)


# ---- verifiers


def test_verifiers_of_a_password_are_salted_apart_and_prove_it() -> None:
    made, again = make_verifiers(Secret(TEXT)), make_verifiers(Secret(TEXT))
    assert sorted(made) == [SCRAM_SHA_256, SCRAM_SHA_512]
    salts = {each.salt for each in (*made.values(), *again.values())}
    assert len(salts) == 4 and {len(each) for each in salts} == {SALT_BYTES}
    for each in made.values():
        assert each.iterations == ITERATIONS == 16_384
        assert proves(Secret(TEXT), each)
        assert not proves(Secret(TEXT + "x"), each)
        assert each.stored_key.hex() not in repr(each) and repr(each.stored_key) not in repr(each)


@pytest.mark.parametrize(
    ("iterations", "accepted"), [(4095, False), (4096, True), (16384, True), (16385, False)]
)
def test_bounds_of_iterations(iterations: int, accepted: bool) -> None:
    if accepted:
        check_parameters(b"12345678", iterations)
    else:
        with pytest.raises(ValueError, match="iterations must be 4096 to 16384"):
            check_parameters(b"12345678", iterations)


@pytest.mark.parametrize("salt", [b"", b"1234567", b"x" * 65])
def test_salts_that_are_refused(salt: bytes) -> None:
    with pytest.raises(ValueError, match="a salt has"):
        check_parameters(salt, 4096)


def test_keys_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Verifier(mechanism=SCRAM_SHA_256, salt=b"12345678", iterations=4096, stored_key=b"x", server_key=b"y")


# ---- how long failures wait


def test_failures_wait_longer_and_longer_up_to_a_bound() -> None:
    guessing = Guessing()
    waits = [guessing.failed(host="10.0.0.1", user="alice", now=0.0) for _ in range(30)]
    assert waits[0] == DELAY_S_MIN
    assert waits == sorted(waits)
    assert waits[5] > waits[2]
    assert waits[-1] == DELAY_S_MAX


def test_another_address_that_guesses_at_the_same_user_waits_too() -> None:
    guessing = Guessing()
    for number in range(20):
        guessing.failed(host=f"10.0.0.{number}", user="alice", now=0.0)
    assert guessing.failed(host="10.1.1.1", user="alice", now=0.0) == DELAY_S_MAX
    assert guessing.failed(host="10.1.1.2", user="bob", now=0.0) == DELAY_S_MIN


def test_one_address_that_guesses_at_many_users_waits_too() -> None:
    guessing = Guessing()
    for number in range(20):
        guessing.failed(host="10.0.0.1", user=f"user-{number}", now=0.0)
    assert guessing.failed(host="10.0.0.1", user="another", now=0.0) == DELAY_S_MAX


def test_failures_are_forgotten_with_time() -> None:
    guessing = Guessing()
    for _ in range(40):
        guessing.failed(host="10.0.0.1", user="alice", now=0.0)
    assert guessing.failed(host="10.0.0.1", user="alice", now=3600.0) == DELAY_S_MIN


def test_what_is_remembered_of_failures_is_bounded() -> None:
    guessing = Guessing(remembered_max=10)
    for number in range(100):
        guessing.failed(host=f"host-{number}", user=f"user-{number}", now=0.0)
    assert len(guessing) == 10
