"""People of each role in a browser without scripts: Django's test client, logged in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from django.conf import settings as django_settings
from django.test import Client

from controlplane.configs import acks
from controlplane.configs.hub import heads
from controlplane.core import enrolment
from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work
from controlplane.core.models import Role, Target, User
from controlplane.tenants import services as tenants
from wire import PROTOCOL
from wire.messages import Ack, EnrolRequest
from wire.problems import Problem

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _plain_static_files(settings: Any) -> None:
    """Pages render without `collectstatic`, which only a real process needs."""
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**django_settings.STORAGES, "staticfiles": plain}


@pytest.fixture
def browser_of(db: None) -> Callable[[Role | None], Client]:
    def make(role: Role | None) -> Client:
        client = Client()
        if role is not None:
            client.force_login(User.objects.create(username=f"{role.value}-person", role=role))
        return client

    return make


@pytest.fixture
def admin(browser_of: Callable[[Role | None], Client]) -> Client:
    return browser_of(Role.ADMIN)


@pytest.fixture
def operator(browser_of: Callable[[Role | None], Client]) -> Client:
    return browser_of(Role.OPERATOR)


@pytest.fixture
def viewer(browser_of: Callable[[Role | None], Client]) -> Client:
    return browser_of(Role.VIEWER)


@pytest.fixture
def outsider(browser_of: Callable[[Role | None], Client]) -> Client:
    return browser_of(None)


def write(action: Callable[[UnitOfWork], Any]) -> Any:
    """Do what a test needs done beforehand, as the program itself."""
    with unit_of_work(SYSTEM, "set up by a test") as unit:
        return action(unit)


@pytest.fixture
def acme(db: None) -> str:
    """A tenant with a quota."""
    write(lambda unit: tenants.create(unit, "acme", {"tpm_limit": 60_000}))
    return "acme"


def new_target(kind: str, name: str) -> Target:
    """An enrolled target, heard of just now, as the enrolment leaves it."""

    def join(unit: UnitOfWork) -> Target:
        _row, join_token = enrolment.create_join_token(unit, kind, name)
        request = msgspec.convert(
            {"join_token": join_token, "kind": kind, "name": name, "version": "0.1.0", "protocol": PROTOCOL},
            EnrolRequest,
        )
        return enrolment.enrol(unit, request, lambda target: False)[0]

    target: Target = write(join)
    return target


def acknowledge(target: Target, problems: list[Problem] | None = None) -> None:
    """The target says that it runs the newest revision, or why it refuses it."""
    head = heads.refresh()
    assert head is not None
    if problems:
        acks.take(target, Ack(head.number, error=problems))
    else:
        content_hash = head.slice(target.kind, target.name).hash
        acks.take(target, Ack(head.number, hash=content_hash, applied_at=int(time.time() * 1000)))
