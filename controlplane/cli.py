"""The `headworks` command: run the control plane, its demo and its benchmarks, and make the first log-in."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from wire.settings import BadSetting


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit status is 0 when it did what it says, 1 when not, 2 for a usage error."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments) or 0)
    except BadSetting as error:
        print(f"headworks: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headworks", description="The control plane for a self-hosted LLM fleet.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int | None], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    add("up", _up, "Prepare the database, then run web and worker, and start again what ends. Ctrl-C stops both.")
    add("web", _web, "Run the web process: REST, pages, config streams.")
    add("worker", _worker, "Run a worker: scheduled work. Without Redis it is also the beat.")
    add("beat", _beat, "Run the beat, which hands scheduled work to the workers. One for all, where there is Redis.")
    add("migrate", _migrate, "Bring the database to this version, and collect the static files.")
    user = add(
        "create-user", _create_user, "Make a user; its password is read from standard input, or made and printed."
    )
    user.add_argument("username")
    user.add_argument("--role", choices=["viewer", "operator", "admin"], default="viewer")
    user.add_argument("--password-stdin", action="store_true", help="read the password from standard input")
    token = add("create-token", _create_token, "Make an API token for a user and print it, this once.")
    token.add_argument("username")
    token.add_argument("name")
    token.add_argument("--role", choices=["viewer", "operator", "admin"], default="viewer")
    token.add_argument("--days", type=int, default=90)
    join = add(
        "join-token", _join_token, "Make a join token, with which one gateway or node agent enrols, and print it."
    )
    join.add_argument("kind", choices=["gateway", "node"])
    join.add_argument("--name", default="", help="the only name it is good for (default: any)")
    demo = add("demo", _demo, "Run a whole fleet with simulated engines on this machine.")
    demo.add_argument(
        "--check", action="store_true", help="walk through the loops, print each step with its time, stop"
    )
    demo.add_argument("--loop", choices=["all", "quota"], default="all", help="with --check: which loop")
    demo.add_argument("--port", type=int, default=8600, help="port of the web process; the others follow it")
    bench = add(
        "bench", _bench, "Run a benchmark: a table, then one line of JSON; exit status 0 only if its targets hold."
    )
    bench.add_argument("name", help="a file of bench/, without .py")
    bench.add_argument("options", nargs=argparse.REMAINDER, help="options of the benchmark itself")
    return parser


def _setup_django() -> None:
    import django

    django.setup()


class FirstAdmin(NamedTuple):
    username: str
    password: str


def prepare() -> FirstAdmin | None:
    """Migrate, collect static files, and make the first admin where there is no user; returns it, once."""
    _setup_django()
    from django.core.management import call_command

    from controlplane.configs.step import touch_everything
    from controlplane.core import users
    from controlplane.core.changes import SYSTEM, Actor, unit_of_work
    from controlplane.core.models import Role, User

    call_command("migrate", interactive=False, verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    with unit_of_work(SYSTEM, "what this version compiles differently from the one before") as unit:
        touch_everything(unit)
    if User.objects.exists():
        return None
    admin = FirstAdmin("admin", secrets.token_urlsafe(12))
    with unit_of_work(Actor("shell", "headworks"), "first start: somebody must be able to log in") as unit:
        users.create(unit, admin.username, {"role": Role.ADMIN, "password": admin.password})
    return admin


def _announce(admin: FirstAdmin | None, address: str) -> None:
    print(f"Headworks: {address}")
    if admin:
        print(f"Log in as {admin.username} with the password {admin.password} (made now, shown this once)")
    sys.stdout.flush()


def _up(arguments: argparse.Namespace) -> int:
    from controlplane import settings_rows as rows
    from controlplane.processes import Child, StartFailed, Supervisor
    from controlplane.serve import PortTaken, check_port_free

    host, port = rows.HOST.read(), rows.PORT.read()
    try:
        check_port_free(host, port)
    except PortTaken as error:
        print(f"headworks: {error}", file=sys.stderr)
        return 1
    admin = prepare()
    log_dir = rows.DATA_DIR.read().absolute() / "log"
    address = f"http://{host}:{port}"
    _stopped_by_signals()
    with Supervisor() as supervisor:
        try:
            supervisor.start(Child("web", command("web"), log_dir=log_dir, ready_url=f"{address}/readyz"))
            supervisor.start(Child("worker", command("worker"), log_dir=log_dir))
        except StartFailed as error:
            print(f"headworks: {error}", file=sys.stderr)
            return 1
        _announce(admin, address)
        supervisor.watch()
    return 0


def _stopped_by_signals() -> None:
    """From now on SIGTERM ends the command as Ctrl-C does, so that its children are stopped.

    SIGINT too: a shell that starts a command in the background has it ignored.
    """
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, signal.default_int_handler)


def command(*words: str) -> list[str]:
    """The argument list that runs one of this program's own commands."""
    return [sys.executable, "-m", "controlplane.cli", *words]


