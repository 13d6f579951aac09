"""Log in by the OpenID provider: there, and back with a code."""

from __future__ import annotations

import logging
import re
import time
from http import HTTPStatus
from typing import Any

import jwt
from django.contrib.auth import login
from django.core.exceptions import SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from mozilla_django_oidc.views import OIDCAuthenticationRequestView

from controlplane.core import oidc_rows as rows
from controlplane.core.errors import Refused
from controlplane.core.models import User
from controlplane.core.security import address_of
from controlplane.web import oidc
from controlplane.web.access import start_page
from controlplane.web.shown.sign_on import note_failure

log = logging.getLogger(__name__)

# As long as a person may take to log in at the provider.
_STATE_SECONDS = 600
_STATES, _NEXT = "oidc_states", "oidc_login_next"
# Finds the person of a session again; the log-in itself has happened elsewhere.
_BACKEND = "django.contrib.auth.backends.ModelBackend"
_TROUBLE = (OSError, ValueError, KeyError, TypeError, RecursionError, jwt.PyJWTError, SuspiciousOperation)
_WHY_CHARACTERS_MAX = 300
_ERROR_CODE = re.compile(r"[a-z_]{1,64}")


class _Begin(OIDCAuthenticationRequestView):
    """Leads to the provider with a state, a nonce and a challenge that the session keeps."""

    def __init__(self, found: oidc.Metadata) -> None:
        self._options = oidc.options(found)
        super().__init__()

    def get_settings(self, attr: str, *default: Any) -> Any:
        return oidc.option(self._options, attr, *default)


@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponse:
    if not oidc.is_configured():
        raise Http404
    if isinstance(request.user, User):
        return redirect(start_page(request.user))
    try:
        found = oidc.metadata()
    except _TROUBLE as error:
        return _trouble(request, error)
    request.session.set_expiry(_STATE_SECONDS)
    response: HttpResponse = _Begin(found).get(request)
    return response


@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    if not oidc.is_configured():
        raise Http404
    begun = _taken_state(request)
    # Some providers leave out the state here, and nothing but a page comes of it.
    if "error" in request.GET:
        return _refused(
            request,
            HTTPStatus.FORBIDDEN,
            _denied(request.GET["error"]),
            f"it let nobody in: {_code(request.GET['error'])}",
        )
    if begun is None:
        return _refused(
            request,
            HTTPStatus.BAD_REQUEST,
            _(
                "This log-in was not begun in this browser, was finished already, or took longer than ten minutes. "
                "Begin again."
            ),
            "begun in another browser, finished already, or longer ago than ten minutes",
        )
    try:
        user = oidc.Exchange(oidc.metadata()).authenticate(request, **begun)
    except Refused as refused:
        return _refused(request, HTTPStatus(refused.status), _why(refused), refused.detail)
    except _TROUBLE as error:
        return _trouble(request, error)
    if user is None:
        return _refused(
            request, HTTPStatus.BAD_REQUEST, _("The provider sent no code. Begin again."), "the provider sent no code"
        )
    following = request.session.get(_NEXT)
    login(request, user, backend=_BACKEND)
    for name in (_STATES, _NEXT):
        request.session.pop(name, None)
    return redirect(following or start_page(user))


def _taken_state(request: HttpRequest) -> dict[str, Any] | None:
    """What the session kept for this answer, once: the nonce and PKCE's verifier."""
    states = request.session.get(_STATES)
    begun = states.pop(request.GET.get("state"), None) if isinstance(states, dict) else None
    if begun is None:
        return None
    request.session.modified = True
    # Kept before the provider is asked, which takes time in which the same answer could come again.
    request.session.save()
    if time.time() - begun["added_on"] > _STATE_SECONDS:
        return None
    return {"nonce": begun["nonce"], "code_verifier": begun["code_verifier"]}


def _denied(error: str) -> str:
    detail = _("%(name)s did not let you in (%(error)s). Ask whoever runs it, or log in with a password.")
    return detail % {"name": rows.NAME.read(), "error": _code(error)}


def _code(error: str) -> str:
    return error if _ERROR_CODE.fullmatch(error) else "?"


def _why(refused: Refused) -> str:
    if refused.code == "no_role":
        detail = _(
            "%(name)s knows you, but none of your values of “%(claim)s” there gives a role here "
            "(HEADWORKS_OIDC_ROLES). Ask whoever runs it for a group that does."
        )
        return detail % {"name": rows.NAME.read(), "claim": rows.ROLE_CLAIM.read()}
    if refused.code == "deactivated":
        return _("An admin here has ended your access. Ask one to open it again.")
    return refused.detail


def _trouble(request: HttpRequest, error: Exception) -> HttpResponse:
    # Neither page nor log say more than the kind: an answer's text may hold what is nobody else's business.
    status = getattr(getattr(error, "response", None), "status_code", None)
    said = str(error) if isinstance(error, oidc.NotTrusted) else type(error).__name__
    kind = f"{said}{f', HTTP {status}' if status else ''}"
    log.warning("log-in by the OpenID provider failed: %s", kind)
    if isinstance(error, OSError) and status is None:
        detail = _("%(name)s cannot be reached now. Try again in a moment, or log in with a password.")
        return _refused(request, HTTPStatus.SERVICE_UNAVAILABLE, detail % {"name": rows.NAME.read()}, kind)
    detail = _(
        "What %(name)s answered cannot be used (%(why)s). Try again; if it stays so, whoever runs this finds more in "
        "the log. Meanwhile, log in with a password."
    )
    shown = {"name": rows.NAME.read(), "why": said}
    return _refused(request, HTTPStatus.BAD_GATEWAY, detail % shown, kind)


def _refused(request: HttpRequest, status: HTTPStatus, detail: str, why: str) -> HttpResponse:
    """The page that says so to the person; `why` is for those who administer."""
    note_failure(address_of(request), why[:_WHY_CHARACTERS_MAX])
    return render(request, "web/log_in_refused.html", {"detail": detail}, status=status)
