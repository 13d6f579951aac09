"""`headworks alerts …`: what fires, where an alert would go, and silences, from a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from controlplane.alerts.rule_file.durations import milliseconds

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork

# A write by who may run this program: reason, and whether nothing is kept. Ends the program where it is refused.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]
_READING = "read from the shell"
_ROWS = 1000


def _duration(text: str) -> timedelta:
    try:
        return timedelta(milliseconds=milliseconds(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_to(commands: Any, shell: Shell) -> None:
    """Add the command to those of the parser."""
    text = "Alerts: list the incidents that fire, try where an alert would go, silence some."
    parser = commands.add_parser("alerts", help=text, description=text)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(name: str, run: Callable[[Shell, argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=partial(run, shell))
        return verb

    add("list", _list, "Print the incidents that fire, the newest first.")
    route = add("route", _route, "Print the routes, incident and receivers that an alert of these labels would have.")
    route.add_argument("labels", nargs="+", metavar="LABEL=VALUE", help="such as alertname=GpuXid")
    route.add_argument("--event", action="store_true", help="as a node's event tells of it, rather than a rule")
    silence = add("silence", _silence, "Keep the alerts that all matchers match quiet for a while.")
    silence.add_argument("name", help="of the silence")
    silence.add_argument("matchers", nargs="+", metavar="MATCHER", help="such as 'pool=~\"chat-.*\"'")
    silence.add_argument("--for", dest="lasts", type=_duration, required=True, help="how long from now, such as 4h")
    silence.add_argument("--comment", required=True, help="why, for those who wonder")
    expire = add("expire", _expire, "End a silence now.")
    expire.add_argument("name", help="of the silence")
    for writing in (silence, expire):
        writing.add_argument("--dry-run", action="store_true", help="check everything, keep nothing")
        writing.add_argument("--reason", required=True, help="kept in the audit")


def _list(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.alerts.services import incidents

        found, _following = incidents.page(incidents.Wanted(state="firing"), limit=_ROWS)
        shown = incidents.shown(found)
    for each in shown:
        seen = f", seen by {each['acknowledged_by']}" if each["acknowledged_by"] else ""
        print(f"{each['id']}  {each['severity']}  {each['title']}  since {each['started_at']}{seen}")


def _route(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.alerts.services import alert_routes

        labels = alert_routes.labels_of(arguments.labels)
        found = alert_routes.tried(labels, "event" if arguments.event else "rule")
    group = ", ".join(f"{name}={value}" for name, value in sorted(found["group"].items()))
    muted = "; ".join(f"{kind} {', '.join(names)}" for kind, names in found["muted_by"].items())
    print(f"routes: {', '.join(found['routes']) or 'none'}")
    print(f"incident of: {group or 'no labels'}")
    print(f"receivers: {', '.join(found['receivers']) or 'none'}")
    if muted:
        print(f"nobody is told, by: {muted}")


def _silence(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(arguments.reason, arguments.dry_run) as unit:
        from django.utils import timezone

        from controlplane.alerts.services.silences import SILENCES
        from controlplane.core.fields import iso

        ends_at = iso(timezone.now() + arguments.lasts)
        fields = {"matchers": arguments.matchers, "ends_at": ends_at, "comment": arguments.comment}
        SILENCES.create(unit, arguments.name, fields)
    print(f"silenced until {ends_at}")
    for warning in unit.warnings:
        print(warning.message, file=sys.stderr)


def _expire(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(arguments.reason, arguments.dry_run) as unit:
        from django.utils import timezone

        from controlplane.alerts.services.silences import SILENCES

        SILENCES.expire(unit, arguments.name, timezone.now())
    print("ended")
