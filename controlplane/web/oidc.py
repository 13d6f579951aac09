"""The OpenID Connect provider: what it says of itself, and the exchange of a code for a person's checked claims.

State, nonce, PKCE and the exchange are mozilla-django-oidc's. Beyond it, an ID token must be for us, of this issuer and
of now (OpenID Connect Core 1.0, section 3.1.3.7), a person is found by issuer and subject, and every call is bounded in
time and size and follows no redirect.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jwt
import msgspec
import requests
import urllib3
from django.core.exceptions import ImproperlyConfigured
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from controlplane.core import oidc_people
from controlplane.core import oidc_rows as rows
from controlplane.core.models import User
from controlplane.core.security import address_of
from wire.messages import UNREADABLE
from wire.settings import base_url

CALLBACK = "web:oidc_callback"
_ANSWER_BYTES_MAX, _PIECE_BYTES = 1 << 20, 1 << 16
# Providers change keys often, which are fetched at each log-in, and addresses hardly ever.
_METADATA_KEPT_SECONDS = 3600
# Clocks of two servers differ by less.
_LEEWAY_SECONDS = 60
# Source: OpenID Connect Core 1.0, section 2: at most 255 characters.
_SUBJECT = re.compile(r"[^\x00-\x1f]{1,255}")


class NotTrusted(ValueError):
    """What the provider answered is not what it must be; the message says what."""


class Metadata(msgspec.Struct, frozen=True):
    """What the provider says of itself. Source: OpenID Connect Discovery 1.0, section 3."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    end_session_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


_kept: dict[str, tuple[float, Metadata]] = {}


def is_configured() -> bool:
    return bool(rows.ISSUER.read())


def metadata() -> Metadata:
    """Of the configured issuer, kept for an hour. Raises OSError where it is away, NotTrusted."""
    issuer = rows.ISSUER.read()
    read_at, found = _kept.get(issuer, (0.0, None))
    if found is None or time.monotonic() - read_at > _METADATA_KEPT_SECONDS:
        found = _checked(issuer, _fetched(_discovery(issuer)))
        _kept[issuer] = (time.monotonic(), found)
    return found


def asked_anew() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Its discovery document as it stands, checked, and its keys; nothing of it is kept. Raises as `metadata`."""
    issuer = rows.ISSUER.read()
    body = _fetched(_discovery(issuer))
    return _object(body, "its discovery document"), _keys(_checked(issuer, body))


def _discovery(issuer: str) -> str:
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration"


def _keys(found: Metadata) -> list[dict[str, Any]]:
    try:
        return msgspec.json.decode(_fetched(found.jwks_uri), type=_Keys).keys
    except UNREADABLE as error:
        raise NotTrusted(f"its keys: {error}") from error


def _fetched(url: str) -> bytes:
    return _called("GET", url).body


class _Answer(NamedTuple):
    content_type: str
    body: bytes


def _called(method: str, url: str, **sent: Any) -> _Answer:
    """One call, within HEADWORKS_OIDC_TIMEOUT_SECONDS. Raises OSError where nothing came in time, NotTrusted.

    No redirect is followed: it would take along what was sent, such as the client's secret.
    """
    timeout_seconds = rows.TIMEOUT_SECONDS.read()
    deadline, body = time.monotonic() + timeout_seconds, bytearray()
    try:
        with requests.request(
            method, url, stream=True, allow_redirects=False, timeout=timeout_seconds, verify=_certificates(), **sent
        ) as response:
            response.raise_for_status()
            if response.status_code != requests.codes.ok:
                raise NotTrusted(f"it answered {response.status_code}, where 200 is due")
            # By pieces: a socket's own timeout begins anew with each byte.
            while piece := response.raw.read1(_PIECE_BYTES, decode_content=True):
                body += piece
                if len(body) > _ANSWER_BYTES_MAX:
                    raise NotTrusted(f"it answered with more than {_ANSWER_BYTES_MAX} bytes")
                if time.monotonic() > deadline:
                    raise requests.Timeout(f"it did not answer within {timeout_seconds} s")
            return _Answer(response.headers.get("content-type", "").lower(), bytes(body))
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError("its answer broke off") from error


def _object(body: bytes, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except UNREADABLE as error:
        raise NotTrusted(f"{what}: {error}") from error


def _certificates() -> bool | str:
    file = rows.CA_FILE.read()
    return True if file is None else str(file)


def _checked(issuer: str, body: bytes) -> Metadata:
    try:
        found = msgspec.json.decode(body, type=Metadata)
    except UNREADABLE as error:
        raise NotTrusted(f"its discovery document: {error}") from error
    if found.issuer != issuer:
        raise NotTrusted("its discovery document names another issuer than HEADWORKS_OIDC_ISSUER")
    for url in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri, found.userinfo_endpoint):
        if url and not _is_as_safe(url, issuer):
            raise NotTrusted(
                "its discovery document names an address that is no http(s) one, or less safe than its own"
            )
    return found


def _is_as_safe(url: str, issuer: str) -> bool:
    try:
        base_url(url.partition("?")[0])
    except ValueError:
        return False
    return url.startswith("https:") or not issuer.startswith("https:")


def options(found: Metadata) -> dict[str, Any]:
    """mozilla-django-oidc's settings."""
    return {
        "OIDC_OP_AUTHORIZATION_ENDPOINT": found.authorization_endpoint,
        "OIDC_OP_TOKEN_ENDPOINT": found.token_endpoint,
        "OIDC_OP_USER_ENDPOINT": found.userinfo_endpoint,
        "OIDC_OP_JWKS_ENDPOINT": found.jwks_uri,
        "OIDC_RP_CLIENT_ID": rows.CLIENT_ID.read(),
        # Of None, nothing is sent.
        "OIDC_RP_CLIENT_SECRET": rows.CLIENT_SECRET.read() or None,
        # Makes it look for the provider's public key; which algorithms are taken is `get_payload_data`'s to say.
        "OIDC_RP_SIGN_ALGO": "RS256",
        "OIDC_RP_SCOPES": " ".join(rows.SCOPES.read()),
        "OIDC_USE_PKCE": True,
        "OIDC_AUTHENTICATION_CALLBACK_URL": CALLBACK,
    }


