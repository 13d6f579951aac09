"""The `headworks` command, as a person types it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import Process


def headworks(*words: str, text: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADWORKS_")}
    return subprocess.run(
        [sys.executable, "-m", "controlplane.cli", *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=90,
        env={**kept, **environment},
        check=False,
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


def test_it_makes_users_tokens_and_join_tokens(data_dir: str) -> None:
    made = headworks("create-user", "ops", "--role", "operator", HEADWORKS_DATA_DIR=data_dir)
    assert made.returncode == 0, made.stderr
    assert len(made.stdout.strip()) >= 12
    token = headworks("create-token", "ops", "script", "--role", "operator", HEADWORKS_DATA_DIR=data_dir)
    assert token.stdout.startswith("hwt-"), token.stderr
    join = headworks("join-token", "gateway", "--name", "gateway-1", HEADWORKS_DATA_DIR=data_dir)
    assert join.stdout.startswith("hwj-"), join.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create-user", "admin", "--role", "admin"), "admin"),
        (("create-token", "nobody", "script"), "nobody"),
        (("join-token", "node", "--name", "Not A Name"), "name"),
    ],
)
def test_it_says_what_was_refused_and_exits_1(data_dir: str, words: tuple[str, ...], said: str) -> None:
    refused = headworks(*words, HEADWORKS_DATA_DIR=data_dir)
    assert refused.returncode == 1
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_bad_setting_is_named(data_dir: str) -> None:
    refused = headworks("web", HEADWORKS_DATA_DIR=data_dir, HEADWORKS_PORT="http")
    assert refused.returncode == 2
    assert "HEADWORKS_PORT: 'http' is not valid: give a whole number from 1 to 65535" in refused.stderr


def test_a_taken_port_is_named(data_dir: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = headworks("up", HEADWORKS_DATA_DIR=data_dir, HEADWORKS_PORT=port)
    assert refused.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr


def test_an_unknown_benchmark_is_refused_with_the_known_ones() -> None:
    refused = headworks("bench", "nothing")
    assert refused.returncode == 2
    assert "config_push" in refused.stderr


def test_the_embedded_worker_is_one_process_that_leaves_nothing_behind(data_dir: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "controlplane.cli", "worker"]
    log = tmp_path / "worker.log"
    environment = {"HEADWORKS_DATA_DIR": data_dir, "HEADWORKS_REDIS_URL": "", "PYTHONPATH": str(Path.cwd())}
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
