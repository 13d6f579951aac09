"""Log in, log out."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from controlplane.core import oidc_rows as rows
from controlplane.core.models import User
from controlplane.web import oidc
from controlplane.web.access import UNSENT, start_page
from controlplane.web.forms.common import LoginForm


class LogIn(LoginView):
    template_name = "web/login.html"
    form_class = LoginForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        context["unsent"] = UNSENT in self.request.GET
        if oidc.is_configured():
            context["provider"] = rows.NAME.read()
            context["provider_query"] = urlencode({"next": context["next"]})
        return context

    def get_default_redirect_url(self) -> str:
        user = self.request.user
        return start_page(user) if isinstance(user, User) else super().get_default_redirect_url()


@method_decorator([never_cache, require_POST], name="dispatch")
class LogOut(LogoutView):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        user = request.user
        response = super().post(request, *args, **kwargs)
        address = _log_out_address(request) if isinstance(user, User) and user.oidc_issuer else ""
        if not address:
            return response
        # A link, since the page's policy lets no form lead to another host.
        return render(request, "web/logged_out.html", {"provider": rows.NAME.read(), "log_out_address": address})


def _log_out_address(request: HttpRequest) -> str:
    if not oidc.is_configured():
        return ""
    try:
        return oidc.log_out_address(oidc.metadata(), request.build_absolute_uri(reverse("web:login")))
    except (OSError, oidc.NotTrusted):
        # It is away: the log-in here has ended all the same.
        return ""
