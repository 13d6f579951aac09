"""The `headworks` command: run the control plane, its demo and its benchmarks, and make the first log-in."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from controlplane import config_commands
from controlplane import settings_rows as rows
from controlplane.alerts import alert_commands, receiver_commands, rule_commands
from controlplane.batches import commands as batch_commands
from controlplane.batches import settings_rows as batch_rows
from controlplane.core import access_commands, oidc_rows
from controlplane.core.kept import CannotStart
from controlplane.demo.ports import FIRST_PORT_MAX
from controlplane.diagnosis import commands as diagnosis_commands
from controlplane.fleet import act_commands, manifest_command, version_commands
from controlplane.planner import plan_command, what_if_commands
from controlplane.rollouts import commands as rollout_commands
from controlplane.scaling import commands as scaling_commands
from controlplane.telemetry import settings_rows as telemetry_rows
from controlplane.web import overview_command
from wire.settings import BadSetting, check_all, whole_number

if TYPE_CHECKING:
    from controlplane.core.changes import UnitOfWork


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit status is 0 when it did what it says, 1 when not, 2 for a usage error.

    141, as of a program that SIGPIPE ends, where nobody reads its output to the end: `headworks plan … | head`.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    # Databases, logs and queued tasks hold what only this user may read, in a directory that may be older than we.
    os.umask(0o077)
    arguments = _parser().parse_args(argv)
    try:
        check_all((*rows.SETTINGS, *telemetry_rows.SETTINGS, *batch_rows.SETTINGS, *oidc_rows.SETTINGS))
        status = int(arguments.run(arguments) or 0)
        # Here, where a pipe without a reader is seen, and not by the interpreter as it ends.
        sys.stdout.flush()
        return status
    except (BadSetting, CannotStart) as error:
        print(f"headworks: {error}", file=sys.stderr)
        return 2 if isinstance(error, BadSetting) else 1
    except BrokenPipeError:
        # What is left in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headworks", description="The control plane for a self-hosted LLM fleet.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int | None], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    add(
        "up",
        _up,
        "Prepare the database, then run web, worker and, with Redis, beat; start again what ends. Ctrl-C stops all.",
    )
    add("web", _web, "Run the web process: REST, pages, config streams.")
    add("worker", _worker, "Run a worker: scheduled work. Without Redis it is also the beat.")
    add("beat", _beat, "Run the beat, which hands scheduled work to the workers. One for all, where there is Redis.")
    add("migrate", _migrate, "Bring the database to this version, and collect the static files.")
    access_commands.add_to(commands, _unit_from_shell)
    config_commands.add_to(commands, _unit_from_shell)
    version_commands.add_to(commands, _unit_from_shell)
    act_commands.add_to(commands, _unit_from_shell)
    rollout_commands.add_to(commands, _unit_from_shell)
    alert_commands.add_to(commands, _unit_from_shell)
    rule_commands.add_to(commands, _unit_from_shell)
    receiver_commands.add_to(commands, _unit_from_shell)
    overview_command.add_to(commands, _unit_from_shell)
    diagnosis_commands.add_to(commands, _unit_from_shell)
    plan_command.add_to(commands)
    scaling_commands.add_to(commands)
    what_if_commands.add_to(commands, _unit_from_shell)
    manifest_command.add_to(commands)
    batch_commands.add_to(commands, _unit_from_shell)
    add(
        "export-metrics",
        _export_metrics,
        "Send the samples of the embedded store to the server that HEADWORKS_REMOTE_WRITE_URL names. Run again, it "
        "goes on where it stopped.",
    )
    demo = add("demo", _demo, "Run a whole fleet with simulated engines on this machine.")
    demo.add_argument(
        "--check", action="store_true", help="walk through the loops, print each step with its time, stop"
    )
    demo.add_argument(
        "--loop", choices=["all", "quota", "fault", "acts"], default="all", help="with --check: which loop"
    )
    demo.add_argument(
        "--port",
        type=_first_port,
        default=8600,
        help="port of the web process, which the others follow (default: %(default)s); a check takes free ones",
    )
    demo.add_argument(
        "--profile",
        choices=["embedded", "environment"],
        default="embedded",
        help="embedded: SQLite and no Redis; environment: the empty database and the Redis that HEADWORKS_DATABASE_URL "
        "and HEADWORKS_REDIS_URL name",
    )
    bench = add(
        "bench", _bench, "Run a benchmark: a table, then one line of JSON; exit status 0 only if its targets hold."
    )
    bench.add_argument("name", help="a file of bench/, without .py")
    bench.add_argument("options", nargs=argparse.REMAINDER, help="options of the benchmark itself")
    return parser


def _first_port(text: str) -> int:
    try:
        return whole_number(1, FIRST_PORT_MAX)(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _setup_django() -> None:
    import django

    django.setup()


def _open_database() -> None:
    """Django, with a database that is there and of this version. Raises CannotStart, and makes nothing."""
    file = rows.sqlite_file()
    if file and not file.exists():
        raise CannotStart(
            f"there is no database in {file.parent}; run `headworks up` or `headworks migrate` there, or set "
            "HEADWORKS_DATA_DIR"
        )
    _setup_django()
    from controlplane.core import start

    start.reach_database()
    start.require_this_version()


def _open_with_keys() -> None:
    """For a process that serves or works. Raises CannotStart."""
    _open_database()
    from controlplane.batches.store import store
    from controlplane.core import start

    # What it needs must be installed; whether it answers is seen when it is used.
    store()
    with _plain_storage_trouble():
        start.settle_keys()


@contextmanager
def _plain_storage_trouble() -> Iterator[None]:
    """Turn what a full, damaged or read-only disk brings into one sentence. Raises CannotStart."""
    from django.db import Error

    try:
        yield
    except (OSError, Error) as error:
        directory = rows.DATA_DIR.read().absolute()
        raise CannotStart(f"the database or the data directory {directory} cannot be written: {error}") from error


class FirstAdmin(NamedTuple):
    username: str
    password: str


def prepare() -> FirstAdmin | None:
    """Migrate, collect static files, and make the first admin where there is no user; returns it, once.

    Raises CannotStart.
    """
    with _plain_storage_trouble():
        _setup_django()
        from controlplane.core import start

        start.reach_database()
        return _prepare()


def _prepare() -> FirstAdmin | None:
    from django.core.management import call_command

    from controlplane.alerts.services.inhibition_pack import load_inhibitions
    from controlplane.alerts.services.rule_pack import load_pack
    from controlplane.configs.step import touch_everything
    from controlplane.core import start, users
    from controlplane.core.changes import SYSTEM, Actor, unit_of_work
    from controlplane.core.models import Role, User

    call_command("migrate", interactive=False, verbosity=0)
    start.settle_keys()
    call_command("collectstatic", interactive=False, verbosity=0)
    with unit_of_work(SYSTEM, "what this version compiles differently from the one before") as unit:
        touch_everything(unit)
    if rows.RULE_PACK.read():
        with unit_of_work(SYSTEM, "the alerting rules that this version brings") as unit:
            load_pack(unit)
            load_inhibitions(unit)
    if User.objects.exists():
        return None
    admin = FirstAdmin("admin", secrets.token_urlsafe(12))
    with unit_of_work(Actor("shell", "headworks"), "first start: somebody must be able to log in") as unit:
        users.create(unit, admin.username, {"role": Role.ADMIN, "password": admin.password})
    return admin


def _address(host: str, port: int) -> str:
    """Where this machine reaches what listens on `host`."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def _up(arguments: argparse.Namespace) -> int:
    from controlplane.processes import Child, StartFailed, Supervisor, workers

    host, port = rows.HOST.read(), rows.PORT.read()
    _check_listener(host, port)
    if admin := prepare():
        # At once: it is stored nowhere, and what follows may fail.
        print(f"Log in as {admin.username} with the password {admin.password} (made now, shown this once)", flush=True)
    log_dir = rows.DATA_DIR.read().absolute() / "log"
    address = _address(host, port)
    _stopped_by_signals()
    with Supervisor() as supervisor:
        try:
            supervisor.start(Child("web", command("web"), log_dir=log_dir, ready_url=f"{address}/readyz"))
            for name in workers(rows.REDIS_URL.read()):
                supervisor.start(Child(name, command(name), log_dir=log_dir))
            print(f"Headworks: {address}", flush=True)
            supervisor.watch()
        except StartFailed as error:
            print(f"headworks: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            # Asked to end, it ends well.
            print("\nStopping …", flush=True)
    print("Stopped", flush=True)
    return 0


def _check_listener(host: str, port: int) -> None:
    """Raises CannotStart saying which setting would be right."""
    from controlplane.serve import CannotListen, PortTaken, check_port_free

    try:
        check_port_free(host, port)
    except PortTaken as error:
        raise CannotStart(f"{error}; set HEADWORKS_PORT to a free port") from error
    except CannotListen as error:
        raise CannotStart(f"{error}; set HEADWORKS_HOST to an address of this machine") from error


def _stopped_by_signals() -> None:
    """From now on SIGTERM ends the command as Ctrl-C does, so that its children are stopped.

    SIGINT too: a shell that starts a command in the background has it ignored.
    """

    def interrupt(*_: object) -> None:
        # Once: an impatient second Ctrl-C would leave children behind.
        for end in ends:
            signal.signal(end, signal.SIG_IGN)
        raise KeyboardInterrupt

    ends = (signal.SIGTERM, signal.SIGINT)
    for end in ends:
        signal.signal(end, interrupt)


def command(*words: str) -> list[str]:
    """The argument list that runs one of this program's own commands."""
    return [sys.executable, "-m", "controlplane.cli", *words]


def _web(arguments: argparse.Namespace) -> None:
    from controlplane.serve import Listener, serve

    host, port = rows.HOST.read(), rows.PORT.read()
    _check_listener(host, port)
    _open_with_keys()
    from django.conf import settings

    from controlplane.asgi import application
    from controlplane.configs.hub import hub
    from controlplane.core import start

    start.require_static_files()
    listener = Listener(host, port, rows.MAX_CONNECTIONS.read())
    serve(application, listener, Path(settings.STATIC_ROOT), hub.drain)


def _worker(arguments: argparse.Namespace) -> None:
    _open_with_keys()
    from controlplane.celery import run_worker

    run_worker()


def _beat(arguments: argparse.Namespace) -> int:
    if not rows.REDIS_URL.read():
        print("headworks: without HEADWORKS_REDIS_URL the worker is the beat as well", file=sys.stderr)
        return 2
    _open_with_keys()
    from controlplane.celery import run_beat

    run_beat()
    return 0


def _migrate(arguments: argparse.Namespace) -> None:
    if admin := prepare():
        print(f"Made the user {admin.username} with the password {admin.password} (shown this once)")


@contextmanager
def _unit_from_shell(reason: str, dry_run: bool) -> Iterator[UnitOfWork]:
    """A write by who may run this program. What is refused ends it with status 1."""
    _open_database()
    from controlplane.core.changes import Actor, unit_of_work
    from controlplane.core.errors import Refused
    from controlplane.core.fields import SHOWN_PROBLEMS

    try:
        with _plain_storage_trouble(), unit_of_work(Actor("shell", "headworks"), reason, dry_run=dry_run) as unit:
            yield unit
    except Refused as error:
        # The message has the first few.
        more = [f"{problem.path}: {problem.message}" for problem in error.problems[SHOWN_PROBLEMS:]]
        raise SystemExit("\n".join([f"headworks: {error}", *more])) from error


def _export_metrics(arguments: argparse.Namespace) -> int:
    url = telemetry_rows.REMOTE_WRITE_URL.read()
    if not url:
        print("headworks: set HEADWORKS_REMOTE_WRITE_URL to the server that shall have the samples", file=sys.stderr)
        return 2
    _open_database()
    from controlplane.telemetry import export
    from controlplane.telemetry.receiver import store_path
    from controlplane.telemetry.store.database import StoreUnavailable

    if not store_path().exists():
        raise CannotStart(f"there are no samples in {store_path().parent}")
    try:
        with _plain_storage_trouble():
            done = export.export(store_path(), url, int(time.time() * 1000), lambda said: print(said, flush=True))
    except (export.CannotExport, StoreUnavailable) as error:
        raise CannotStart(str(error)) from error
    print(f"{done.samples:,} samples were sent, of which {done.refused:,} were refused")
    return 1 if done.refused else 0


def _demo(arguments: argparse.Namespace) -> int:
    from controlplane.demo.run import run_demo
    from controlplane.demo_check.run import run_check

    _stopped_by_signals()
    if arguments.check:
        return run_check(arguments.loop, arguments.profile)
    return run_demo(arguments.port, arguments.profile)


def _bench(arguments: argparse.Namespace) -> int:
    known = sorted(file.stem for file in (Path(__file__).resolve().parents[1] / "bench").glob("[a-z]*.py"))
    if arguments.name not in known:
        print(
            f"headworks: no benchmark {arguments.name!r}; there are: {', '.join(known) or 'none here'}", file=sys.stderr
        )
        return 2
    return subprocess.run([sys.executable, "-m", f"bench.{arguments.name}", *arguments.options], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
