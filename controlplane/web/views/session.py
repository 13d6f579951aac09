"""Log in, log out."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from controlplane.web.forms import LoginForm


class LogIn(LoginView):
    template_name = "web/login.html"
    form_class = LoginForm
    redirect_authenticated_user = True


@method_decorator([never_cache, require_POST], name="dispatch")
class LogOut(LogoutView):
    pass
