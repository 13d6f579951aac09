"""Settings of the log-in by an OpenID Connect provider. Without an issuer there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from wire.settings import Setting, base_url, comma_separated, path, whole_number
from wire.snapshot import Name

# Of JSON Web Algorithms (RFC 7518), those with a public key: the client's secret signs nothing.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_ROLES_FORM = (
    'give JSON such as {"llm-admins": {"role": "admin"}, "acme-ops": {"role": "operator", "tenants": ["acme"]}}'
)


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one value of the claim gives. `tenants`: only these; null: the whole fleet."""

    role: Literal["viewer", "operator", "admin"]
    tenants: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1, max_length=100)] | None = None


def roles(text: str) -> dict[str, Grant]:
    try:
        grants = msgspec.json.decode(text, type=dict[str, Grant])
    except msgspec.DecodeError as error:
        raise ValueError(f"{_ROLES_FORM} ({error})") from None
    for value, grant in grants.items():
        if grant.role == "admin" and grant.tenants is not None:
            raise ValueError(f"{value!r}: an admin is of the whole fleet; leave out `tenants`, or give another role")
    return grants


def scopes(text: str) -> tuple[str, ...]:
    parts = comma_separated(text)
    # Source: RFC 6749, section 3.3.
    if "openid" not in parts or not all(re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]+", part) for part in parts):
        raise ValueError("give scopes separated by commas, openid among them")
    return parts


def algorithms(text: str) -> tuple[str, ...]:
    parts = comma_separated(text)
    if not parts or not set(parts) <= set(ALGORITHMS):
        raise ValueError(f"give some of {', '.join(ALGORITHMS)}, separated by commas")
    return parts


ISSUER = Setting(
    "HEADWORKS_OIDC_ISSUER",
    "",
    "Address of the OpenID Connect provider, as its discovery document names it. Empty: people log in by passwords "
    "alone. Local users go on beside it.",
    base_url,
)
NAME = Setting("HEADWORKS_OIDC_NAME", "single sign-on", "What the button on the log-in page calls the provider.", str)
CLIENT_ID = Setting("HEADWORKS_OIDC_CLIENT_ID", "headworks", "The client that the provider knows us as.", str)
CLIENT_SECRET = Setting(
    "HEADWORKS_OIDC_CLIENT_SECRET",
    "",
    "The client's secret. Empty: a public client, which PKCE alone protects.",
    str,
    secret=True,
    in_file=True,
)
SCOPES: Setting[tuple[str, ...]] = Setting(
    "HEADWORKS_OIDC_SCOPES",
    ("openid", "profile"),
    "Scopes that are asked for, separated by commas; what the role claim needs belongs here.",
    scopes,
)
USERNAME_CLAIM = Setting(
    "HEADWORKS_OIDC_USERNAME_CLAIM",
    "preferred_username",
    "Claim that a new person's name here is made of. It never finds a person: issuer and subject do.",
    str,
)
ROLE_CLAIM = Setting(
    "HEADWORKS_OIDC_ROLE_CLAIM",
    "groups",
    "Claim whose values give the role; dots lead into objects, as in realm_access.roles.",
    str,
)
ROLES: Setting[dict[str, Grant]] = Setting(
    "HEADWORKS_OIDC_ROLES",
    {},
    "Value of the claim → role, and tenants that it is limited to, as JSON: "
    '{"llm-admins": {"role": "admin"}, "acme-ops": {"role": "operator", "tenants": ["acme"]}}. '
    "Whoever has no value that stands here is refused.",
    roles,
)
ALGORITHMS_TAKEN: Setting[tuple[str, ...]] = Setting(
    "HEADWORKS_OIDC_ALGORITHMS",
    ("RS256", "PS256", "ES256", "EdDSA"),
    "Signatures of ID tokens that are taken, separated by commas.",
    algorithms,
)
CA_FILE: Setting[Path | None] = Setting(
    "HEADWORKS_OIDC_CA_FILE",
    None,
    "Certificates (PEM) that the provider's TLS is checked with. Empty: those that come with Python's requests.",
    path,
)
TIMEOUT_SECONDS = Setting(
    "HEADWORKS_OIDC_TIMEOUT_SECONDS", 5, "How long one call to the provider may take.", whole_number(1, 60)
)
SESSION_MINUTES = Setting(
    "HEADWORKS_OIDC_SESSION_MINUTES",
    60,
    "How long a log-in by the provider holds; then the browser goes there again, and who was removed stays out.",
    whole_number(5, 30 * 24 * 60),
)
TOKEN_DAYS = Setting(
    "HEADWORKS_OIDC_TOKEN_DAYS",
    7,
    "API tokens of a person who has not logged in by the provider for so long rest until the next log-in.",
    whole_number(1, 365),
)

SETTINGS: tuple[Setting[object], ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Setting))