class Exchange(OIDCAuthenticationBackend):
    """One log-in: `authenticate(request, nonce=…, code_verifier=…)` gives the user, or None where there is no code.

    Raises Refused from `oidc_people.admit`; OSError, ValueError, KeyError, jwt.PyJWTError and SuspiciousOperation where
    the provider is away or its answer is not to be trusted.
    """

    def __init__(self, found: Metadata) -> None:
        self._metadata, self._options = found, options(found)
        super().__init__()

    def get_settings(self, attr: str, *default: Any) -> Any:
        return option(self._options, attr, *default)

    def get_token(self, payload: dict[str, Any]) -> dict[str, Any]:
        """What the provider gives for a code, asked for in the way that it takes the client's secret."""
        methods, basic = self._metadata.token_endpoint_auth_methods_supported, None
        if payload["client_secret"] and "client_secret_post" not in methods:
            basic = (payload["client_id"], payload.pop("client_secret"))
        answer = _called("POST", self._metadata.token_endpoint, data=payload, auth=basic)
        return _object(answer.body, "what it gave for the code")

    def get_userinfo(self, access_token: str, id_token: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """What it tells of the person, plain or signed."""
        headers = {"Authorization": f"Bearer {access_token}"}
        answer = _called("GET", self._metadata.userinfo_endpoint, headers=headers)
        if answer.content_type.startswith("application/jwt"):
            signed: dict[str, Any] = self.verify_token(answer.body.decode())
            return signed
        return _object(answer.body, "what it tells of the person")

    def retrieve_matching_jwk(self, token: str) -> jwt.PyJWK:
        """The one key that may have signed the token: a provider with one key need not name it."""
        header = jwt.get_unverified_header(token)
        fitting = [key for key in _keys(self._metadata) if _fits(key, header)]
        if len(fitting) != 1:
            raise NotTrusted(f"{len(fitting)} of its keys may have signed the ID token, where one must")
        return jwt.PyJWK(fitting[0], algorithm=header["alg"])

    def get_payload_data(self, token: str, key: Any) -> dict[str, Any]:
        """The claims of an ID token that the provider signed for us, not long ago."""
        client = rows.CLIENT_ID.read()
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(rows.ALGORITHMS_TAKEN.read()),
            audience=client,
            issuer=self._metadata.issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": ["iss", "sub", "aud", "exp", "iat"]},
        )
        if claims.get("azp", client) != client:
            raise NotTrusted("the ID token was made for another client")
        if not _SUBJECT.fullmatch(claims["sub"]):
            raise NotTrusted("the ID token names nobody: its subject must be 1 to 255 characters")
        return claims

    def get_or_create_user(self, access_token: str, id_token: str, payload: Mapping[str, Any]) -> User:
        more: Mapping[str, Any] = {}
        if self._metadata.userinfo_endpoint:
            more = self.get_userinfo(access_token, id_token, payload)
            if more.get("sub") != payload["sub"]:
                raise NotTrusted("it tells of another person than the one who logged in")
        return oidc_people.admit(self._metadata.issuer, {**more, **payload}, address_of(self.request))


class _Keys(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


def _fits(key: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    return (
        header.get("kid") in (None, key.get("kid"))
        and key.get("alg", header["alg"]) == header["alg"]
        and key.get("use", "sig") == "sig"
    )


def option(options: Mapping[str, Any], name: str, *default: Any) -> Any:
    """As mozilla-django-oidc reads Django's settings."""
    if name in options:
        return options[name]
    if default:
        return default[0]
    raise ImproperlyConfigured(f"mozilla-django-oidc asks for {name}, which is not set here")


def log_out_address(found: Metadata, back: str) -> str:
    """Where the person logs out at the provider too, or empty. Source: OpenID Connect RP-Initiated Logout 1.0."""
    if not found.end_session_endpoint or not _is_as_safe(found.end_session_endpoint, found.issuer):
        return ""
    query = urlencode({"client_id": rows.CLIENT_ID.read(), "post_logout_redirect_uri": back})
    return f"{found.end_session_endpoint}{'&' if '?' in found.end_session_endpoint else '?'}{query}"
