"""How long a log-in lasts, and what ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from controlplane.celery import app
from controlplane.core import tasks
from controlplane.core.models import AuditEntry, Role, User
from tests.controlplane.core.people import person, token_of

PASSWORD = "correct horse battery"
ME, PAGE = "/api/v1/me", "/tenants/"


@pytest.fixture(autouse=True)
def _plain_static_files(settings):
    """Pages render without `collectstatic`, which only a real process needs."""
    plain = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    settings.STORAGES = {**settings.STORAGES, "staticfiles": plain}


@pytest.fixture
def ada(db):
    return User.objects.create_user("ada", password=PASSWORD, role=Role.OPERATOR)


@pytest.fixture
def browser(ada):
    return logged_in(ada)


def logged_in(user):
    client = Client()
    client.force_login(user)
    assert client.get(ME).status_code == 200
    return client


def grow_idle(client, seconds):
    session = client.session
    session["seen_at"] = int(time.time()) - seconds
    session.save()


def test_a_log_in_gives_the_session_a_new_key(ada):
    client = Client()
    session = client.session
    session["begun"] = True
    session.save()
    planted = session.session_key
    client.cookies["headworks_session"] = str(planted)
    client.post("/log-in/", {"username": "ada", "password": PASSWORD})
    assert client.cookies["headworks_session"].value != planted
    assert not Session.objects.filter(pk=planted).exists()


def test_it_ends_a_shift_later_however_busy_it_was(browser):
    end = Session.objects.get().expire_date
    assert 11.9 < (end - timezone.now()).total_seconds() / 3600 <= 12
    grow_idle(browser, 600)
    browser.get(PAGE)
    assert abs((Session.objects.get().expire_date - end).total_seconds()) < 1
    Session.objects.update(expire_date=timezone.now())
    assert browser.get(ME).status_code == 401


def test_it_ends_by_being_idle_for_pages_and_calls_alike(browser):
    grow_idle(browser, 121 * 60)
    assert browser.get(ME).status_code == 401
    assert browser.get(PAGE).status_code == 302


def test_the_idle_end_can_be_switched_off(browser, monkeypatch):
    monkeypatch.setenv("HEADWORKS_SESSION_IDLE_MINUTES", "0")
    grow_idle(browser, 11 * 3600)
    assert browser.get(ME).status_code == 200


def test_opening_a_page_keeps_it_and_what_a_page_asks_for_itself_does_not(browser):
    grow_idle(browser, 100 * 60)
    for path, headers in ((ME, {}), ("/targets/panel/", {"hx-request": "true"})):
        assert browser.get(path, headers=headers).status_code == 200
        assert browser.session["seen_at"] < time.time() - 3600
    browser.get(PAGE)
    assert browser.session["seen_at"] > time.time() - 60


def test_pages_in_close_succession_cost_no_write(browser):
    seen = browser.session["seen_at"]
    grow_idle(browser, 5)
    browser.get(PAGE)
    assert browser.session["seen_at"] <= seen


@pytest.mark.parametrize(
    "change", [{"role": "viewer"}, {"tenants": ["acme"]}, {"password": "another long one"}, {"is_active": False}]
)
def test_another_role_tenant_or_password_ends_the_log_ins_there_are(browser, admin, change):
    assert admin.patch("/users/ada", change).status_code == 200
    assert browser.get(ME).status_code == 401


def test_a_change_that_changes_nothing_ends_none(browser, admin):
    assert admin.patch("/users/ada", {"role": "operator"}).status_code == 200
    assert browser.get(ME).status_code == 200


def test_one_ends_ones_own_log_ins_everywhere_and_nobody_elses(browser, admin, ada):
    other, colleague = logged_in(ada), logged_in(person())
    answer = token_of(ada).post("/me/end-log-ins")
    assert answer.status_code == 200
    assert [client.get(ME).status_code for client in (browser, other, colleague)] == [401, 401, 200]
    assert AuditEntry.objects.filter(noun="user", key="ada", after__log_ins_ended=True).count() == 1


def test_an_admin_ends_those_of_another(browser, admin):
    assert admin.post("/users/ada/end-log-ins").status_code == 200
    assert browser.get(ME).status_code == 401
    assert admin.post("/users/nobody/end-log-ins").status_code == 404


def test_people_of_some_tenants_end_their_own(db):
    user = person(Role.VIEWER, ["acme"])
    client = logged_in(user)
    assert token_of(user).post("/me/end-log-ins").status_code == 200
    assert client.get(ME).status_code == 401


def test_sessions_that_have_ended_are_forgotten_at_the_next_log_in(browser, ada):
    Session.objects.update(expire_date=timezone.now())
    logged_in(ada)
    assert Session.objects.count() == 1


def test_the_beat_forgets_those_that_have_ended_though_nobody_logs_in(browser):
    assert app.conf.beat_schedule["forget-sessions"]["task"] == tasks.forget_sessions.name
    tasks.forget_sessions()
    assert Session.objects.count() == 1
    Session.objects.update(expire_date=timezone.now())
    tasks.forget_sessions()
    assert not Session.objects.exists()


def test_cookies_are_kept_from_scripts_and_other_sites(ada):
    client = Client()
    client.post("/log-in/", {"username": "ada", "password": PASSWORD})
    cookie = client.cookies["headworks_session"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Lax", "/")


@pytest.mark.parametrize(("https", "secure"), [("true", "True True"), ("false", "False False")])
def test_behind_a_tls_proxy_cookies_go_over_tls_alone(tmp_path, https, secure):
    show = "from controlplane import settings as s; print(s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE)"
    environment = {**os.environ, "HEADWORKS_DATA_DIR": str(tmp_path), "HEADWORKS_HTTPS": https}
    done = subprocess.run([sys.executable, "-c", show], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == secure
