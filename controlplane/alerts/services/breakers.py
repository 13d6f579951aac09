"""What attempts make of a receiver: its breaker, the incident that it has while that is open, what people see of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from controlplane import settings_rows
from controlplane.alerts import breaker
from controlplane.alerts import models as rows
from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.services import alerts
from controlplane.alerts.services.alert_lock import lock_alerts
from controlplane.core.reported import reported_text


def hold(receiver_id: int, outcome: Outcome, now: datetime) -> rows.Receiver | None:
    """The receiver's row, held until the transaction ends; None: it is gone.

    Taken before the rows of its messages, and after what its incident needs: as who changes or deletes it does.
    """
    # Another attempt may end between this look and the lock, and bring the breaker to where this one turns it.
    is_shut = rows.Receiver.objects.filter(pk=receiver_id, open_until=None).exists()
    if not is_shut or outcome.reason is not Reason.TAKEN:
        lock_alerts()
    return rows.Receiver.objects.select_for_update(no_key=True).filter(pk=receiver_id).first()


def follow(row: rows.Receiver, outcome: Outcome, now: datetime) -> None:
    """Count an attempt's end; the row is held. The first that opens the breaker opens an incident, of which all other
    receivers are told; the one that closes it ends that."""
    before, after = _turn(row, outcome, now)
    row.failures_in_a_row, row.open_until = after
    row.last_error = reported_text(outcome.error)
    if outcome.reason is Reason.TAKEN:
        row.last_taken_at = now
    row.save(update_fields=["failures_in_a_row", "open_until", "last_error", "last_taken_at"])
    if before.open_until is None and after.open_until is not None:
        _open(row, after, now)
    elif before.open_until is not None and after.open_until is None:
        end_incident(row.name, now, "it takes messages again")


def _turn(row: rows.Receiver, outcome: Outcome, now: datetime) -> tuple[breaker.Breaker, breaker.Breaker]:
    before = breaker.Breaker(row.failures_in_a_row, row.open_until)
    return before, breaker.after(before, outcome, now, _limits())


def end_incident(name: str, now: datetime, text: str) -> None:
    """End the incident of a receiver's open breaker, where there is one."""
    if alert := alerts.firing_with(breaker.labels_of(name)):
        alerts.resolve_alert(alert, now, text)


def _open(row: rows.Receiver, opened: breaker.Breaker, now: datetime) -> None:
    text = f"{opened.failures_in_a_row} attempts failed one after the other, the last: {row.last_error}"
    alerts.open_alert(
        labels=breaker.labels_of(row.name),
        source="event",
        severity=rows.Severity.CRITICAL,
        title=f"The receiver {row.name} takes no messages",
        annotations={"description": text, "runbook_url": "docs/runbooks/deliveries-waiting.md"},
        at=now,
        text=text,
    )


def _limits() -> breaker.Limits:
    return breaker.Limits(
        failures=settings_rows.RECEIVER_FAILURES_MAX.read(),
        pause_max=timedelta(seconds=settings_rows.WEBHOOK_RETRY_MAX_SECONDS.read()),
    )
