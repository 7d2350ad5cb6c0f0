"""JSON Web Tokens: which are accepted, and everything that an attacker may send instead."""

from __future__ import annotations

import asyncio
import json
import warnings
from dataclasses import replace
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey
from tests.issuer import AUDIENCE, ISSUER, TokenIssuer, ec_key, forged, rsa_key, sign

from tailrace.model.session import Principal
from tailrace.security import AuthenticationFailed, Secret
from tailrace.security.oauth.config import OauthConfig
from tailrace.security.oauth.issuer import Issuer
from tailrace.security.oauth.jwt import SKEW_S, TOKEN_BYTES_MAX

NOW = 1_800_000_000.0
CONFIG = OauthConfig(issuer=ISSUER, audience=AUDIENCE, jwks="https://issuer.example/keys")
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW + 60}


def check(token: str, config: OauthConfig = CONFIG, source: TokenIssuer | None = None) -> Any:
    async def main() -> Any:
        async def load() -> bytes:
            return (source or TokenIssuer()).document()

        made = Issuer(config, now_ms=lambda: int(NOW * 1000), monotonic=lambda: 0.0, load=load)
        try:
            return await made.check(Secret(token))
        finally:
            await made.close()

    return asyncio.run(main())


def refused(token: str, said: str, config: OauthConfig = CONFIG, source: TokenIssuer | None = None) -> None:
    with pytest.raises(AuthenticationFailed, match=said) as raised:
        check(token, config, source)
    assert "alice" not in str(raised.value) and token[:30] not in str(raised.value)


def token(**given: Any) -> str:
    return TokenIssuer().token(**{"now": NOW, **given})


# ---- accepted


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
def test_a_token_of_the_issuer_is_accepted_until_its_end(algorithm: str) -> None:
    found = check(token(algorithm=algorithm, exp=NOW + 60))
    assert found.principal == Principal("User", "alice")
    assert (found.mechanism, found.expires_at_ms) == ("OAUTHBEARER", int((NOW + 60) * 1000))
    assert found.scope is None


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": [AUDIENCE]},
        {"aud": ["another", AUDIENCE]},
        {"nbf": None, "iat": None},
        {"nbf": NOW + SKEW_S, "iat": NOW + SKEW_S},
        {"exp": NOW + 0.5},
        {"scope": "anything", "nested": {"a": [1]}},
    ],
)
def test_what_else_is_accepted(claims: dict[str, Any]) -> None:
    assert check(token(**claims)).principal.name == "alice"


def test_another_claim_may_name_the_principal() -> None:
    config = replace(CONFIG, principal_claim="client_id")
    assert check(token(client_id="shop"), config).principal.name == "shop"
    refused(token(), "client_id names no principal", config)


def test_a_token_without_a_kid_is_checked_by_the_only_key() -> None:
    one = TokenIssuer()
    one.keys = [rsa_key()]
    assert check(one.token(now=NOW, header={"kid": None}), source=one).principal.name == "alice"
    refused(token(header={"kid": None}), "none of the issuer's")


# ---- refused: the signature


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
def test_alg_none_is_refused(name: str) -> None:
    for signature in (b"", b"x" * 256):
        refused(forged({"alg": name, "kid": "rsa-0"}, CLAIMS, signature), "algorithm|signed JSON Web Token")


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_shared_secret_made_of_the_public_key_is_refused(algorithm: str) -> None:
    public = rsa_key().as_pem(private=False)
    for secret in (public, public.strip(), json.dumps(rsa_key().as_dict(private=False)).encode()):
        try:
            key = OctKey.import_key(secret)
        except ValueError:  # joserfc itself refuses to make such a secret of a public key
            continue
        made = sign({"alg": algorithm, "kid": "rsa-0"}, json.dumps(CLAIMS).encode(), key)
        refused(made, "its algorithm is none of RS256, PS256, ES256")
    import hashlib
    import hmac

    body = forged({"alg": algorithm, "kid": "rsa-0"}, CLAIMS, b"").rpartition(".")[0]
    digest = hmac.digest(public, body.encode(), getattr(hashlib, f"sha{algorithm[2:]}"))
    refused(forged({"alg": algorithm, "kid": "rsa-0"}, CLAIMS, digest), "its algorithm is none of")


@pytest.mark.parametrize(
    "algorithm", ["RS384", "RS512", "PS512", "ES384", "ES512", "EdDSA", "ES256K", 256, None, ["RS256"]]
)
def test_other_algorithms_are_refused(algorithm: object) -> None:
    refused(forged({"alg": algorithm, "kid": "rsa-0"}, CLAIMS, b"x" * 256), "its algorithm is none of")


def test_an_algorithm_that_the_listener_does_not_allow_is_refused() -> None:
    refused(token(algorithm="ES256"), "none of RS256", replace(CONFIG, algorithms=("RS256",)))


def test_a_key_of_another_issuer_is_refused() -> None:
    stranger = RSAKey.generate_key(2048, {"kid": "rsa-0"})  # who has taken the name of the right key
    refused(token(key=stranger), "its signature is wrong")
    refused(token(key=rsa_key(), header={"kid": "ec-0"}), "none of the issuer's")
    refused(token(algorithm="ES256", key=ECKey.generate_key("P-256", {"kid": "ec-0"})), "signature is wrong")
    refused(token(key=rsa_key(), header={"kid": "other"}), "none of the issuer's")


