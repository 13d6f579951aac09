from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.core.models import ApiToken, Role, User
from controlplane.tenants.models import Tenant
from tests.controlplane.conftest import REASON, Rest

CREATE = f"/api/v1/tenants?{REASON}"


@pytest.fixture
def browser(db):
    """A logged-in operator's browser, with the checks that a test client otherwise leaves out."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create(username="ada", role=Role.OPERATOR))
    return client


def test_a_browser_writes_only_with_its_csrf_token(browser):
    refused = browser.post(CREATE, {"name": "acme"}, content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf")
    assert not Tenant.objects.exists()
    token = "x" * 32
    browser.cookies["headworks_csrf"] = token
    made = browser.post(CREATE, {"name": "acme"}, content_type="application/json", headers={"x-csrftoken": token})
    assert made.status_code == 201
    assert browser.get("/api/v1/audit").json()["items"][0]["actor"] == "ada"


def test_a_browser_without_a_log_in_is_told_to_log_in(db):
    answer = Client().get("/api/v1/tenants")
    assert answer.status_code == 401
    assert answer["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("end", ["expires_at", "revoked_at"])
def test_a_token_past_its_end_is_refused(viewer, end):
    ApiToken.objects.update(**{end: timezone.now() - timedelta(seconds=1)})
    assert viewer.get("/me").status_code == 401


def test_a_bad_token_does_not_fall_back_to_the_log_in(browser):
    answer = browser.get("/api/v1/me", headers={"authorization": "Bearer wrong"})
    assert answer.status_code == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer a b"])
def test_a_header_that_is_no_bearer_token_is_refused(db, header):
    assert Rest(None).get("/me", authorization=header).status_code == 401


def test_an_unknown_target_token_writes_nothing(db):
    with CaptureQueriesContext(connection) as queries:
        assert Rest("hwg-" + "0" * 43).post("/config/ack").status_code == 401
    assert [query["sql"] for query in queries if query["sql"].startswith(("UPDATE", "INSERT", "DELETE"))] == []
