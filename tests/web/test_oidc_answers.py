"""What a provider's answers may not do: its keys, its ID tokens, what it says of itself and of people."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client

from controlplane.core.models import User
from controlplane.web import oidc

ISSUER = "https://id.example"


@pytest.fixture
def configured(db: None, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HEADWORKS_OIDC_ISSUER", ISSUER)
    return ISSUER


@pytest.fixture
def exchange(configured: str) -> oidc.Exchange:
    """A log-in by a provider of which nothing need run."""
    return oidc.Exchange(oidc.Metadata(ISSUER, f"{ISSUER}/in", f"{ISSUER}/token", f"{ISSUER}/keys"))


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def id_token(issuer: str, algorithm: str = "RS256", key: Any = KEY, **claims: Any) -> str:
    now = int(time.time())
    whole = {"iss": issuer, "sub": "grace", "aud": "headworks", "iat": now, "exp": now + 60, "nonce": "n", **claims}
    return jwt.encode({name: value for name, value in whole.items() if value is not None}, key, algorithm)


def test_an_id_token_that_is_right_is_taken(configured: str, exchange: oidc.Exchange) -> None:
    assert exchange.get_payload_data(id_token(configured), KEY.public_key())["sub"] == "grace"


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "another-client"},
        {"aud": ["headworks", "other"], "azp": "other"},
        {"iss": "https://elsewhere.example"},
        {"exp": 1_000},
        {"iat": 4_000_000_000},
        {"sub": None},
        {"exp": None},
        {"aud": None},
        {"iss": None},
        {"algorithm": "HS256", "key": "the secret that the client shares with it"},
        {"algorithm": "none", "key": None},
        {"algorithm": "RS512"},
        {"key": rsa.generate_private_key(public_exponent=65537, key_size=2048)},
    ],
    ids="-".join,
)
def test_one_that_is_not_for_us_of_this_issuer_and_of_now_is_refused(
    configured: str, exchange: oidc.Exchange, wrong: dict[str, Any]
) -> None:
    with pytest.raises((jwt.PyJWTError, ValueError, TypeError)):
        exchange.get_payload_data(id_token(configured, **wrong), KEY.public_key())


def keys(monkeypatch: pytest.MonkeyPatch, *keys: dict[str, Any]) -> None:
    public = {"kty": "RSA", "n": "u1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0g", "e": "AQAB"}
    body = json.dumps({"keys": [{**public, **key} for key in keys]}).encode()
    monkeypatch.setattr(oidc, "_fetched", lambda url: body)


@pytest.mark.parametrize(
    ("among", "named"),
    [
        ([{}], None),
        ([{"kid": "a"}], None),
        ([{"kid": "b"}, {"kid": "a"}], "a"),
        ([{"kid": "a", "use": "enc"}, {"kid": "a", "use": "sig"}], "a"),
        ([{"kid": "a", "alg": "RS512"}, {"kid": "a", "alg": "RS256"}], "a"),
    ],
)
def test_the_one_key_that_may_have_signed_is_found(
    configured: str, exchange: oidc.Exchange, monkeypatch: pytest.MonkeyPatch, among: list[Any], named: str | None
) -> None:
    keys(monkeypatch, *among)
    found = exchange.retrieve_matching_jwk(signed_by(configured, named))
    assert found.key_id in (named, among[0].get("kid"))


@pytest.mark.parametrize(
    ("among", "named"),
    [([], None), ([{"kid": "a"}, {"kid": "b"}], None), ([{"kid": "a"}], "b"), ([{}], "a"), ([{"use": "enc"}], None)],
)
def test_where_none_or_several_may_have_signed_no_key_is_taken(
    configured: str, exchange: oidc.Exchange, monkeypatch: pytest.MonkeyPatch, among: list[Any], named: str | None
) -> None:
    keys(monkeypatch, *among)
    with pytest.raises(oidc.NotTrusted, match="where one must"):
        exchange.retrieve_matching_jwk(signed_by(configured, named))


def signed_by(issuer: str, named: str | None) -> str:
    return jwt.encode({"iss": issuer}, KEY, "RS256", headers=None if named is None else {"kid": named})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"issuer": "ISSUER"}',
        b'{"issuer": "ISSUER", "authorization_endpoint": "javascript:x", "token_endpoint": "", "jwks_uri": ""}',
    ],
)
def test_a_discovery_document_that_is_none_is_a_page_that_says_so(
    configured: str, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(oidc, "_kept", {})
    monkeypatch.setattr(oidc, "_fetched", lambda url: body.replace(b"ISSUER", configured.encode()))
    answer = Client().get("/log-in/provider/")
    assert answer.status_code == 502
    assert "its discovery document" in answer.content.decode()


def test_an_endpoint_is_as_safe_as_its_issuer() -> None:
    endpoints = {"token_endpoint": "http://id.example/token", "jwks_uri": "https://id.example/keys"}
    body = {"issuer": "https://id.example", "authorization_endpoint": "https://id.example/in", **endpoints}
    with pytest.raises(oidc.NotTrusted, match="less safe"):
        oidc._checked("https://id.example", json.dumps(body).encode())


def test_what_is_told_of_another_person_than_logged_in_is_refused(
    configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWORKS_OIDC_ROLES", '{"boss": {"role": "admin"}}')
    found = oidc.Metadata(ISSUER, f"{ISSUER}/in", f"{ISSUER}/token", f"{ISSUER}/keys", f"{ISSUER}/userinfo")
    exchange = oidc.Exchange(found)
    monkeypatch.setattr(exchange, "get_userinfo", lambda *_: {"sub": "boss", "groups": ["boss"]})
    with pytest.raises(oidc.NotTrusted):
        exchange.get_or_create_user("", "", {"sub": "grace"})
    assert not User.objects.exists()
