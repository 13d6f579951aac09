"""`headworks batches …`: batches from the shell."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork

# A write by who may run this program: reason, and whether nothing is kept. Ends the program where it is refused.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]
_READING = "read from the shell"
_ROWS, _ROWS_MAX = 50, 1000


def add_to(commands: Any, shell: Shell) -> None:
    """Add the command to those of the parser."""
    text = "Batches that tenants made at a gateway: list them, look at one, cancel one."
    parser = commands.add_parser("batches", help=text, description=text)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(name: str, run: Callable[[Shell, argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=partial(run, shell))
        return verb

    listing = add("list", _list, "Print the newest batches, one a line: id, tenant, status, lines done, failed, all.")
    listing.add_argument("--tenant", default="", help="of this tenant alone")
    listing.add_argument("--status", default="", help="of this status alone, such as in_progress")
    listing.add_argument("--limit", type=_rows, default=_ROWS, help="so many at most (default: %(default)s)")
    show = add("show", _show, "Print one batch as JSON.")
    show.add_argument("batch")
    cancel = add("cancel", _cancel, "Cancel a batch: no further line of it starts, and what is done is kept.")
    cancel.add_argument("batch")
    cancel.add_argument("--reason", required=True, help="why; kept in the audit")


def _rows(text: str) -> int:
    from wire.settings import whole_number

    try:
        return whole_number(1, _ROWS_MAX)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _list(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.batches import batches

        found, _ = batches.page(None, limit=arguments.limit, status=arguments.status, tenant=arguments.tenant)
    for batch in found:
        print(batch.pk, batch.tenant, batch.status, batch.completed, batch.failed, batch.total, sep="\t")


def _show(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.batches import batches

        shown = batches.summary(batches.get(arguments.batch))
    print(json.dumps(shown, indent=2))


def _cancel(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(arguments.reason, False) as unit:
        from controlplane.batches import batches

        batch = batches.cancel_by_person(unit, arguments.batch, None)
    print(f"{batch.pk} is {batch.status}")
