"""The tests' own machinery, on which every other result rests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import redis
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from controlplane.core import users
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.models import AuditEntry, User
from tests import programs
from tests.__main__ import Totals, read_totals
from tests.conftest import _mark
from tests.connections import close_those_left
from tests.services import Process, accepts, free_port, service_binary, wait_for

ROOT = Path(__file__).resolve().parents[1]


def test_a_missing_program_skips_by_name_on_a_users_machine(monkeypatch):
    monkeypatch.setitem(programs.PROGRAMS, "jq", programs.Program("jq-package", "no-such-command"))
    monkeypatch.delenv("HEADWORKS_CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="needs jq: apt-get install jq-package"):
        service_binary("jq")


def test_a_missing_program_fails_in_ci(monkeypatch):
    monkeypatch.setitem(programs.PROGRAMS, "jq", programs.Program("jq-package", "no-such-command"))
    monkeypatch.setenv("HEADWORKS_CI", "1")
    with pytest.raises(pytest.fail.Exception, match="needs jq: apt-get install jq-package"):
        service_binary("jq")


def test_the_newest_version_outside_path_is_found(tmp_path):
    for version in ("14", "15"):
        folder = tmp_path / version
        folder.mkdir()
        (folder / "no-such-command").touch()
    program = programs.Program("any", "no-such-command", (f"{tmp_path.relative_to('/')}/*/no-such-command",))
    assert program.find() == tmp_path / "15" / "no-such-command"


def test_waiting_names_what_did_not_come():
    with pytest.raises(AssertionError, match=r"waited 0\.1 s for a ship; last answer: 0"):
        wait_for(lambda: 0, timeout_s=0.1, what="a ship")


def test_a_process_that_ends_early_is_reported_with_its_log(tmp_path):
    argv = [sys.executable, "-c", "import sys; sys.exit('the disk is full')"]
    with (
        Process(argv, log=tmp_path / "log") as process,
        pytest.raises(AssertionError, match=r"ended with 1 before .*\n.*the disk is full"),
    ):
        process.wait_for_port(free_port())


def test_a_process_that_ignores_the_request_to_end_is_killed_and_fails_the_test(tmp_path):
    ready = tmp_path / "ready"
    ignore = "import pathlib, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code = f"{ignore}; pathlib.Path(sys.argv[1]).touch(); signal.pause()"
    with Process([sys.executable, "-c", code, ready], log=tmp_path / "log") as process:
        process.wait_until(ready.exists, "the handler")
        with pytest.raises(AssertionError, match=r"did not end within 0\.2 s of SIGTERM"):
            process.stop(timeout_s=0.2)
        assert process.exit_code == -signal.SIGKILL


def test_a_failing_block_prints_the_log_and_ends_the_process(tmp_path, capsys):
    port = free_port()
    argv = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", tmp_path]
    with pytest.raises(ZeroDivisionError), Process(argv, log=tmp_path / "log") as process:  # noqa: PT012
        process.wait_for_http(f"http://127.0.0.1:{port}/")
        raise ZeroDivisionError
    assert '"GET / HTTP/1.1" 200' in capsys.readouterr().err
    assert process.exit_code == -signal.SIGTERM
    assert not accepts(port)


def test_postgres_is_real_and_its_user_may_create_databases(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT current_setting('server_version_num')::int, rolcreatedb FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
    assert row is not None
    assert row[0] >= 140_000
    assert row[1] is True


@pytest.mark.django_db
def test_django_tests_the_database_of_the_profile():
    from django.db import connection

    with connection.cursor() as cursor:
        if os.environ.get("HEADWORKS_TEST_PROFILE") == "production":
            cursor.execute("SELECT version()")
            assert cursor.fetchone()[0].startswith("PostgreSQL")
        else:
            cursor.execute("PRAGMA journal_mode")
            assert cursor.fetchone()[0] == "wal"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("turn", [1, 2])
def test_what_one_test_commits_the_next_does_not_find(turn):
    assert not User.objects.exists()
    assert not AuditEntry.objects.exists()
    with unit_of_work(SYSTEM, "for a test") as unit:
        users.create(unit, "ada", {"role": "admin", "password": "correct horse battery"})
    assert AuditEntry.objects.exists()
    with pytest.raises(DatabaseError, match="never changed or removed"), transaction.atomic():
        AuditEntry.objects.all()._raw_delete(using=DEFAULT_DB_ALIAS)


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_a_thread_leaves_is_closed_with_the_database() -> None:
    left: list[BaseDatabaseWrapper] = []

    def ask() -> None:
        User.objects.exists()
        left.append(connections[DEFAULT_DB_ALIAS])

    with ThreadPoolExecutor(1) as threads:
        threads.submit(ask).result()
        assert left[0].connection is not None
        close_those_left()
    assert left[0].connection is None
    assert not User.objects.exists(), "one that was closed is opened anew"


@pytest.mark.parametrize(
    ("file", "names", "marked"),
    [
        ("controlplane/core/test_it.py", {"db"}, {"controlplane"}),
        ("controlplane/core/test_it.py", {"tmp_path"}, set()),
        ("test_it.py", {"db"}, {"controlplane"}),
        ("web/test_it.py", {"db"}, {"controlplane", "once"}),
        ("web/test_it.py", {"db", "both_databases"}, {"controlplane"}),
        ("web/test_it.py", {"transactional_db"}, {"controlplane"}),
        ("web/test_it.py", {"tmp_path"}, set()),
        ("gateway/test_it.py", {"live"}, {"controlplane", "once"}),
        ("gateway/test_it.py", {"live", "own_servers"}, set()),
    ],
)
def test_what_only_needs_a_database_behind_it_runs_once_and_the_control_planes_own_on_both(file, names, marked):
    added: set[str] = set()
    item: Any = SimpleNamespace(
        path=ROOT / "tests" / file,
        fixturenames=names,
        iter_markers=list,
        get_closest_marker=lambda name: name in names or None,
        add_marker=lambda mark: added.add(mark.name),
    )
    _mark([item])
    assert added == marked


def test_a_page_that_commits_runs_on_both():
    added: set[str] = set()
    item: Any = SimpleNamespace(
        path=ROOT / "tests" / "web" / "test_it.py",
        iter_markers=lambda: [pytest.mark.django_db.mark],
        get_closest_marker={"django_db": pytest.mark.django_db(transaction=True).mark}.get,
        add_marker=lambda mark: added.add(mark.name),
    )
    _mark([item])
    assert added == {"controlplane"}


def test_redis_is_real(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        client.set("test_redis_is_real", "yes", ex=60)
        assert client.get("test_redis_is_real") == b"yes"


def test_totals_count_errors_as_failed(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3"/></testsuites>')
    assert read_totals(report, 1) == Totals(passed=3, failed=3, skipped=3)
    assert str(read_totals(report, 1)) == "3 passed, 3 failed, 3 skipped"


@pytest.mark.parametrize("content", [None, '<testsuites><testsuite tests="0"/></testsuites>'])
def test_a_run_without_a_result_is_a_failure(tmp_path, content):
    report = tmp_path / "report.xml"
    if content:
        report.write_text(content)
    assert read_totals(report, 5) == Totals(failed=1)


def test_the_list_of_packages_needs_no_installed_library():
    argv = [sys.executable, "-S", "-m", "tests.programs"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert listed == sorted({program.package for program in programs.PROGRAMS.values()})
