"""`headworks rollout …`: begin one, see how it goes, pause, go on, take it back."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork

# A write by who may run this program: reason, and whether nothing is kept. Ends the program where it is refused.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]
_READING = "read from the shell"
_STANDARD_INPUT = "-"
_LOOK_SECONDS = 1.0
_OPEN = ("running", "paused", "returning")
_VERBS = {
    "pause": "Let a rollout stay where it is; a breach still takes it back.",
    "resume": "Let a rollout go on.",
    "return": "Take a rollout back: all as it was before, in one revision.",
    "abort": "End a rollout and leave all as it stands.",
}


def add_to(commands: Any, shell: Shell) -> None:
    """Add the command to those of the parser."""
    text = "Bring new engines into service, restart a pool, make warm spares: step by step, watched, with a way back."
    parser = commands.add_parser("rollout", help=text, description=text)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def add(name: str, run: Callable[..., int | None], text: str) -> argparse.ArgumentParser:
        verb: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(run=partial(run, shell))
        return verb

    begin = add("begin", _begin, "Begin a rollout as a JSON file says, in the form that POST /rollouts takes.")
    begin.add_argument("file", help="JSON; -: standard input")
    begin.add_argument("--dry-run", action="store_true", help="print the plan and what it costs in GPUs; begin nothing")
    begin.add_argument("--reason", required=True, help="why; kept in the audit")
    begin.add_argument("--follow", action="store_true", help="stay until it has ended; exit status 1 if not well")
    show = add("show", _show, "Print a rollout with its steps.")
    show.add_argument("rollout", type=_number)
    show.add_argument("--follow", action="store_true", help="stay until it has ended; exit status 1 if not well")
    for name, says in _VERBS.items():
        verb = add(name, partial(_change, name), says)
        verb.add_argument("rollout", type=_number)
        verb.add_argument("--reason", required=True, help="why; kept in the audit")


def _number(text: str) -> int:
    from wire.canonical import MAX_INTEGER
    from wire.settings import whole_number

    try:
        return whole_number(1, MAX_INTEGER)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _begin(shell: Shell, arguments: argparse.Namespace) -> int:
    fields = _read(arguments.file)
    with shell(arguments.reason, arguments.dry_run) as unit:
        from controlplane.rollouts import services, standing

        row = services.begin(unit, fields)
        shown = standing.with_steps(row)
    _print(shown, plan=arguments.dry_run)
    return _follow(shell, shown["id"]) if arguments.follow and not arguments.dry_run else 0


def _read(file: str) -> dict[str, Any]:
    try:
        text = sys.stdin.read() if file == _STANDARD_INPUT else Path(file).read_text()
        read = json.loads(text)
    except OSError as error:
        raise SystemExit(f"headworks: {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SystemExit(f"headworks: {file} is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise SystemExit(f"headworks: {file}: give an object with the fields of a rollout")
    return read


def _show(shell: Shell, arguments: argparse.Namespace) -> int:
    shown = _look(shell, arguments.rollout)
    _print(shown)
    return _follow(shell, arguments.rollout) if arguments.follow else 0


def _change(name: str, shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(arguments.reason, False) as unit:
        from controlplane.rollouts import services, standing

        acts = {"pause": services.pause, "resume": services.resume, "abort": services.abort,
                "return": services.take_back}  # fmt: skip
        shown = standing.with_steps(acts[name](unit, arguments.rollout))
    print(f"rollout {shown['id']}: {shown['state']}")


def _look(shell: Shell, rollout_id: int) -> dict[str, Any]:
    with shell(_READING, True):
        from controlplane.rollouts import standing

        return standing.with_steps(standing.get(rollout_id))


def _follow(shell: Shell, rollout_id: int) -> int:
    """Print what each step says when that changes, until the rollout has ended."""
    told: dict[int, tuple[str, str | None]] = {}
    while True:
        shown = _look(shell, rollout_id)
        for step in shown["steps"]:
            now = (step["state"], step["said"])
            if step["state"] != "waiting" and told.get(step["index"]) != now:
                print(_line(step), flush=True)
            told[step["index"]] = now
        if shown["state"] not in _OPEN:
            print(f"{shown['state']}: {shown['said'] or ''}", flush=True)
            return 0 if shown["state"] == "done" else 1
        time.sleep(_LOOK_SECONDS)


def _print(shown: dict[str, Any], *, plan: bool = False) -> None:
    what = "plan of a rollout" if plan else f"rollout {shown['id']}"
    pools = f"{shown['pool']} → {shown['new_pool']}" if shown["new_pool"] else shown["pool"]
    print(f"{what}: {shown['kind']} of {pools}, {shown['state']}: {shown['said'] or ''}")
    cost = shown["cost"]
    print(f"GPUs: {cost['gpus_before']} before, {cost['gpus_most']} at most, {cost['gpus_after']} after; "
          f"{cost['gpu_hours']:g} GPU-hours as planned, {cost['gpu_hours_most']:g} at its limits")  # fmt: skip
    for step, costs in zip(shown["steps"], [*cost["steps"], *[None] * len(shown["steps"])], strict=False):
        print(_line(step) + (f"  [{costs['gpus']} GPUs]" if costs else ""))


def _line(step: dict[str, Any]) -> str:
    about = step["arguments"].get("engines") or step["arguments"].get("share_permille")
    shown = ", ".join(about) if isinstance(about, list) else "" if about is None else f"{about} per mille"
    return f"{step['index']:3} {step['state']:8} {step['kind']:10} {shown}  {step['said'] or ''}".rstrip()
