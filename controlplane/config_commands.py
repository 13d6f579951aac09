"""`headworks config …`: the whole configuration as a text, from the shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from controlplane.core.kept import CannotStart

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork

# A write by who may run this program: reason, and whether nothing is kept. Ends the program where it is refused.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]
_READING = "read from the shell"
# As diff(1) has it: 1 says that there are differences.
_DIFFERS, _TROUBLE = 1, 2
_STANDARD_INPUT = "-"


def add_to(commands: Any, shell: Shell) -> None:
    """Add the command to those of the parser."""
    text = "The whole configuration as one text: write it out, compare, apply, go back."
    parser = commands.add_parser("config", help=text, description=text)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(name: str, run: Callable[[Shell, argparse.Namespace], int | None], text: str) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=partial(run, shell))
        return verb

    export = add("export", _export, "Print the configuration as YAML.")
    export.add_argument("--revision", type=_number, help="as it was in this revision")
    diff = add("diff", _diff, "Show what a file would change. Exit status: 0 nothing, 1 something, 2 trouble.")
    diff.add_argument("file", help="YAML, or JSON where its name ends so; -: standard input")
    apply = add("apply", _apply, "Show what a file changes, ask, and apply it as one revision.")
    apply.add_argument("file", help="YAML, or JSON where its name ends so; -: standard input, with --yes")
    apply.add_argument(
        "--allow-removals", action="store_true", help="also where keys, engines or a large share of a section go"
    )
    rollback = add("rollback", _rollback, "Show what a revision would bring back, ask, and go back to it.")
    rollback.add_argument("revision", type=_number)
    for writing in (apply, rollback):
        writing.add_argument("--reason", required=True, help="why; kept in the audit")
        writing.add_argument("--yes", action="store_true", help="do not ask")
        writing.add_argument(
            "--wait", type=_seconds, metavar="SECONDS", help="wait until every target runs it; exit status 1 if not"
        )


def _number(text: str) -> int:
    from wire.canonical import MAX_INTEGER
    from wire.settings import whole_number

    return _argument(whole_number(1, MAX_INTEGER), text)


def _seconds(text: str) -> int:
    from wire.settings import whole_number

    return _argument(whole_number(0, 3600), text)


def _argument(read: Callable[[str], int], text: str) -> int:
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _export(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.configs.document import document_at, document_now
        from controlplane.core.yaml_text import write_yaml

        document = document_now() if arguments.revision is None else document_at(arguments.revision)
    print(write_yaml(document), end="")


def _diff(shell: Shell, arguments: argparse.Namespace) -> int:
    try:
        with shell(_READING, True) as unit:
            seen = _document_in(arguments.file, allow_removals=True)(unit)
    except (SystemExit, CannotStart) as error:
        print(error if isinstance(error, SystemExit) else f"headworks: {error}", file=sys.stderr)
        return _TROUBLE
    print(seen.diff, end="")
    return _DIFFERS if seen.diff else 0


def _apply(shell: Shell, arguments: argparse.Namespace) -> int:
    if arguments.file == _STANDARD_INPUT and not arguments.yes:
        raise SystemExit("headworks: standard input cannot give both the file and the answer; add --yes")
    return _carry_out(shell, arguments, _document_in(arguments.file, allow_removals=arguments.allow_removals))


def _rollback(shell: Shell, arguments: argparse.Namespace) -> int:
    def go_back(unit: UnitOfWork) -> Seen:
        from controlplane.configs.document import document_now
        from controlplane.configs.edit_text import diff_text
        from controlplane.configs.edits import edit_of
        from controlplane.configs.removals import keys_of_tenants
        from controlplane.configs.rollback import roll_back
        from controlplane.core.preconditions import entity_tag

        before, owned = document_now(), keys_of_tenants()
        roll_back(unit, arguments.revision)
        return Seen(entity_tag(before), diff_text(edit_of(before, document_now()), owned))

    return _carry_out(shell, arguments, go_back)


class Seen(NamedTuple):
    """The document that a change found, by its ETag, and what it does to it."""

    etag: str
    diff: str


def _document_in(file: str, *, allow_removals: bool) -> Callable[[UnitOfWork], Seen]:
    """The change that a file makes. Ends the program where there is no such file."""
    try:
        text = sys.stdin.buffer.read() if file == _STANDARD_INPUT else Path(file).read_bytes()
    except OSError as error:
        raise SystemExit(f"headworks: {file}: {error.strerror}") from error

    def apply(unit: UnitOfWork) -> Seen:
        from controlplane.configs.bulk import apply_document
        from controlplane.configs.document import document_now
        from controlplane.configs.document_text import read_document
        from controlplane.configs.edits import checked_document
        from controlplane.core.preconditions import entity_tag

        checked, before = checked_document(read_document(text, json=file.endswith(".json"))), document_now()
        done = apply_document(unit, before, checked, allow_removals=allow_removals)
        return Seen(entity_tag(before), done["diff"])

    return apply


def _carry_out(shell: Shell, arguments: argparse.Namespace, change: Callable[[UnitOfWork], Seen]) -> int:
    """Show what a change does, ask, do it, wait."""
    with shell(arguments.reason, True) as unit:
        from controlplane.configs.removals import RULE

        seen = change(unit)
    # At once, so that a log of both streams has it first.
    print(seen.diff, end="", flush=True)
    for warning in unit.warnings:
        print(f"warning: {warning.path}: {warning.message}", file=sys.stderr)
    if not seen.diff:
        print("nothing to change", file=sys.stderr)
        return 0
    if any(warning.rule == RULE for warning in unit.warnings):
        raise SystemExit("headworks: nothing was changed; where these removals are meant, add --allow-removals")
    if not arguments.yes and not _confirmed():
        print("nothing was changed", file=sys.stderr)
        return 1
    with shell(arguments.reason, False) as unit:
        if change(unit) != seen:
            raise SystemExit(
                "headworks: nothing was changed, as somebody else changed something meanwhile; run it again"
            )
    print(f"done: change {unit.change_id}", file=sys.stderr)
    return 0 if arguments.wait is None or not unit.patch else _wait(unit, arguments.wait)


def _confirmed() -> bool:
    print("Apply this? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _wait(unit: UnitOfWork, seconds: int) -> int:
    """Say where the change stands at the targets; 0 where all that are not lost run it."""
    from controlplane.configs.hub import hub
    from controlplane.configs.waiting import wait_applied

    try:
        stands = wait_applied(unit.change_id, seconds)
    finally:
        hub.stop()
    print(f"revision {stands['revision']}: {stands['applied']} of {stands['targets']} targets run it", file=sys.stderr)
    for target in stands["pending"]:
        print(f"pending: {target}", file=sys.stderr)
    for refusal in stands["refused"]:
        print(f"refused: {refusal['target']}", file=sys.stderr)
    return 1 if stands["revision"] is None or stands["pending"] or stands["refused"] else 0
