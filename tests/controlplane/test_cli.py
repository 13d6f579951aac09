"""The `headworks` command, as a person types it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from tests.services import Process, answers_ok, free_port

HEADWORKS = [sys.executable, "-m", "controlplane.cli"]


def headworks(*words: str, text: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return run([*HEADWORKS, *words], text=text, **environment)


def run(argv: list[str], *, text: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWORKS_")}
    return subprocess.run(
        argv, input=text, capture_output=True, text=True, timeout=90, env={**kept, **environment}, check=False
    )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A control plane that was prepared from nothing."""
    directory = tmp_path_factory.mktemp("cli")
    first = headworks("migrate", HEADWORKS_DATA_DIR=str(directory))
    assert first.returncode == 0, first.stderr
    assert "Made the user admin with the password" in first.stdout
    return str(directory)


def test_the_first_admin_is_made_once(data_dir: str) -> None:
    again = headworks("migrate", HEADWORKS_DATA_DIR=data_dir)
    assert (again.returncode, again.stdout) == (0, "")


def test_generated_secrets_are_readable_by_their_owner_only(data_dir: str) -> None:
    for name in ("secret-key", "field-key"):
        assert Path(data_dir, name).stat().st_mode & 0o777 == 0o600


def test_nobody_else_reads_what_it_writes_even_into_a_directory_that_was_there(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert headworks("migrate", HEADWORKS_DATA_DIR=str(tmp_path)).returncode == 0
    # Static files are what every browser gets.
    made = [path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "static")]
    assert tmp_path / "headworks.sqlite3" in made
    assert [path.name for path in made if path.stat().st_mode & 0o077] == []


def test_it_makes_users_tokens_and_join_tokens(data_dir: str) -> None:
    made = headworks("create-user", "ops", "--role", "operator", HEADWORKS_DATA_DIR=data_dir)
    assert made.returncode == 0, made.stderr
    assert len(made.stdout.strip()) >= 12
    token = headworks("create-token", "ops", "script", "--role", "operator", HEADWORKS_DATA_DIR=data_dir)
    assert token.stdout.startswith("hwt-"), token.stderr
    join = headworks("join-token", "gateway", "--name", "gateway-1", HEADWORKS_DATA_DIR=data_dir)
    assert join.stdout.startswith("hwj-"), join.stderr


def test_users_and_tokens_are_limited_to_tenants_and_scopes(data_dir: str) -> None:
    bounds = ("--tenant", "acme", "--tenant", "beta")
    made = headworks("create-user", "acme-ops", "--role", "operator", *bounds, HEADWORKS_DATA_DIR=data_dir)
    assert len(made.stdout.strip()) >= 12
    assert [f"there is no tenant {name!r} now" in made.stderr for name in ("acme", "beta")] == [True, True]
    narrow = ("--tenant", "beta", "--scope", "keys", "--scope", "metrics")
    token = headworks("create-token", "acme-ops", "narrow", *narrow, HEADWORKS_DATA_DIR=data_dir)
    assert token.stdout.startswith("hwt-"), token.stderr
    assert "there is no tenant 'beta' now" in token.stderr
    shown = (
        "from controlplane.core import api_tokens; "
        "print([(row.user.username, row.tenants, row.scopes) for row in api_tokens.page(None)[0]])"
    )
    stored = run([sys.executable, "manage.py", "shell", "-v", "0", "-c", shown], HEADWORKS_DATA_DIR=data_dir)
    assert "('acme-ops', ['beta'], ['keys', 'metrics'])" in stored.stdout, stored.stderr


def test_a_join_token_for_a_name_that_is_there_says_what_it_replaces(data_dir: str) -> None:
    enrolled = (
        "from django.utils import timezone; from controlplane.core.models import Target; Target.objects.create("
        "kind='node', name='rack-1', version='1', protocol=1, token_hash='0' * 64, token_expires_at=timezone.now())"
    )
    made = run([sys.executable, "manage.py", "shell", "-c", enrolled], HEADWORKS_DATA_DIR=data_dir)
    assert made.returncode == 0, made.stderr
    replacing = headworks("join-token", "node", "--name", "rack-1", HEADWORKS_DATA_DIR=data_dir)
    assert replacing.stderr == "headworks: there is a node 'rack-1': who joins with this token takes its place\n"
    assert replacing.stdout.startswith("hwj-")
    of_another_kind = headworks("join-token", "gateway", "--name", "rack-1", HEADWORKS_DATA_DIR=data_dir)
    assert of_another_kind.stderr == ""


