"""`headworks overview`: whether all is right, and if not, why, as the page and REST say it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork

# A write by who may run this program: reason, and whether nothing is kept.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]


def add_to(commands: Any, shell: Shell) -> None:
    """Add the command to those of the parser."""
    text = "Print whether all is right, and if not, why: a sentence a pool. Exit status 1 where something is not right."
    parser = commands.add_parser("overview", help=text, description=text)
    parser.set_defaults(run=partial(_overview, shell))


def _overview(shell: Shell, _arguments: argparse.Namespace) -> int:
    with shell("read from the shell", True):
        from controlplane.web.overview_api import describe
        from controlplane.web.shown.overview import overview

        seen = describe(overview())
    print("\n".join(lines(seen)))
    return 1 if seen["state"] in ("bad", "wait") else 0


def lines(seen: dict[str, Any]) -> Iterator[str]:
    """What is printed of the public form."""
    yield f"{seen['state']}: {seen['sentence']}"
    for pool in seen["pools"]:
        yield f"{pool['state']:10} {pool['sentence']}"
        yield from (f"{'':10} - {reason['text']}" for reason in pool["reasons"])
    for incident in seen["incidents"]["worst"]:
        yield f"{incident['severity']:10} incident {incident['id']}: {incident['title']}"
    for finding in seen["findings"]:
        yield f"{'limit':10} {finding['detector']} at {finding['subject']}"
    for target in seen["convergence"]["troubled"]:
        yield f"{target['state']:10} {target['kind']} {target['name']}"
    for step in seen["first_steps"]:
        yield f"{'done' if step['done'] else 'to do':10} {step['title']}"
