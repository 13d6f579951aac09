"""`headworks create-user`, `create-token`, `join-token`: who may log in, call and enrol, from the shell."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork

# A write by who may run this program: reason, and whether nothing is kept. Ends the program where it is refused.
Shell = Callable[[str, bool], AbstractContextManager["UnitOfWork"]]
_MADE = "made from the shell"
_ROLE_HELP = "what it may do; docs/install.md tells of each (default: %(default)s)"


def add_to(commands: Any, shell: Shell) -> None:
    """Add the commands to those of the parser."""
    text = "Make a user; its password is read from standard input, or made and printed."
    user = commands.add_parser("create-user", help=text, description=text)
    user.add_argument("username")
    _add_role_and_tenants(user)
    user.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
    user.set_defaults(run=partial(_create_user, shell))
    text = "Make an API token for a user and print it, this once."
    token = commands.add_parser("create-token", help=text, description=text)
    token.add_argument("username")
    token.add_argument("name")
    _add_role_and_tenants(token)
    token.add_argument(
        "--scope",
        action="append",
        metavar="TAG",
        help="it makes the calls of this tag of /api/v1/docs alone, or `metrics`; as often as needed (default: all)",
    )
    token.add_argument("--days", type=int, default=90, help="it expires after so many (default: %(default)s)")
    token.set_defaults(run=partial(_create_token, shell))
    text = "Make a join token, with which one gateway or node agent enrols, and print it."
    join = commands.add_parser("join-token", help=text, description=text)
    join.add_argument("kind", choices=["gateway", "node"])
    join.add_argument("--name", default="", help="the only name it is good for (default: any)")
    join.set_defaults(run=partial(_join_token, shell))


def _add_role_and_tenants(command: argparse.ArgumentParser) -> None:
    command.add_argument("--role", choices=["viewer", "operator", "admin"], default="viewer", help=_ROLE_HELP)
    text = "limit it to this tenant; as often as needed (default: the whole fleet, or all that the user has)"
    command.add_argument("--tenant", action="append", metavar="NAME", help=text)


def _create_user(shell: Shell, arguments: argparse.Namespace) -> None:
    password = sys.stdin.readline().rstrip("\n") if arguments.password_stdin else secrets.token_urlsafe(12)
    with shell(_MADE, False) as unit:
        from controlplane.core import users

        given = {"role": arguments.role, "password": password, "tenants": arguments.tenant}
        users.create(unit, arguments.username, given)
    _print_warnings(unit)
    if not arguments.password_stdin:
        print(password)


def _create_token(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_MADE, False) as unit:
        from controlplane.core import api_tokens

        bounds = {"tenants": arguments.tenant, "scopes": arguments.scope}
        _, secret = api_tokens.create(
            unit, arguments.username, arguments.name, arguments.role, days=arguments.days, **bounds
        )
    _print_warnings(unit)
    print(secret)


def _print_warnings(unit: UnitOfWork) -> None:
    for warning in unit.warnings:
        print(f"headworks: {warning.message}", file=sys.stderr)


def _join_token(shell: Shell, arguments: argparse.Namespace) -> None:
    with shell(_MADE, False) as unit:
        from controlplane.core import enrolment

        _, secret = enrolment.create_join_token(unit, arguments.kind, arguments.name)
        replaces = enrolment.is_enrolled(arguments.kind, arguments.name)
    if replaces:
        print(
            f"headworks: there is a {arguments.kind} {arguments.name!r}: who joins with this token takes its place",
            file=sys.stderr,
        )
    print(secret)