def test_headers_that_bring_a_key_are_ignored() -> None:
    stranger = RSAKey.generate_key(2048, {"kid": "rsa-0"})
    public = stranger.as_dict(private=False)
    for header in (
        {"jwk": public},
        {"jku": "https://evil.example/keys"},
        {"x5u": "https://evil.example/cert"},
        {"x5c": ["MIIB"]},
    ):
        refused(token(key=stranger, header=header), "its signature is wrong")
        refused(token(key=stranger, header={**header, "kid": None}), "none of the issuer's")


def test_critical_headers_are_refused() -> None:
    refused(
        forged({"alg": "RS256", "kid": "rsa-0", "crit": ["exp"], "exp": 1}, CLAIMS, b"x" * 256), "critical"
    )
    refused(
        forged({"alg": "RS256", "kid": "rsa-0", "crit": ["b64"], "b64": False}, CLAIMS, b"x" * 256),
        "critical",
    )


def test_a_token_that_was_changed_is_refused() -> None:
    header, payload, signature = token().split(".")
    other = forged({"alg": "RS256"}, {**CLAIMS, "sub": "admin"}, b"x").split(".")[1]
    refused(f"{header}.{other}.{signature}", "its signature is wrong")
    refused(f"{header}.{payload}.{signature[:-4]}", "its signature is wrong")
    refused(f"{header}.{payload}.{'A' * len(signature)}", "its signature is wrong")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "a.b",
        "a.b.c.d",
        "..",
        "e30.e30.e30",
        "eyJhbGciOiJSUzI1NiJ9..",
        " ",
        "\0",
        "é.é.é",
        "-.-.-",
        "__.__.__",
    ],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(AuthenticationFailed):
        check(text)


def test_encrypted_and_endless_tokens_are_refused() -> None:
    refused(token() + ".x.y", "not a signed JSON Web Token")
    refused(token(padding="x" * TOKEN_BYTES_MAX), "not a signed JSON Web Token")
    refused(forged({"alg": "RS256", "kid": 7}, CLAIMS, b"xxxx"), "kid is no text")
    deep = "[" * 5000 + "]" * 5000
    refused(sign({"alg": "RS256", "kid": "rsa-0"}, deep.encode(), rsa_key()), "no JSON object")
    refused(sign({"alg": "RS256", "kid": "rsa-0"}, b"[1]", rsa_key()), "no JSON object")


# ---- refused: the claims


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": NOW}, "expired 0 s ago"),
        ({"exp": NOW - 90}, "expired 90 s ago"),
        ({"exp": None}, "has no end"),
        ({"exp": "tomorrow"}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"exp": 1e300}, "exp is no time"),
        ({"exp": float("inf")}, "exp is no time"),
        ({"exp": float("nan")}, "exp is no time"),
        ({"exp": [NOW + 60]}, "exp is no time"),
        ({"nbf": NOW + SKEW_S + 1}, "not valid yet"),
        ({"nbf": "x"}, "nbf is no time"),
        ({"iat": NOW + SKEW_S + 1}, "issued in the future"),
        ({"iss": "https://issuer.example/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"aud": None}, "another audience"),
        ({"aud": "Tailrace"}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": [[AUDIENCE]]}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"aud": f"{AUDIENCE} other"}, "another audience"),
        ({"sub": None}, "sub names no principal"),
        ({"sub": ""}, "sub names no principal"),
        ({"sub": 7}, "sub names no principal"),
        ({"sub": "ANONYMOUS"}, "sub names no principal"),
        ({"sub": "token"}, "sub names no principal"),
        ({"sub": "a b"}, "sub names no principal"),
        ({"sub": "a\nb"}, "sub names no principal"),
        ({"sub": "x" * 257}, "sub names no principal"),
    ],
)
def test_claims_that_are_not_ours_are_refused(claims: dict[str, Any], said: str) -> None:
    refused(token(**claims), said)


def test_a_token_that_lasts_for_ever_ends_after_a_year() -> None:
    found = check(token(exp=NOW + 10**10))
    assert found.expires_at_ms == int((NOW + 366 * 86_400) * 1000)


def test_a_token_that_was_accepted_is_not_accepted_after_its_end() -> None:
    async def main() -> None:
        now = [NOW]

        async def load() -> bytes:
            return TokenIssuer().document()

        made = Issuer(CONFIG, now_ms=lambda: int(now[0] * 1000), monotonic=lambda: 0.0, load=load)
        text = Secret(token(exp=NOW + 10))
        assert (await made.check(text)) is (await made.check(text))  # remembered
        now[0] = NOW + 10
        with pytest.raises(AuthenticationFailed, match="expired"):
            await made.check(text)
        await made.close()

    asyncio.run(main())


def test_the_keys_of_other_kinds_are_not_used() -> None:
    assert ec_key().kid == "ec-0"
    weak = TokenIssuer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weak.keys = [RSAKey.generate_key(1024, {"kid": "weak"})]
        made = weak.token(now=NOW, key=weak.keys[0])
    refused(made, "keys of its issuer are not known", source=weak)
