"""What every writing REST call has in common: reason, dry run, preconditions, being sent again, waiting for targets."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from django.http import HttpRequest
from ninja import Field, Query, Schema

from controlplane.core import changes, scope
from controlplane.core.answer_headers import set_answer_header
from controlplane.core.changes import REASON_MAX_CHARACTERS, UnitOfWork, unit_of_work
from controlplane.core.idempotency import REPLAYED_HEADER, KeyedRequest, keep_answer, keyed_request, stored_answer
from controlplane.core.preconditions import Current, Preconditions, entity_tag


class WriteOptions(Schema):
    """Query parameters of a write."""

    reason: str = Field(description=f"Why; kept in the audit. 1 to {REASON_MAX_CHARACTERS} characters.")
    dry_run: bool = Field(default=False, description="Check everything, answer with the diff, keep nothing.")
    wait: Literal["applied"] | None = Field(
        None, description="Answer once every target runs the change, or at `timeout`."
    )
    timeout: float = Field(default=5.0, ge=0, le=60, description="Seconds to wait at most.")


Options = Annotated[WriteOptions, Query()]


class WriteAnswer(Schema):
    """What a write did."""

    change_id: str = Field(description="Names the change in the audit; its revision is looked up by it.")
    dry_run: bool
    changed: bool = Field(description="False where all stood so already, or would after a dry run.")
    patch: dict[str, Any] = Field(description="The RFC 7396 patch that the change brings to the configuration.")
    item: dict[str, Any] | None = Field(default=None, description="The row as it now stands, or would after a dry run.")
    secret: str | None = Field(default=None, description="A new key or token. Shown this once.")
    warnings: list[dict[str, str]] = Field(
        default=[], description="Done, but worth a second look: path, rule and message of each."
    )
    convergence: dict[str, Any] | None = Field(
        default=None, description="With wait=applied: where the change stands at the targets."
    )


class _AnsweredBefore(Exception):
    """Leaves the unit of work, which has nothing to do."""

    def __init__(self, answer: WriteAnswer) -> None:
        self.answer = answer


def perform(
    request: HttpRequest,
    options: WriteOptions,
    action: Callable[[UnitOfWork], dict[str, Any] | None],
    *,
    current: Current | None = None,
    secret: Callable[[], str | None] = lambda: None,
    body: bytes | None = None,
) -> WriteAnswer:
    """Run `action` as a unit of work of the caller and answer in the common form.

    `action` returns the changed row's public form. `current` gives that of the row as it stands, for If-Match and
    If-None-Match; a call without it refuses these. `secret` is asked when all steps are done, never for a dry run.
    `body`: what the route has read of the request as a stream. A request that comes again with its Idempotency-Key
    is answered as the first time, and `action` does not run; a dry run keeps no answer.
    Raises Refused from the headers, the action or the steps.
    """
    caller = request.auth  # type: ignore[attr-defined]
    preconditions = Preconditions.of(request)
    keyed = keyed_request(request, caller.actor, body)
    if options.dry_run:
        keyed = None
    answers: list[WriteAnswer] = []
    try:
        with unit_of_work(caller.actor, options.reason, dry_run=options.dry_run) as unit:
            _leave_if_answered(keyed)
            preconditions.check(current)
            item = action(unit)

            def finish() -> None:
                answers.append(_answer(unit, item, None if options.dry_run else secret()))
                if keyed:
                    keep_answer(keyed, answers[0].model_dump_json(), secret=answers[0].secret is not None)

            unit.finishing.append(finish)
        answer = answers[0]
    except _AnsweredBefore as before:
        answer = before.answer
        set_answer_header(request, REPLAYED_HEADER, "true")
    if options.dry_run:
        return answer
    if answer.item is not None:
        set_answer_header(request, "ETag", entity_tag(answer.item))
    if options.wait == "applied" and answer.patch and changes.waiter:
        told = changes.waiter[0](uuid.UUID(answer.change_id), options.timeout)
        answer.convergence = scope.told_of_convergence(caller.actor.tenants, told)
    return answer


def _leave_if_answered(keyed: KeyedRequest | None) -> None:
    stored = stored_answer(keyed) if keyed else None
    if stored is not None:
        raise _AnsweredBefore(WriteAnswer.model_validate_json(stored))


def _answer(unit: UnitOfWork, item: dict[str, Any] | None, secret: str | None) -> WriteAnswer:
    return WriteAnswer(
        change_id=str(unit.change_id),
        dry_run=unit.dry_run,
        changed=bool(unit.changes),
        patch=unit.patch,
        item=item,
        secret=secret,
        warnings=msgspec.to_builtins(scope.told_of_warnings(unit.actor.tenants, unit.warnings)),
    )
