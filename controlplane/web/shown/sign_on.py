"""Single sign-on as it is configured, what its provider says of itself when it is asked, and log-ins that failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple

import requests
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.core import oidc_rows as rows
from controlplane.core.errors import Conflict
from controlplane.core.models import User
from controlplane.web import oidc
from controlplane.web.models import SignOnFailure

FAILURES_KEPT, FAILURES_A_MINUTE = 50, 10
LOG_INS_SHOWN = 10
Verdict = Literal["good", "wait", "bad"]


class Finding(NamedTuple):
    """`verdict` wait: it works, or may, but is worth a look."""

    verdict: Verdict
    says: str


class Wanted(NamedTuple):
    """What the settings here need of a provider."""

    scopes: Sequence[str]
    algorithms: Sequence[str]
    claims: Sequence[str]
    has_secret: bool
    gives_roles: bool


def wanted() -> Wanted:
    claims = [rows.USERNAME_CLAIM.read(), rows.ROLE_CLAIM.read().partition(".")[0]]
    secret, roles = bool(rows.CLIENT_SECRET.read()), bool(rows.ROLES.read())
    return Wanted(rows.SCOPES.read(), rows.ALGORITHMS_TAKEN.read(), claims, secret, roles)


def check() -> list[Finding]:
    """Ask the provider now, and hold what it says against the settings. Raises Conflict where there is none."""
    if not oidc.is_configured():
        raise Conflict("no provider is configured: set HEADWORKS_OIDC_ISSUER", code="no_provider")
    address = f"{rows.ISSUER.read().rstrip('/')}/.well-known/openid-configuration"
    try:
        document, keys = oidc.asked_anew()
    except oidc.NotTrusted as error:
        return [Finding("bad", _("%(address)s cannot be used: %(why)s.") % {"address": address, "why": error})]
    except OSError as error:
        return [Finding("bad", why_away(address, error))]
    return [Finding("good", _("%(address)s was read.") % {"address": address}), *judged(document, keys, wanted())]


def why_away(address: str, error: OSError) -> str:
    """Why a provider could not be asked, and what would mend it."""
    response = getattr(error, "response", None)
    if isinstance(error, requests.exceptions.SSLError):
        said = _("The certificate of %(address)s is not trusted here. Give its authority's in HEADWORKS_OIDC_CA_FILE.")
    elif isinstance(error, requests.exceptions.Timeout):
        said = _("%(address)s did not answer in time. Is a firewall between?")
    elif response is not None:
        said = _("%(address)s answered %(status)s. HEADWORKS_OIDC_ISSUER must be the provider's issuer, path and all.")
    else:
        said = _("%(address)s cannot be reached: no such name, or nobody listens there.")
    return said % {"address": address, "status": getattr(response, "status_code", "")}


def judged(document: Mapping[str, Any], keys: Sequence[Mapping[str, Any]], need: Wanted) -> list[Finding]:
    """A discovery document and the provider's keys against what is needed here. Pure but for the reader's language."""
    return [
        *_exchange(document, need),
        *_listed(document, "scopes_supported", need.scopes, _("scopes")),
        *_listed(document, "claims_supported", need.claims, _("claims")),
        *_signing(document, keys, need),
        *(
            []
            if need.gives_roles
            else [Finding("bad", _("HEADWORKS_OIDC_ROLES is empty, so nobody gets a role here."))]
        ),
    ]


def _exchange(document: Mapping[str, Any], need: Wanted) -> Iterator[Finding]:
    if "code" in _texts(document, "response_types_supported"):
        yield Finding("good", _("It gives codes for a log-in."))
    else:
        yield Finding("bad", _("It gives no codes (response_types_supported), without which nobody logs in here."))
    methods = _texts(document, "code_challenge_methods_supported")
    if "S256" in methods:
        yield Finding("good", _("It checks PKCE (S256)."))
    else:
        yield Finding("wait", _("It does not say that it checks PKCE (S256); codes are protected by the secret alone."))
    ways = _texts(document, "token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    taken = {"client_secret_basic", "client_secret_post"} if need.has_secret else {"none"}
    if not taken & set(ways):
        said = _("It takes the client's secret as %(ways)s alone; here it is sent as %(taken)s.")
        yield Finding("bad", said % {"ways": ", ".join(ways), "taken": ", ".join(sorted(taken))})


def _listed(document: Mapping[str, Any], field: str, needed: Sequence[str], what: str) -> Iterator[Finding]:
    known = _texts(document, field)
    missing = [name for name in needed if name not in known]
    if known and missing:
        said = _("Among the %(what)s that it lists there is no %(names)s. It may give them all the same.")
        yield Finding("wait", said % {"what": what, "names": ", ".join(missing)})


def _signing(document: Mapping[str, Any], keys: Sequence[Mapping[str, Any]], need: Wanted) -> Iterator[Finding]:
    signs = _texts(document, "id_token_signing_alg_values_supported")
    if signs and not set(signs) & set(need.algorithms):
        said = _("It signs with %(signs)s, and none of these is in HEADWORKS_OIDC_ALGORITHMS.")
        yield Finding("bad", said % {"signs": ", ".join(signs)})
    good = [key for key in keys if key.get("use", "sig") == "sig" and key.get("alg", "") in ("", *need.algorithms)]
    if good:
        yield Finding("good", _("%(count)d of its keys sign what is taken here.") % {"count": len(good)})
    else:
        yield Finding("bad", _("None of its keys signs what is taken here (HEADWORKS_OIDC_ALGORITHMS)."))


def _texts(document: Mapping[str, Any], field: str) -> list[str]:
    found = document.get(field)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def note_failure(address: str, why: str) -> None:
    """Keep that a log-in by the provider failed. The newest are kept, and of a flood the first of each minute."""
    now = timezone.now()
    if SignOnFailure.objects.filter(at__gt=now - timedelta(minutes=1)).count() >= FAILURES_A_MINUTE:
        return
    SignOnFailure.objects.create(at=now, address=address, why=why)
    kept = SignOnFailure.objects.order_by("-pk").values_list("pk", flat=True)[:FAILURES_KEPT]
    SignOnFailure.objects.exclude(pk__in=list(kept)).delete()


def failures() -> QuerySet[SignOnFailure]:
    return SignOnFailure.objects.order_by("-pk")[:FAILURES_KEPT]


def last_log_ins() -> QuerySet[User]:
    """People of the provider, who logged in last first."""
    return User.objects.exclude(oidc_issuer=None).exclude(last_login=None).order_by("-last_login")[:LOG_INS_SHOWN]
