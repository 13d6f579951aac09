"""What Dash registers as routes, as Django's own addresses: log-in, roles and CSRF hold on them as on every page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from http import HTTPStatus
from typing import Any

from dash.exceptions import DependencyException, InvalidResourceError, PreventUpdate
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_http_methods

from controlplane.core.models import Role, User
from controlplane.web.live import not_of_whole_fleet
from dashboards.backend.adapters import answering

View = Callable[..., Any]


class BadCall(ValueError):
    """A body that calls no callback of the page."""


class DashRoutes:
    """Stands where Dash expects a server, and holds what it registers until Django asks for it."""

    def __init__(self) -> None:
        self._rules: list[tuple[str, View, Sequence[str]]] = []
        self._preparations: list[Callable[[], None]] = []
        self._preparing = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Django serves these routes: include their `urls`")

    def add(self, rule: str, view: View, methods: Sequence[str]) -> None:
        self._rules.append((rule, view, methods))

    def prepare_by(self, step: Callable[[], None]) -> None:
        """Do `step` before each answer. Dash's own does its work once."""
        self._preparations.append(step)

    def urls(self, prefix: str, needs: Role, below: str = "") -> list[URLPattern]:
        """Dash's routes below `prefix` as addresses relative to it, and there `below` a path, for people of at least
        the role `needs`.
        """
        return [
            path(below + _rule(rule.removeprefix(prefix)), self._django_view(view, methods, needs))
            for rule, view, methods in self._rules
        ]

    def prepare(self) -> None:
        with self._preparing:
            for step in self._preparations:
                step()

    def _django_view(self, view: View, methods: Sequence[str], needs: Role) -> Callable[..., HttpResponse]:
        """A plain view, which Django runs in a thread of the request: no callback holds up the event loop."""

        @require_http_methods(list(methods))
        @wraps(view)
        def answer(request: HttpRequest, **arguments: str) -> HttpResponse:
            user = request.user
            if not isinstance(user, User):
                return _text("Log in first.", HTTPStatus.UNAUTHORIZED)
            if not Role(user.role).covers(needs):
                return _text(f"This needs the role {needs.value}.", HTTPStatus.FORBIDDEN)
            if user.tenants is not None:
                return not_of_whole_fleet(user)
            with answering(request):
                return self._answered(view, arguments)

        return answer

    def _answered(self, view: View, arguments: dict[str, str]) -> HttpResponse:
        try:
            self.prepare()
            response = view(**arguments)
        except PreventUpdate:
            return HttpResponse(status=HTTPStatus.NO_CONTENT)
        except (InvalidResourceError, DependencyException):
            return _text("There is no such file.", HTTPStatus.NOT_FOUND)
        except BadCall as error:
            return _text(str(error), HTTPStatus.BAD_REQUEST)
        return response if isinstance(response, HttpResponse) else HttpResponse(response)


def _rule(text: str) -> str:
    """Dash writes rules as Flask does, whose converters are Django's but for the name of one."""
    return text.replace("<string:", "<str:")


def _text(message: str, status: HTTPStatus) -> HttpResponse:
    return HttpResponse(message, status=status, content_type="text/plain; charset=utf-8")
