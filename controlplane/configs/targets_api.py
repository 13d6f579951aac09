"""REST that targets call: enrolment, their slice, acknowledgements, reports, artifacts."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from msgspec import Struct
from ninja import Router

from controlplane.configs import acks, presence
from controlplane.configs.hub import heads
from controlplane.configs.models import TargetState
from controlplane.core import enrolment
from controlplane.core.bodies import described, read_body
from controlplane.core.changes import Actor, unit_of_work
from controlplane.core.errors import Forbidden, Unauthenticated, Unavailable
from controlplane.core.fields import epoch_ms
from controlplane.core.models import Target, TargetKind
from controlplane.core.preconditions import entity_tag
from controlplane.core.rest import json_answer
from controlplane.core.security import TargetAuth, address_of, admin, calling_target, target_of
from controlplane.fleet import services as fleet
from controlplane.fleet.services import artifacts
from wire.messages import Ack, EnrolAnswer, EnrolRequest, NodeReport

router = Router(tags=["targets"])
# Calls within this time count as one: a target that asks often need not cost a write each time.
_SEEN_STEP = timedelta(seconds=5)


class AckAnswer(Struct):
    taken: bool


class ReportAnswer(Struct):
    taken: bool
    unknown_engines: list[str]
    unknown_acts: list[str]


class TargetOrAdmin(TargetAuth):
    """Targets fetch artifacts; an admin may look at what they get."""

    def __call__(self, request: HttpRequest) -> object:
        try:
            return target_of(request)
        except Unauthenticated:
            return admin(request)


@router.post(
    "/targets/enrol", auth=None, **described("enrol-request", EnrolAnswer, HTTPStatus.CREATED),
    summary="Become a target",
)  # fmt: skip
def enrol(request: HttpRequest) -> HttpResponse:
    """Trade a join token for the target's own token, shown this once. A node is made in the fleet where it is new."""
    asked = read_body(request, EnrolRequest)
    actor = Actor("target", f"{asked.kind}/{asked.name}", address_of(request))
    with unit_of_work(actor, "enrolled with a join token") as unit:
        target, secret = enrolment.enrol(unit, asked, _connected)
        # The process that held the name before may have run something; this one has run nothing yet.
        TargetState.objects.filter(target=target).delete()
        if target.kind == TargetKind.NODE:
            fleet.ensure_node(unit, target.name)
    return json_answer(EnrolAnswer(target.pk, secret, epoch_ms(target.token_expires_at)), HTTPStatus.CREATED)


@router.get("/config/snapshot", auth=TargetAuth(), summary="A target's slice, for clients that poll")
def read_snapshot(request: HttpRequest) -> HttpResponse:
    """ETag is the slice's hash in quotes: send it as If-None-Match and an unchanged slice answers 304."""
    target = calling_target(request)
    _note_seen(target, timezone.now())
    head = heads.refresh()
    if head is None:
        raise Unavailable("nothing has been published yet; try again")
    slice = head.slice(target.kind, target.name)
    etag = f'"{slice.hash}"'
    headers = {"ETag": etag, "X-Headworks-Revision": str(head.number), "Cache-Control": "no-cache"}
    asked = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if etag in asked or "*" in asked:
        return HttpResponse(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    response = json_answer(slice.content)
    for name, value in headers.items():
        response[name] = value
    return response


@router.post("/config/ack", auth=TargetAuth(), **described("ack", AckAnswer), summary="Acknowledge or refuse")
def acknowledge(request: HttpRequest) -> HttpResponse:
    """{revision, hash, applied_at}, or {revision, error} with the reasons. Answers once it is stored."""
    acks.take(calling_target(request), read_body(request, Ack))
    return json_answer(AckAnswer(taken=True))


@router.post(
    "/nodes/report", auth=TargetAuth(), **described("node-report", ReportAnswer), summary="Report a node"
)  # fmt: skip
def report(request: HttpRequest) -> HttpResponse:
    """GPUs, engines and acts as the node's agent saw them. `unknown_…`: reported, but not this node's; ignored."""
    target = calling_target(request)
    if target.kind != TargetKind.NODE:
        raise Forbidden("a gateway cannot report a node; only the node's own agent can", code="wrong_kind")
    body = read_body(request, NodeReport)
    now = timezone.now()
    ignored = fleet.take_report(target.name, body, now)
    _note_seen(target, now)
    return json_answer(ReportAnswer(taken=True, unknown_engines=ignored.engines, unknown_acts=ignored.acts))


def read_artifact(request: HttpRequest, sha256: str) -> HttpResponse:
    """The bytes of a tokenizer, named by their SHA-256: they never change."""
    headers = {
        "Cache-Control": "private, max-age=31536000, immutable",
        "ETag": entity_tag(artifacts.describe(artifacts.get(sha256))),
    }
    return HttpResponse(artifacts.content_of(sha256), content_type="application/octet-stream", headers=headers)


def _connected(target: Target) -> bool:
    state = TargetState.objects.filter(target=target).first()
    return state is not None and presence.connected(state.stream_seen_at, timezone.now())


def _note_seen(target: Target, now: datetime) -> None:
    if target.last_seen_at is None or now - target.last_seen_at >= _SEEN_STEP:
        Target.objects.filter(pk=target.pk).update(last_seen_at=now)
