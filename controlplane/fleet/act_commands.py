"""`headworks acts …`: what agents were asked to do, and how far they are."""

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
_STATES = ("waiting", "running", "done", "refused", "failed", "expired", "cancelled")
_LINES_MAX = 500


def add_to(commands: Any, shell: Shell) -> None:
    """Add the command to those of the parser."""
    text = "Acts: what agents of nodes were asked to do, and how far they are."
    verbs = commands.add_parser("acts", help=text, description=text).add_subparsers(required=True, metavar="VERB")
    text = "Print acts, newest first."
    listing = verbs.add_parser("list", help=text, description=text)
    listing.add_argument("--node", default="", help="of this node alone")
    listing.add_argument("--engine", default="", help="of this engine alone")
    listing.add_argument("--state", default="", choices=_STATES, help="that are so alone")
    listing.add_argument(
        "--limit", type=int, default=50, choices=range(1, _LINES_MAX + 1), metavar="N",
        help=f"so many, {_LINES_MAX} at most (default: %(default)s)",
    )  # fmt: skip
    listing.set_defaults(run=partial(_list, shell))
    text = "Print all that is known of an act, as JSON."
    show = verbs.add_parser("show", help=text, description=text)
    show.add_argument("id", help="as `list` prints it")
    show.set_defaults(run=partial(_show, shell))


def _list(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.fleet.services import acts

        wanted = {"node": arguments.node, "engine": arguments.engine, "state": arguments.state}
        found, _ = acts.page(**wanted, limit=arguments.limit)
        lines = [_line(acts.describe(row)) for row in found]
    print("\n".join(lines) or "no act")


def _show(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.fleet.services import acts

        described = acts.describe(acts.get(arguments.id))
    print(json.dumps(described, indent=2, ensure_ascii=False))


def _line(act: dict[str, Any]) -> str:
    where = act["engine"] or act["node"]
    far = "" if act["progress_permille"] is None else f" {act['progress_permille'] / 10:g} %"
    said = ": ".join(filter(None, (act["result_reason"], act["detail"])))
    return f"{act['id']}  {act['action']} on {where}  {act['state']}{far}  {said}".rstrip()
