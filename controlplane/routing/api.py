"""REST of routes, and the tester."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Body, Router

from controlplane.core.fields import ShownAs
from controlplane.core.rest import add_noun
from controlplane.core.security import operator, viewer
from controlplane.routing import tester
from controlplane.routing.asked import Question
from controlplane.routing.services import ROUTES
from wire.canonical import Document

router = Router()
RequestBody = Annotated[dict[str, Any], ShownAs(Question), Body()]


@router.post("/routes/test", auth=viewer, response=dict[str, Any], tags=["routes"], summary="Where would a request go?")
def test_route(request: HttpRequest, body: RequestBody) -> Document:
    """Every rule in order with why it did not match, and the pools of the one that did. Changes nothing.

    Given by sizes, or whole as `request`; `routes` are tried instead of the stored ones.
    """
    return tester.explain(body)


# After the tester, whose path would be taken for a route's name.
add_noun(router, "/routes", ROUTES, write=operator)
