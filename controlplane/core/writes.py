"""What every writing REST call has in common: reason, dry run, waiting for the targets, and the form of its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from django.http import HttpRequest
from ninja import Field, Query, Schema

from controlplane.core import changes
from controlplane.core.changes import REASON_MAX_CHARACTERS, UnitOfWork, unit_of_work


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
    patch: dict[str, Any] = Field(description="The RFC 7396 patch that the change brings to the configuration.")
    item: dict[str, Any] | None = Field(default=None, description="The row as it now stands, or would after a dry run.")
    secret: str | None = Field(default=None, description="A new key or token. Shown this once.")
    warnings: list[dict[str, str]] = Field(
        default=[], description="Done, but worth a second look: path, rule and message of each."
    )
    convergence: dict[str, Any] | None = Field(
        default=None, description="With wait=applied: where the change stands at the targets."
    )


def perform(
    request: HttpRequest,
    options: WriteOptions,
    action: Callable[[UnitOfWork], dict[str, Any] | None],
    *,
    secret: Callable[[], str | None] = lambda: None,
) -> WriteAnswer:
    """Run `action` as a unit of work of the caller and answer in the common form.

    `action` returns the changed row's public form. `secret` is asked after the commit, never for a dry run.
    Raises Refused from the action or the steps.
    """
    caller = request.auth  # type: ignore[attr-defined]
    with unit_of_work(caller.actor, options.reason, dry_run=options.dry_run) as unit:
        item = action(unit)
    answer = WriteAnswer(
        change_id=str(unit.change_id),
        dry_run=options.dry_run,
        patch=unit.patch,
        item=item,
        warnings=msgspec.to_builtins(unit.warnings),
    )
    if options.dry_run:
        return answer
    answer.secret = secret()
    if options.wait == "applied" and unit.patch and changes.waiter:
        answer.convergence = changes.waiter[0](unit.change_id, options.timeout)
    return answer
