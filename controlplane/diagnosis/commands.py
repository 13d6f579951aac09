"""`headworks diagnose`: what limits the fleet now, as the page shows it."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork

# A write by who may run this program: reason, and whether nothing is kept. Ends the program where it is refused.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]
_READING = "read from the shell"
_COLUMNS = 110


def add_to(commands: Any, shell: Shell) -> None:
    """Add the command to those of the parser."""
    text = "Print what limits the fleet: each bottleneck that was found, its evidence and levers. Exit status 1 if any."
    parser = commands.add_parser("diagnose", help=text, description=text)
    parser.add_argument("--pool", default="", help="only what concerns this pool")
    parser.set_defaults(run=partial(_diagnose, shell))


def _diagnose(shell: Shell, arguments: argparse.Namespace) -> int:
    with shell(_READING, True):
        from controlplane.diagnosis import standing
        from controlplane.fleet.services import POOLS

        if arguments.pool:
            POOLS.get(arguments.pool)
        grid = standing.grid()
        found = [standing.with_levers(standing.get(row.pk)) for row in standing.open_findings(arguments.pool)]
    if not arguments.pool:
        _print_grid(grid)
    for finding in found:
        _print_finding(finding)
    if not found:
        print(f"nothing was found{f' in pool {arguments.pool}' if arguments.pool else ''}")
    return 1 if found else 0


def _print_grid(grid: dict[str, Any]) -> None:
    print(f"looked at {grid['looked_at'] or 'never: no worker runs, or the first round is still to come'}")
    for card in grid["detectors"]:
        where = ", ".join(finding["subject"] for finding in card["findings"])
        print(f"{card['number']:3} {card['state']:8} {card['name']:20} {card['blind'] or where}".rstrip())


def _print_finding(finding: dict[str, Any]) -> None:
    print(f"\n{finding['detector']} at {finding['subject']}, since {finding['since']}, "
          f"confidence {finding['confidence_permille'] / 10:g} %")  # fmt: skip
    _print_words(finding["summary"], "  ")
    for evidence in finding["evidence"]:
        limit = "" if evidence["limit"] is None else f" (limit {evidence['limit']:g})"
        print(f"  {evidence['name']} = {evidence['value']:g} {evidence['unit']}{limit}")
    for what in ("pools", "tenants"):
        if finding[what]:
            print(f"  {what}: {', '.join(finding[what])}")
    for lever in finding["levers"]:
        print(f"  lever {lever['key']} ({lever['state']}): {lever['title']}")
        for line in _lines_of(lever):
            _print_words(line, "    ")


def _lines_of(lever: dict[str, Any]) -> Iterable[str]:
    for edit in lever["edits"]:
        sets = ", ".join(f"{name}={value}" for name, value in edit["changes"].items())
        yield f"{'new ' if edit['create'] else ''}{edit['noun']}/{edit['key']}: {sets}"
    for command in lever["commands"]:
        yield f"{command['action']} of {command['subject']} {command['arguments'] or ''}".rstrip()
    yield from filter(None, (lever["advice"], lever["why"], lever["said"]))


def _print_words(text: str, indent: str) -> None:
    for line in textwrap.wrap(text, _COLUMNS, initial_indent=indent, subsequent_indent=indent):
        print(line)
