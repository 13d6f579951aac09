"""`headworks rules …`: alerting rules as rule files of Prometheus, their unit tests, and the pack."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork
    from wire.canonical import Document

# A write by who may run this program: reason, and whether nothing is kept. Ends the program where it is refused.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]
_READING = "read from the shell"
_STANDARD_INPUT = "-"
# As promtool: 1 says that a test failed. 2: that one cannot be run.
_FAILED, _TROUBLE = 1, 2
_TEST_SECONDS = 3600.0


def add_to(commands: Any, shell: Shell) -> None:
    """Add the command to those of the parser."""
    text = "Alerting rules: list, write out, take in, test, and those that Headworks brings."
    parser = commands.add_parser("rules", help=text, description=text)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(
        to: Any, name: str, run: Callable[[Shell, argparse.Namespace], int | None], text: str
    ) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = to.add_parser(name, help=text, description=text)
        verb.set_defaults(run=partial(run, shell))
        return verb

    add(verbs, "list", _list, "Print the rules by group, with what their last evaluations said.")
    add(verbs, "export", _export, "Print the rules that are on as a rule file of Prometheus.")
    take = add(verbs, "import", _import, "Create and change rules as a rule file of Prometheus says.")
    take.add_argument("file", help="YAML; -: standard input")
    take.add_argument(
        "--replace", action="store_true", help="remove the rules of the file's groups that the file does not have"
    )
    take.add_argument("--skip", action="store_true", help="leave out what is not known here, and say what")
    test = add(
        verbs, "test", _test, "Run unit tests of rules, in the form of `promtool test rules`. Needs no database."
    )
    test.add_argument("file", nargs="+", help="YAML; the rule files that it names are looked for beside it")
    pack = verbs.add_parser("pack", help="The rules that Headworks brings.", description="The rules that it brings.")
    load = add(pack.add_subparsers(required=True, metavar="VERB"), "load", _load, "Create and update them now.")
    for writing in (take, load):
        writing.add_argument("--dry-run", action="store_true", help="check everything, keep nothing")
        writing.add_argument("--reason", required=writing is take, help="why; kept in the audit")


def _list(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.alerts.services.rules import grouped

        groups = grouped()
    for group, rules in groups:
        print(group)
        for rule in rules:
            print(f"  {rule['name']}  {rule['severity']}  {_state(rule)}")


def _state(rule: Document) -> str:
    if not rule["enabled"]:
        return "off"
    if rule["last_error"]:
        return f"error: {rule['last_error']}"
    if rule["evaluated_at"] is None:
        return "not evaluated yet"
    counts = (f"{rule[name]} {name}" for name in ("firing", "pending") if rule[name])
    return ", ".join(counts) or "inactive"


def _export(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_READING, True):
        from controlplane.alerts.services import rule_files
        from controlplane.core.yaml_text import write_yaml

        text = write_yaml(rule_files.document())
    print(text, end="")


def _import(shell: Shell, arguments: argparse.Namespace) -> None:
    text = _read(arguments.file)
    with shell(arguments.reason, arguments.dry_run) as unit:
        from controlplane.alerts.rule_file.text import read_yaml
        from controlplane.alerts.services import rule_files

        given = read_yaml(text)
        taken = rule_files.take(unit, given, replace=arguments.replace, skip=arguments.skip).document()
    _print_taken(taken, unit)


def _load(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(arguments.reason or "the rules that this version brings", arguments.dry_run) as unit:
        from controlplane.alerts.services.inhibition_pack import load_inhibitions
        from controlplane.alerts.services.rule_pack import load_pack

        loaded, inhibitions = load_pack(unit).document(), load_inhibitions(unit).document()
    _print_taken({**loaded, **{f"inhibitions {what}": names for what, names in inhibitions.items()}}, unit)


def _print_taken(taken: Document, unit: UnitOfWork) -> None:
    for what, names in taken.items():
        print(f"{what}: {', '.join(names) or 'none'}")
    for warning in unit.warnings:
        print(f"warning: {warning.message}", file=sys.stderr)


def _test(shell: Shell, arguments: argparse.Namespace) -> int:
    import django

    django.setup()
    return max(_test_file(Path(file)) for file in arguments.file)


def _test_file(file: Path) -> int:
    from controlplane.alerts.rule_file.unit_text import lines_of, run_file
    from controlplane.core.errors import Refused
    from controlplane.telemetry.promql.errors import TimedOut

    print(f"{file}: ", end="", flush=True)
    try:
        verdicts = run_file(_read(str(file)), partial(_beside, file.parent), _TEST_SECONDS)
    except (Refused, TimedOut) as error:
        print("cannot be run")
        problems = error.problems if isinstance(error, Refused) else []
        print("\n".join(f"    {problem.path}: {problem.message}" for problem in problems) or f"    {error}")
        return _TROUBLE
    failed = any(verdict.failures for verdict in verdicts)
    print("failed" if failed else "passed")
    for line in lines_of(verdicts):
        print(line)
    return _FAILED if failed else 0


def _beside(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Rule files by path; a name may be a pattern, as for promtool. Raises Refused."""
    from controlplane.core.fields import refuse_if
    from wire.problems import Problem

    found = {name: sorted(folder.glob(name)) if not Path(name).is_absolute() else [Path(name)] for name in names}
    refuse_if([Problem("/rule_files", "missing", f"there is no {name}") for name in names if not found[name]])
    return {str(path): _read(str(path)) for paths in found.values() for path in paths}


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == _STANDARD_INPUT else Path(file).read_bytes()
    except OSError as error:
        raise SystemExit(f"headworks: {file}: {error.strerror}") from error
