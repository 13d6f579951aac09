"""From a delivery's row, a test or the clock to what is sent to a receiver, and how that ended."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime

from django.utils import timezone

from controlplane.alerts.delivery_plan import Outcome, Reason
from controlplane.alerts.models import Delivery, Receiver
from controlplane.alerts.receivers import child
from controlplane.alerts.receivers.contract import Channel, Job, Request, Target
from controlplane.alerts.receivers.redaction import longest, redacted
from controlplane.alerts.receivers.registry import channel_of
from controlplane.alerts.telling import firing_messages, message_of, test_message
from controlplane.alerts.transport import ANSWER_BYTES, send
from controlplane.core.idle import give_back_connection
from controlplane.core.sealed import unsealed

# Of what a receiver says so much is kept.
SAID_CHARACTERS = 500
Plan = Sequence[Request] | Job
_UNREADABLE = Outcome(
    Reason.SECRET_UNREADABLE,
    "the secret was sealed with another HEADWORKS_FIELD_KEY; restore that key, or set or rotate the secret",
)


def attempt(row: Delivery) -> Outcome:
    """Send a claimed delivery once; its incident and receiver are loaded. No connection is held meanwhile."""
    channel = channel_of(row.receiver.kind)
    message = message_of(row, channel.alerts_max)
    return _sent(row.receiver, channel, lambda target, now: channel.plan(message, target, now))


def send_test(receiver: Receiver, now: datetime) -> Outcome:
    """Send a message that says that it is a test, and asks for nothing."""
    channel = channel_of(receiver.kind)
    message = test_message(receiver.name, str(uuid.uuid4()), now)
    return _sent(receiver, channel, lambda target, now: channel.plan(message, target, now))


def tick(receiver: Receiver) -> Outcome:
    """Tell a receiver what is due by the clock. One that has nothing to be told has taken it."""
    channel = channel_of(receiver.kind)
    firing = firing_messages(receiver, channel.alerts_max) if channel.takes_incidents else []
    return _sent(receiver, channel, lambda target, now: channel.tick(firing, target, now))


def target_of(receiver: Receiver) -> Target | None:
    """What the row holds, its secret in clear; None where that cannot be read."""
    secret = unsealed(receiver.sealed_secret) if receiver.sealed_secret else ""
    return None if secret is None else Target(receiver.name, receiver.url, receiver.settings, secret)


def _sent(receiver: Receiver, channel: Channel, planned: Callable[[Target, datetime], Plan]) -> Outcome:
    target = target_of(receiver)
    if target is None:
        return _UNREADABLE
    give_back_connection()
    now = timezone.now()
    plan = planned(target, now)
    if isinstance(plan, Job):
        outcome = child.run(plan)
    elif plan:
        outcome = send(plan, lambda answer: channel.judge(answer, now))
    else:
        outcome = Outcome(Reason.TAKEN, "there was nothing to tell")
    return shown(outcome, channel.clues(target))


def shown(outcome: Outcome, clues: Sequence[str]) -> Outcome:
    """The outcome as people may see it: without the secret, wherever the receiver or a library repeats it."""
    said = redacted(outcome.said, clues)
    if len(outcome.said) >= ANSWER_BYTES:
        # Its end may be the beginning of the secret.
        said = said[: -longest(clues) or None]
    return outcome._replace(text=redacted(outcome.text, clues), said=said[:SAID_CHARACTERS])
