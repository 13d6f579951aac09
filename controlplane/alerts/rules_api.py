"""REST of alerting rules and their series."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router

from controlplane.alerts.services import rules
from controlplane.alerts.services.rules import RULES
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.rest import After, Limit, Page, add_noun
from controlplane.core.security import operator, viewer

router = Router()
add_noun(router, "/rules", RULES, write=operator, show=rules.shown)


@router.get("/rules/{name}/series", auth=viewer, response=Page, tags=["rules"], summary="List a rule's series")
def list_series(request: HttpRequest, name: str, limit: Limit = PAGE_ROWS, after: After = 0) -> Page:
    """Those that are pending or fire, as the last evaluation left them, the one that came first first."""
    found, following = rules.page_series(name, limit, after)
    return Page(items=[rules.describe_series(series) for series in found], next=following)