def _web(arguments: argparse.Namespace) -> int:
    from controlplane import settings_rows as rows
    from controlplane.serve import Listener, PortTaken, serve

    _setup_django()
    from django.conf import settings

    from controlplane.asgi import application
    from controlplane.configs.hub import hub

    try:
        listener = Listener(rows.HOST.read(), rows.PORT.read(), rows.MAX_CONNECTIONS.read())
        serve(application, listener, Path(settings.STATIC_ROOT), hub.drain)
    except PortTaken as error:
        print(f"headworks: {error}", file=sys.stderr)
        return 1
    return 0


def _worker(arguments: argparse.Namespace) -> None:
    _setup_django()
    from controlplane.celery import run_worker

    run_worker()


def _beat(arguments: argparse.Namespace) -> int:
    _setup_django()
    from controlplane.celery import EMBEDDED, run_beat

    if EMBEDDED:
        print("headworks: without HEADWORKS_REDIS_URL the worker is the beat as well", file=sys.stderr)
        return 2
    run_beat()
    return 0


def _migrate(arguments: argparse.Namespace) -> None:
    admin = prepare()
    if admin:
        print(f"Made the user {admin.username} with the password {admin.password} (shown this once)")


def _create_user(arguments: argparse.Namespace) -> int:
    _setup_django()
    from controlplane.core import users
    from controlplane.core.changes import Actor, unit_of_work
    from controlplane.core.errors import Refused

    password = sys.stdin.readline().rstrip("\n") if arguments.password_stdin else secrets.token_urlsafe(12)
    try:
        with unit_of_work(Actor("shell", "headworks"), "made from the shell") as unit:
            users.create(unit, arguments.username, {"role": arguments.role, "password": password})
    except Refused as error:
        print(f"headworks: {error}", file=sys.stderr)
        return 1
    if not arguments.password_stdin:
        print(password)
    return 0


def _create_token(arguments: argparse.Namespace) -> int:
    _setup_django()
    from controlplane.core import api_tokens
    from controlplane.core.changes import Actor, unit_of_work
    from controlplane.core.errors import Refused

    try:
        with unit_of_work(Actor("shell", "headworks"), "made from the shell") as unit:
            _, secret = api_tokens.create(unit, arguments.username, arguments.name, arguments.role, days=arguments.days)
    except Refused as error:
        print(f"headworks: {error}", file=sys.stderr)
        return 1
    print(secret)
    return 0


def _join_token(arguments: argparse.Namespace) -> int:
    _setup_django()
    from controlplane.core import enrolment
    from controlplane.core.changes import Actor, unit_of_work
    from controlplane.core.errors import Refused

    try:
        with unit_of_work(Actor("shell", "headworks"), "made from the shell") as unit:
            _, secret = enrolment.create_join_token(unit, arguments.kind, arguments.name)
    except Refused as error:
        print(f"headworks: {error}", file=sys.stderr)
        return 1
    print(secret)
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    from controlplane.demo import run_demo
    from controlplane.demo_check import run_check

    _stopped_by_signals()
    return run_check(arguments.loop) if arguments.check else run_demo(arguments.port)


def _bench(arguments: argparse.Namespace) -> int:
    known = sorted(file.stem for file in Path("bench").glob("[a-z]*.py"))
    if arguments.name not in known:
        print(
            f"headworks: no benchmark {arguments.name!r}; there are: {', '.join(known) or 'none here'}", file=sys.stderr
        )
        return 2
    return subprocess.run([sys.executable, "-m", f"bench.{arguments.name}", *arguments.options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
