"""People of each role in a browser without scripts: Django's test client, logged in."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from django.conf import settings as django_settings
from django.test import Client
from django.utils import translation
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, StorageState

from controlplane.configs import acks
from controlplane.configs.hub import heads
from controlplane.core import enrolment
from controlplane.core.changes import SYSTEM, UnitOfWork, unit_of_work
from controlplane.core.models import Role, Target, User
from controlplane.tenants import services as tenants
from tests.web.pictures import PHONE, log_in
from tests.web.site import Site
from wire import PROTOCOL
from wire.messages import Ack, EnrolRequest
from wire.problems import Problem

OpenPage = Callable[..., Page]


@pytest.fixture(autouse=True)
def _plain_static_files(settings: Any) -> None:
    """Pages render without `collectstatic`, which only a real process needs."""
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**django_settings.STORAGES, "staticfiles": plain}


@pytest.fixture(autouse=True)
def _own_language() -> Iterator[None]:
    """A request leaves its language to whatever its thread does next."""
    yield
    translation.deactivate()


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


def digest_of(page: str) -> str:
    """What a page of review says that it shows."""
    found = re.search(r'name="digest" value="([0-9a-f]+)"', page)
    assert found, page
    return found[1]


@pytest.fixture(scope="module")
def log_ins() -> dict[str, StorageState]:
    """The cookies of each person who has logged in to the module's site: a password takes its time."""
    return {}


@pytest.fixture
def open_page(site: Site, browser: Browser, log_ins: dict[str, StorageState]) -> Iterator[OpenPage]:
    """The start page of the module's `site`, logged in as the person named. Who logs out takes a log-in of their own.

    At the end: nothing in its console, and no request left this host.
    """
    complaints: list[str] = []
    contexts: list[BrowserContext] = []

    def complain(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.text} ({message.location['url']})")

    def open_as(name: str, **options: Any) -> Page:
        contexts.append(browser.new_context(storage_state=log_ins.get(name), **options))
        page = contexts[-1].new_page()
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(site.url) else complaints.append(request.url))
        if name in log_ins:
            page.goto(site.url)
        else:
            log_in(page, site, name)
            log_ins[name] = contexts[-1].storage_state()
        return page

    yield open_as
    for context in contexts:
        context.close()
    assert not complaints, "\n".join(complaints)


UNNAMED_FIELDS = """() => [...document.querySelectorAll("main input:not([type=hidden]), main select")]
    .filter(field => !field.labels.length).map(field => field.name)"""


def faults_of(page: Page, url: str) -> list[str]:
    """What is wrong with a page on a phone: wider than that, not one heading, or a field without a name."""
    page.goto(url)
    width = page.evaluate("() => document.documentElement.scrollWidth")
    headings = page.locator("h1").count()
    return [
        *([f"{url} is {width} px wide"] if width > PHONE["width"] else []),
        *([f"{url} has {headings} headings"] if headings != 1 else []),
        *(f"{url}: the field {name} has no label" for name in page.evaluate(UNNAMED_FIELDS)),
    ]
