"""REST of what charts mark: what happened to the fleet in a time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Router, Schema
from pydantic import Field

from controlplane.core import fields as f
from controlplane.core.rest import Filter
from controlplane.core.security import viewer
from controlplane.web.shown import marks
from wire.canonical import Document
from wire.problems import Problem

router = Router(tags=["marks"])
_SPAN_MAX_DAYS = 366


class Asked(Schema):
    """`from` is a word of Python."""

    first: f.Moment = Field(alias="from", description="ISO 8601 with a zone, such as 2030-01-31T12:00:00Z.")
    last: f.Moment | None = Field(None, alias="to", description="Marks up to this moment; without it up to now.")
    kind: Literal["revision", "cordon", "incident", "rollout", ""] = Field("", description="Of this kind alone.")


@router.get("/marks", auth=viewer, response=dict[str, Any], summary="What happened to the fleet in a time")
def list_marks(
    request: HttpRequest,
    asked: Annotated[Asked, Query()],
    pool: Filter = "",
    node: Filter = "",
    tenant: Filter = "",
) -> Document:
    """Revisions, cordons, incidents and steps of rollouts in the order of time, as the dashboards mark them.

    Of a pool, a node or a tenant: those that are about it or about none. `cut`: the kinds that were more than 500, of
    which the newest are told.
    """
    last = asked.last or timezone.now()
    f.refuse_if(_problems(asked.first, last))
    only = {label: name for label, name in (("pool", pool), ("node", node), ("tenant", tenant)) if name}
    found = marks.read(f.epoch_ms(asked.first), f.epoch_ms(last))
    told = [mark for mark in found.found if mark.within(only) and asked.kind in ("", mark.kind)]
    return {"items": [mark.document() for mark in told], "cut": sorted(found.cut)}


def _problems(first: datetime, last: datetime) -> list[Problem]:
    if first >= last:
        return [Problem("/from", "not_before", "must be before `to`")]
    if (last - first).days > _SPAN_MAX_DAYS:
        return [Problem("/from", "too_long", f"must be at most {_SPAN_MAX_DAYS} days before `to`")]
    return []