def test_a_machine_without_static_files_serves_no_broken_pages(tmp_path: Path, data_dir: str) -> None:
    shutil.copytree(data_dir, tmp_path / "data", ignore=shutil.ignore_patterns("static"))
    refused = headworks("web", HEADWORKS_DATA_DIR=str(tmp_path / "data"), HEADWORKS_PORT=str(free_port()))
    assert refused.returncode == 1
    assert refused.stderr == (
        f"headworks: there are no static files in {tmp_path}/data/static; run `headworks migrate` here too\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create-user", "admin", "--role", "admin"), "admin"),
        (("create-token", "nobody", "script"), "nobody"),
        (("create-user", "boss", "--role", "admin", "--tenant", "acme"), "an admin is of the whole fleet"),
        (("create-token", "admin", "script", "--scope", "keyz"), "no such scope; there are"),
        (("join-token", "node", "--name", "Not A Name"), "name"),
    ],
)
def test_it_says_what_was_refused_and_exits_1(data_dir: str, words: tuple[str, ...], said: str) -> None:
    refused = headworks(*words, HEADWORKS_DATA_DIR=data_dir)
    assert refused.returncode == 1
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("command", ["up", "web", "worker", "migrate", "join-token gateway"])
@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("HEADWORKS_PORT", "http", "'http' is not valid: give a whole number from 1 to 65535"),
        ("HEADWORKS_FIELD_KEY", "geheim", "its value is not valid: give 32 random bytes in URL-safe base64"),
    ],
)
def test_a_bad_setting_stops_every_command_and_leaves_nothing(
    tmp_path: Path, command: str, name: str, value: str, right: str
) -> None:
    refused = headworks(*command.split(), HEADWORKS_DATA_DIR=str(tmp_path / "data"), **{name: value})
    assert refused.returncode == 2
    assert f"{name}: {right}" in refused.stderr
    assert value not in refused.stderr.replace("'http'", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["create-user ops", "create-token ops script", "join-token node", "web", "worker"])
def test_where_there_is_no_database_it_says_so_and_makes_nothing(tmp_path: Path, command: str) -> None:
    refused = headworks(*command.split(), HEADWORKS_DATA_DIR=str(tmp_path / "data"))
    assert refused.returncode == 1
    assert f"there is no database in {tmp_path / 'data'}; run `headworks up`" in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["up", "web", "migrate", "join-token node"])
def test_a_postgresql_that_does_not_answer_is_named_without_its_password(tmp_path: Path, command: str) -> None:
    port = free_port()
    url = f"postgres://headworks:geheim@127.0.0.1:{port}/headworks"
    refused = headworks(*command.split(), HEADWORKS_DATA_DIR=str(tmp_path), HEADWORKS_DATABASE_URL=url)
    assert refused.returncode == 1
    assert f"the database at 127.0.0.1:{port} does not answer" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert "geheim" not in refused.stderr


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "headworks.sqlite3").write_bytes(b"torn" * 4096)
    refused = headworks("web", HEADWORKS_DATA_DIR=str(tmp_path), HEADWORKS_PORT=str(free_port()))
    assert refused.returncode == 1
    assert f"the database {tmp_path}/headworks.sqlite3 cannot be opened" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_database_of_an_older_version_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "headworks.sqlite3").touch()
    refused = headworks("web", HEADWORKS_DATA_DIR=str(tmp_path), HEADWORKS_PORT=str(free_port()))
    assert (refused.returncode, "run `headworks migrate`" in refused.stderr) == (1, True), refused.stderr


@pytest.mark.parametrize("command", ["up", "web", "worker", "migrate"])
def test_a_field_key_other_than_the_first_one_starts_nothing(data_dir: str, command: str) -> None:
    environment = {"HEADWORKS_DATA_DIR": data_dir, "HEADWORKS_PORT": str(free_port())}
    refused = headworks(command, HEADWORKS_FIELD_KEY=Fernet.generate_key().decode(), **environment)
    assert refused.returncode == 1
    assert "set HEADWORKS_FIELD_KEY to that key" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["up", "web", "worker", "migrate"])
def test_a_lost_field_key_is_not_made_anew(tmp_path: Path, data_dir: str, command: str) -> None:
    shutil.copy(Path(data_dir, "headworks.sqlite3"), tmp_path)
    refused = headworks(command, HEADWORKS_DATA_DIR=str(tmp_path), HEADWORKS_PORT=str(free_port()))
    assert refused.returncode == 1
    assert f"restore {tmp_path / 'field-key'} from your backup" in refused.stderr
    assert not (tmp_path / "field-key").exists()


@pytest.mark.parametrize("name", ["field-key", "secret-key"])
def test_an_empty_key_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    refused = headworks("migrate", HEADWORKS_DATA_DIR=str(tmp_path))
    assert refused.returncode == 1
    assert f"{tmp_path / name} holds no usable key" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["up", "migrate"])
