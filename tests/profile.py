"""Pytest plugin, loaded before Django reads its settings: the profile that this run tests.

`HEADWORKS_TEST_PROFILE=embedded` (default) is SQLite without any server, `production` is PostgreSQL and Redis, started
here. A user's own HEADWORKS_* settings never reach the tests.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.services import in_ci, missing_program

PROFILES = ("embedded", "production")
# What the second needs.
SERVERS = ("postgres", "initdb", "redis-server")
# Read by the tests themselves; every other HEADWORKS_ variable is a product's setting.
_OWN_VARIABLES = ("HEADWORKS_CI", "HEADWORKS_TEST_PROFILE")


class _Run:
    """What this run started, kept until pytest ends."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        self.skip_reason: str | None = None


_run = _Run()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        _prepare()
    elif base := os.environ.get("HEADWORKS_REDIS_URL"):
        number = int(worker.removeprefix("gw")) + 1
        os.environ["HEADWORKS_REDIS_URL"] = f"{base.rpartition('/')[0]}/{number}"
    return (yield)


def _prepare() -> None:
    profile = os.environ.get("HEADWORKS_TEST_PROFILE", "embedded")
    if profile not in PROFILES:
        raise pytest.UsageError(f"HEADWORKS_TEST_PROFILE is {profile!r}: give one of {', '.join(PROFILES)}")
    for name in [name for name in os.environ if name.startswith("HEADWORKS_") and name not in _OWN_VARIABLES]:
        del os.environ[name]
    os.environ["HEADWORKS_DATA_DIR"] = _run.stack.enter_context(tempfile.TemporaryDirectory(prefix="headworks-data-"))
    if profile == "production":
        _start_servers()


def _start_servers() -> None:
    if missing := missing_program(*SERVERS):
        if in_ci():
            raise pytest.UsageError(f"the production profile {missing}")
        _run.skip_reason = f"the production profile {missing}"
        return
    from tests.servers import postgres_server, redis_server

    os.environ["HEADWORKS_DATABASE_URL"] = _run.stack.enter_context(postgres_server())
    os.environ["HEADWORKS_REDIS_URL"] = _run.stack.enter_context(redis_server()) + "/0"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: to look through all of it for garbage, time and again, costs a tenth of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _run.skip_reason:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=_run.skip_reason))


def pytest_unconfigure() -> None:
    _run.stack.close()
