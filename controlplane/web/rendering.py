"""What every page has around its content."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.core.models import Role, User
from controlplane.fleet.models import Gpu, Node


def render_page(
    request: HttpRequest, template: str, context: Mapping[str, Any], *, status: int = HTTPStatus.OK
) -> HttpResponse:
    """Render a page with its frame: what the person may do, and whether any of the fleet is simulated."""
    role = Role(request.user.role) if isinstance(request.user, User) else None
    frame = {
        "role": role,
        "may_operate": role is not None and role.covers(Role.OPERATOR),
        "may_admin": role is not None and role.covers(Role.ADMIN),
        "simulated": role is not None
        and (Node.objects.filter(simulated=True).exists() or Gpu.objects.filter(simulated=True).exists()),
    }
    return render(request, template, {**frame, **context}, status=int(status))