def test_a_full_disk_is_one_sentence_and_harms_no_later_start(tmp_path: Path, command: str) -> None:
    environment = {"HEADWORKS_DATA_DIR": str(tmp_path), "HEADWORKS_PORT": str(free_port())}
    # No byte can be written, as on a full disk.
    refused = run(["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *HEADWORKS, command], **environment)
    assert refused.returncode == 1
    assert f"the database {tmp_path}/headworks.sqlite3 cannot be opened" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    later = headworks("migrate", **environment)
    assert later.returncode == 0, later.stderr


def test_a_data_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = headworks("migrate", HEADWORKS_DATA_DIR=str(tmp_path / "file" / "data"))
    assert refused.returncode == 1
    assert "cannot be written" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_an_address_of_another_machine_is_not_called_a_taken_port(data_dir: str) -> None:
    refused = headworks("up", HEADWORKS_DATA_DIR=data_dir, HEADWORKS_HOST="192.0.2.1")
    assert refused.returncode == 1
    assert "set HEADWORKS_HOST to an address of this machine" in refused.stderr
    assert "HEADWORKS_PORT" not in refused.stderr


def test_behind_a_proxy_it_starts_and_is_watched_by_address_while_pages_need_the_right_host(tmp_path: Path) -> None:
    port = free_port()
    environment = {
        "HEADWORKS_DATA_DIR": str(tmp_path / "data"),
        "HEADWORKS_PORT": str(port),
        "HEADWORKS_DATABASE_URL": "",
        "HEADWORKS_REDIS_URL": "",
        "HEADWORKS_HTTPS": "true",
        "HEADWORKS_ALLOWED_HOSTS": "headworks.example",
    }
    log = tmp_path / "up.log"
    argv = [sys.executable, "-m", "controlplane.cli", "up"]
    with Process(argv, log=log, environment=environment, stop_signal=signal.SIGINT) as up:
        # Before the web process is ready: it is stored nowhere, and must not be lost where that fails.
        up.wait_until(lambda: "Log in as admin" in log.read_text(), "the first log-in", 60)
        assert "Headworks: http" not in log.read_text()
        up.wait_until(lambda: f"Headworks: http://127.0.0.1:{port}" in log.read_text(), "the start", 60)
        for path in ("healthz", "readyz", "metrics"):
            assert answers_ok(f"http://127.0.0.1:{port}/{path}")
        assert not answers_ok(f"http://127.0.0.1:{port}/login/")
        assert up.stop(30) == 0
    assert log.read_text().splitlines()[-1] == "Stopped"


def test_a_taken_port_is_named(data_dir: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = headworks("up", HEADWORKS_DATA_DIR=data_dir, HEADWORKS_PORT=port)
    assert refused.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert "set HEADWORKS_PORT to a free port" in refused.stderr


def test_an_unknown_benchmark_is_refused_with_the_known_ones_from_whatever_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.chdir(tmp_path)
    refused = headworks("bench", "nothing")
    assert refused.returncode == 2
    assert "config_push" in refused.stderr


@pytest.mark.parametrize("name", ["agent", "config_push", "gateway", "telemetry"])
def test_a_benchmark_that_is_asked_for_help_does_not_run(name: str) -> None:
    helped = headworks("bench", name, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    assert helped.stdout.startswith("usage:")
    assert '"benchmark"' not in helped.stdout


def test_the_embedded_worker_is_one_process_that_leaves_nothing_behind(data_dir: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "controlplane.cli", "worker"]
    log = tmp_path / "worker.log"
    embedded = {"HEADWORKS_DATABASE_URL": "", "HEADWORKS_REDIS_URL": ""}
    environment = {**embedded, "HEADWORKS_DATA_DIR": data_dir, "PYTHONPATH": str(Path.cwd())}
    with Process(argv, log=log, environment=environment, cwd=tmp_path) as worker:
        worker.wait_until(lambda: "ready" in worker.log_tail(), "the worker to be ready")
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        assert children == []
        assert worker.stop() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["worker.log"]


def test_a_beat_without_redis_is_refused_since_the_worker_is_it(data_dir: str) -> None:
    refused = headworks("beat", HEADWORKS_DATA_DIR=data_dir)
    assert refused.returncode == 2
    assert "HEADWORKS_REDIS_URL" in refused.stderr


def test_up_runs_the_beat_too_where_redis_carries_the_work(tmp_path: Path, redis_url: str) -> None:
    environment = {
        "HEADWORKS_DATA_DIR": str(tmp_path),
        "HEADWORKS_PORT": str(free_port()),
        "HEADWORKS_DATABASE_URL": "",
        "HEADWORKS_REDIS_URL": redis_url,
    }
    argv = [sys.executable, "-m", "controlplane.cli", "up"]
    with Process(argv, log=tmp_path / "up.log", environment=environment) as up:
        up.wait_until(lambda: said(tmp_path / "log/beat.log", "beat v"), "the beat", 60)
        up.wait_until(lambda: said(tmp_path / "log/worker.log", "ready"), "the worker")
        up.stop(30)


def said(log: Path, words: str) -> bool:
    return log.exists() and words in log.read_text()


def test_a_reader_that_stops_early_is_no_error_of_ours() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*HEADWORKS, "plan", "--list"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
