"""REST of targets: join tokens, the list, revoking, and a target's own new token."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Body, Router, Status

from controlplane.core import enrolment
from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.core.fields import ShownAs, epoch_ms, read
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.rest import After, Id, Limit, Page, answers, json_answer
from controlplane.core.security import TargetAuth, address_of, admin, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document
from wire.messages import EnrolAnswer

router = Router(tags=["targets"])
JoinTokenBody = Annotated[dict[str, Any], ShownAs(enrolment.JoinTokenFields), Body()]


@router.get("/targets", auth=viewer, response=Page, summary="List targets")
def list_targets(request: HttpRequest, limit: Limit = PAGE_ROWS, after: After = 0) -> Page:
    """Gateways and nodes' agents, revoked ones too. What they run: GET /config/convergence."""
    found, following = enrolment.page(limit, after)
    return Page(items=[enrolment.describe(target) for target in found], next=following)


@router.post("/targets/join-tokens", auth=admin, response={201: WriteAnswer}, summary="Make a join token")
def create_join_token(request: HttpRequest, options: Options, body: JoinTokenBody) -> Status[WriteAnswer]:
    """Lets one process become one target, once. The secret is shown this once."""
    fields = read(enrolment.JoinTokenFields, body)
    secrets: list[str] = []

    def act(unit: UnitOfWork) -> Document:
        row, secret = enrolment.create_join_token(unit, fields.kind, fields.name)
        secrets.append(secret)
        return enrolment.describe_join_token(row)

    return Status(HTTPStatus.CREATED, perform(request, options, act, secret=lambda: secrets[0]))


@router.post("/targets/{target_id}/revoke", auth=admin, response=WriteAnswer, summary="Revoke a target")
def revoke_target(request: HttpRequest, target_id: Id, options: Options) -> WriteAnswer:
    """Its token is refused from now on and its stream ends. It may enrol again with a new join token."""
    return perform(request, options, lambda unit: enrolment.describe(enrolment.revoke(unit, target_id)))


@router.post("/targets/rotate", auth=TargetAuth(), **answers(EnrolAnswer), summary="A target asks for its next token")
def rotate_token(request: HttpRequest) -> HttpResponse:
    """Answers as enrolment does. The old token is good until the new one is first used."""
    target = request.auth  # type: ignore[attr-defined]
    actor = Actor("target", f"{target.kind}/{target.name}", address_of(request))
    with unit_of_work(actor, "its token is past half of its life") as unit:
        secret, expires_at = enrolment.rotate(unit, target)
    return json_answer(EnrolAnswer(target.pk, secret, epoch_ms(expires_at)))
