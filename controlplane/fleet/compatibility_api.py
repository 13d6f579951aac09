"""REST of compatibility rules, and of what they have against the engines of a pool."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router

from controlplane.core.rest import add_noun
from controlplane.core.security import admin, viewer
from controlplane.fleet import compatibility
from controlplane.fleet.services import COMPATIBILITY_RULES
from wire.canonical import Document

router = Router()
add_noun(router, "/compatibility-rules", COMPATIBILITY_RULES, write=admin)


@router.get(
    "/pools/{name}/compatibility", auth=viewer, response=Document, tags=["compatibility-rules"],
    summary="Judge a pool's engines by the compatibility rules",
)  # fmt: skip
def judge_pool(request: HttpRequest, name: str) -> Document:
    """What is known of each of its engines, and what the rules have against those that take work.

    A finding is `broken`, or `unknown` where nobody told a fact that a rule asks for. `may_serve`: none stops.
    """
    return compatibility.of_pool(name)
