"""Who may call what: a table a router, tried for every role."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from ninja import Router

from controlplane.core.models import AuditEntry, Role
from tests.controlplane.conftest import Rest


class Call(NamedTuple):
    """A route and the least role that may call it."""

    method: str
    path: str
    needs: Role


def routes_of(router: Router) -> set[tuple[str, str]]:
    """(method, path) of everything that a router serves."""
    return {
        (method, path)
        for path, view in router.path_operations.items()
        for operation in view.operations
        for method in operation.methods
    }


def check_access(rest_of: Callable[[Role | None], Rest], call: Call) -> None:
    """Strangers get 401, lesser roles 403, the others reach the service; nothing of a refused write stays."""
    path = re.sub(r"{[a-z:_]+}", "1", call.path)
    assert rest_of(None).call(call.method, path).status_code == 401
    for role in Role:
        status = rest_of(role).call(call.method, path).status_code
        if role.covers(call.needs):
            assert status in {200, 404, 409, 422}, (role, status)
        else:
            assert status == 403, (role, status)
            assert not AuditEntry.objects.exists()
