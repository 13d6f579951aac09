"""`headworks versions …` and `headworks compatibility`: versions of models, and what may serve side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork

# A write by who may run this program: reason, and whether nothing is kept. Ends the program where it is refused.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]
_READING = "read from the shell"
# 1 says that a rule stops something, as grep(1) says that it found nothing.
_STOPS = 1


def add_to(commands: Any, shell: Shell) -> None:
    """Add the commands to those of the parser."""
    text = "Versions of models: which one a family's clients get, and which serve no more."
    parser = commands.add_parser("versions", help=text, description=text)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(name: str, run: Callable[[Shell, argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=partial(run, shell))
        return verb

    listing = add("list", _list, "Print the versions, the one that was published last first.")
    listing.add_argument("--family", default="", help="of this family alone")
    publish = add("publish", _publish, "Make a model the newest version of a family.")
    publish.add_argument("family", help="what clients call it")
    publish.add_argument("version")
    publish.add_argument("model", help="a model that there is")
    retire = add("retire", _retire, "Drain a passive version's engines, and stop them where their nodes allow.")
    back = add("bring-back", _bring_back, "Let a retired version serve again.")
    for verb in (retire, back):
        verb.add_argument("id", type=int, help="as `list` prints it")
    for verb in (publish, retire, back):
        verb.add_argument("--reason", required=True, help="why; kept in the audit")
        verb.add_argument("--dry-run", action="store_true", help="check everything, keep nothing")
    text = "What the compatibility rules have against the engines of a pool. Exit status: 0 nothing stops, 1 something."
    compatibility = commands.add_parser("compatibility", help=text, description=text)
    compatibility.add_argument("pool")
    compatibility.set_defaults(run=partial(_judge, shell))


def _list(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.fleet.services import versions

        after: int | None = 0
        while after is not None:
            rows, after = versions.page(family=arguments.family, after=after)
            for described in versions.described(rows):
                _print(described)


def _publish(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(arguments.reason, arguments.dry_run) as unit:
        from controlplane.fleet.services import versions

        said = versions.describe(versions.publish(unit, arguments.family, arguments.version, arguments.model))
    _print(said, unit)


def _retire(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(arguments.reason, arguments.dry_run) as unit:
        from controlplane.fleet.services import versions

        said = versions.describe(versions.retire(unit, arguments.id))
    _print(said, unit)


def _bring_back(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(arguments.reason, arguments.dry_run) as unit:
        from controlplane.fleet.services import versions

        said = versions.describe(versions.bring_back(unit, arguments.id))
    _print(said, unit)


def _print(row: dict[str, Any], unit: UnitOfWork | None = None) -> None:
    state = "newest" if row["newest"] else f"retired {row['retired_at']}" if row["retired_at"] else "passive"
    print(f"{row['id']}  {row['family']} {row['version']}  {row['model']}  {state}")
    for warning in unit.warnings if unit else ():
        print(f"  {warning.message}")


def _judge(shell: Shell, arguments: argparse.Namespace) -> int:
    with shell(_READING, True):
        from controlplane.fleet import compatibility

        judged = compatibility.of_pool(arguments.pool)
    for finding in judged["findings"]:
        print(f"{'stops' if finding['stops'] else finding['state']}  {finding['rule']}: {finding['message']}")
    return 0 if judged["may_serve"] else _STOPS
