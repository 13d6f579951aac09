"""REST of receivers, and of the messages that were sent or wait to be."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Body, Query, Router, Schema, Status

from controlplane.alerts.delivery_plan import Reason
from controlplane.alerts.models import Receiver
from controlplane.alerts.outgoing import send_test
from controlplane.alerts.services import deliveries
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.alerts.services.receivers import RECEIVERS, ReceiverFields, secret_of, state_of
from controlplane.core.changes import UnitOfWork
from controlplane.core.fields import ShownAs
from controlplane.core.nouns import PAGE_ROWS
from controlplane.core.preconditions import IF_MATCH, IF_NONE_MATCH, Current, tagged
from controlplane.core.rest import Filter, Limit, Page, changes_of
from controlplane.core.security import admin, operator, viewer
from controlplane.core.writes import Options, WriteAnswer, perform
from wire.canonical import Document

router = Router(tags=["receivers"])

NewReceiver = Annotated[dict[str, Any], ShownAs(RECEIVERS.new_fields), Body()]
ReceiverChanges = Annotated[dict[str, Any], ShownAs(changes_of(ReceiverFields)), Body()]
DeliveryState = Annotated[
    Literal["", "waiting", "delivered", "failed", "overtaken"], Query(description="Empty: every state.")
]


class Tried(Schema):
    """`reason` is `taken`, or names why the receiver did not take it; `error` says so in words.

    `status` and `said` are of the receiver's answer, where there was one: its status, and how its body begins.
    """

    delivered: bool
    reason: str
    error: str | None
    status: int | None
    said: str


class Attempts(Schema):
    """The last attempts at one delivery, the first of them first."""

    items: list[dict[str, Any]]


@router.get("/receivers", auth=viewer, response=Page, summary="List receivers")
def list_receivers(request: HttpRequest, limit: Limit = PAGE_ROWS, after: Filter = "") -> Page:
    found, following = RECEIVERS.page(limit, after)
    return Page(items=[RECEIVERS.describe(row) for row in found], next=following)


@router.post(
    "/receivers", auth=admin, response={201: WriteAnswer}, summary="Create receiver; its secret is shown once",
    openapi_extra=IF_NONE_MATCH,
)  # fmt: skip
def create_receiver(request: HttpRequest, options: Options, body: NewReceiver) -> Status[WriteAnswer]:
    """Told of every incident from `min_severity` on that its routes lead to. What each kind takes: docs/receivers.md.

    The answer's `secret` is what a webhook's messages are signed with; other kinds are given theirs, and show none."""
    name = body.pop("name", "")
    answer = _with_secret(
        request, options, lambda unit: RECEIVERS.create(unit, name, body), lambda: RECEIVERS.known(name)
    )
    return Status(HTTPStatus.CREATED, answer)


@router.get("/receivers/{name}", auth=viewer, response=dict[str, Any], summary="Read receiver")
def read_receiver(request: HttpRequest, name: str) -> Document:
    return tagged(request, RECEIVERS.describe(RECEIVERS.get(name)))


@router.patch("/receivers/{name}", auth=admin, response=WriteAnswer, summary="Change receiver")
def change_receiver(request: HttpRequest, name: str, options: Options, body: ReceiverChanges) -> WriteAnswer:
    """While it is not enabled nothing is sent and no new incident noted for it; what waits is sent when it is again,
    with the end of what it was told of."""
    return perform(
        request,
        options,
        lambda unit: RECEIVERS.describe(RECEIVERS.update(unit, name, body)),
        current=lambda: _held(name),
    )


@router.delete("/receivers/{name}", auth=admin, response=WriteAnswer, summary="Delete receiver")
def delete_receiver(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    """Its messages go with it, those that wait too."""
    return perform(request, options, lambda unit: RECEIVERS.delete(unit, name), current=lambda: _held(name))


@router.post(
    "/receivers/{name}/rotate-secret", auth=admin, response=WriteAnswer, summary="New secret; shown once",
    openapi_extra=IF_MATCH,
)  # fmt: skip
def rotate_secret(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    """Of a webhook: every attempt from now on is signed with the new one. Other kinds get theirs by PATCH."""
    return _with_secret(request, options, lambda unit: RECEIVERS.rotate_secret(unit, name), lambda: _held(name))


@router.post("/receivers/{name}/test", auth=admin, response=Tried, summary="Send a test message now")
def test_receiver(request: HttpRequest, name: str) -> Tried:
    """Answers how one attempt ended, after HEADWORKS_WEBHOOK_TIMEOUT_SECONDS at the latest. Nothing is stored."""
    outcome = send_test(RECEIVERS.get(name), timezone.now())
    return Tried(
        delivered=outcome.reason is Reason.TAKEN,
        reason=outcome.reason.value,
        error=outcome.error or None,
        status=outcome.status,
        said=outcome.said,
    )


@router.get("/receivers/{name}/state", auth=viewer, response=dict[str, Any], summary="Read receiver's state")
def read_receiver_state(request: HttpRequest, name: str) -> Document:
    """Its breaker, what waits and failed, when it last took something, and what was wrong with the last it did not."""
    return state_of(RECEIVERS.get(name))


@router.post(
    "/receivers/{name}/resend-failed", auth=operator, response=WriteAnswer, summary="Send all failed ones again"
)
def resend_failed(request: HttpRequest, name: str, options: Options) -> WriteAnswer:
    """Each message to it that failed, as if it had just been written; but those that a later one contradicts."""

    def resend(unit: UnitOfWork) -> Document:
        return {"receiver": name, "resent": len(deliveries.resend_failed(unit, RECEIVERS.get(name)))}

    return perform(request, options, resend)


@router.get("/deliveries", auth=viewer, response=Page, summary="List deliveries")
def list_deliveries(
    request: HttpRequest,
    state: DeliveryState = "",
    receiver: Filter = "",
    limit: Limit = PAGE_ROWS,
    after: Annotated[uuid.UUID | None, Query(description="`next` of the page before.")] = None,
) -> Page:
    """Messages to receivers, the last written first. `failed`: given up, and not sent again unless a person asks."""
    found, following = deliveries.page(state=state, receiver=receiver, limit=limit, after=after)
    return Page(items=[deliveries.describe(row) for row in found], next=following)


@router.get("/deliveries/{delivery_id}", auth=viewer, response=dict[str, Any], summary="Read delivery")
def read_delivery(request: HttpRequest, delivery_id: uuid.UUID) -> Document:
    return tagged(request, deliveries.describe(deliveries.get(delivery_id)))


@router.get("/deliveries/{delivery_id}/attempts", auth=viewer, response=Attempts, summary="List delivery's attempts")
def list_attempts(request: HttpRequest, delivery_id: uuid.UUID) -> Attempts:
    """When each was, how long it took, and what the receiver answered. The last twenty are kept."""
    return Attempts(items=[deliveries.describe_attempt(row) for row in deliveries.get(delivery_id).tries.all()])


@router.post("/deliveries/{delivery_id}/resend", auth=operator, response=WriteAnswer, summary="Send a failed one again")
def resend_delivery(request: HttpRequest, delivery_id: uuid.UUID, options: Options) -> WriteAnswer:
    """As if it had just been written: at once, and then until HEADWORKS_WEBHOOK_GIVE_UP_SECONDS have gone by."""
    return perform(request, options, lambda unit: deliveries.describe(deliveries.resend(unit, delivery_id)))


def _held(name: str) -> Document:
    """Held until it is written, after what its incident needs, as attempts' ends hold both."""
    lock_alerts()
    return RECEIVERS.describe(RECEIVERS.lock(name))


def _with_secret(
    request: HttpRequest, options: Options, act: Callable[[UnitOfWork], Receiver], current: Current
) -> WriteAnswer:
    made: list[Receiver] = []

    def noted(unit: UnitOfWork) -> Document:
        made.append(act(unit))
        return RECEIVERS.describe(made[0])

    return perform(request, options, noted, current=current, secret=lambda: secret_of(made[0]))
