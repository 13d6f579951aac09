"""`headworks receivers …`: who is told of incidents, whether they take it, a test, and what failed sent again."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork
    from wire.canonical import Document

# A write by who may run this program: reason, and whether nothing is kept. Ends the program where it is refused.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]
_READING = "read from the shell"
_NOT_TAKEN = 1


def add_to(commands: Any, shell: Shell) -> None:
    """Add the command to those of the parser."""
    text = "Receivers: who is told of incidents, and whether they take it."
    verbs = commands.add_parser("receivers", help=text, description=text).add_subparsers(required=True, metavar="VERB")

    def add(name: str, run: Callable[[Shell, argparse.Namespace], int | None], text: str) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=partial(run, shell))
        return verb

    add("list", _list, "Print the receivers: kind, breaker, what waits and failed, the last error.")
    test = add("test", _test, "Send a test message now and print how that ended; exit status 0 only if it was taken.")
    resend = add("resend", _resend, "Send every message to a receiver that failed again.")
    for verb in (test, resend):
        verb.add_argument("name", help="as `list` prints it")
    resend.add_argument("--reason", required=True, help="why; kept in the audit")
    resend.add_argument("--dry-run", action="store_true", help="say how many there are, send none")


def _list(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.alerts.models import Receiver
        from controlplane.alerts.services.receivers import state_of

        lines = [_line(row.name, row.kind, row.enabled, state_of(row)) for row in Receiver.objects.order_by("name")]
    print("\n".join(lines) or "no receiver")


def _line(name: str, kind: str, enabled: bool, state: Document) -> str:
    said = [name, kind, f"breaker {state['breaker']}" if enabled else "off"]
    said += [f"{state[count]} {count}" for count in ("waiting", "failed") if state[count]]
    return "  ".join(said + ([state["last_error"]] if state["last_error"] else []))


def _test(shell: Shell, arguments: argparse.Namespace) -> int | None:
    with shell(_READING, True):
        from controlplane.alerts.delivery_plan import Reason
        from controlplane.alerts.outgoing import send_test
        from controlplane.alerts.services.receivers import RECEIVERS

        row = RECEIVERS.get(arguments.name)
    from django.utils import timezone

    # Outside: nothing is held while somebody else answers.
    outcome = send_test(row, timezone.now())
    print(f"{outcome.reason}: {outcome.text}")
    if outcome.said:
        print(outcome.said)
    return None if outcome.reason is Reason.TAKEN else _NOT_TAKEN


def _resend(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(arguments.reason, arguments.dry_run) as unit:
        from controlplane.alerts.services import deliveries
        from controlplane.alerts.services.receivers import RECEIVERS

        sent = len(deliveries.resend_failed(unit, RECEIVERS.get(arguments.name)))
    print(f"{sent} message{'' if sent == 1 else 's'} {'would be sent' if arguments.dry_run else 'sent'} again")
