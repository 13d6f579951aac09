"""The pages of metric writers: the list, a token that is shown once, and its end."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from controlplane.core.tokens import token_hash
from controlplane.telemetry.models import MetricWriter
from controlplane.telemetry.writers import METRIC_WRITERS
from tests.web.conftest import digest_of, write

FORM = "7d2f2f0e-7a3c-4b53-9f0a-7a2b9e1c0d11"
NEW = "/metric-writers-new/"


@pytest.fixture
def lab(db: None) -> MetricWriter:
    row = write(lambda unit: METRIC_WRITERS.create(unit, "lab", {"matchers": {"cluster": "lab"}}))
    assert isinstance(row, MetricWriter)
    return row


def secret_in(answer: Any) -> str:
    found = re.search(r'id="secret"[^>]*>(hww-\w+)<', answer.content.decode())
    assert found, answer.content.decode()
    return found[1]


def test_a_new_one_gets_a_token_that_is_shown_once(admin: Client) -> None:
    typed = {"form_id": FORM, "name": "lab", "matchers": 'cluster="lab"\nteam = infra', "reason": "our Prometheus"}
    secret = secret_in(admin.post(NEW, typed))
    row = MetricWriter.objects.get()
    assert (row.token_hash, row.matchers) == (token_hash(secret), {"cluster": "lab", "team": "infra"})
    page = admin.get("/metric-writers/").content.decode()
    assert "cluster=lab" in page
    assert secret not in page
    assert admin.post(NEW, typed).status_code == 409


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"matchers": "cluster"}, "matchers"),
        ({"matchers": "cluster=a\ncluster=b"}, "matchers"),
        ({"matchers": "node=rack-1"}, "matchers"),
        ({"matchers": "cluster=lab"}, "matchers"),
        ({"name": "<script>alert(1)</script>"}, "name"),
        ({"name": "lab"}, "name"),
        ({"expires_at": "2020-01-01 00:00"}, "expires_at"),
    ],
)
def test_what_cannot_be_is_refused_at_its_field(
    typed: dict[str, str], field: str, lab: MetricWriter, admin: Client
) -> None:
    answer = admin.post(NEW, {"form_id": FORM, "name": "other", "matchers": "cluster=other", "reason": "x", **typed})
    assert answer.status_code in (409, 422)
    assert list(answer.context["form"].errors) == [field]
    assert "<script>alert" not in answer.content.decode()
    assert MetricWriter.objects.count() == 1


def test_it_is_blocked_after_a_review_and_says_so(lab: MetricWriter, admin: Client, viewer: Client) -> None:
    path, typed = "/metric-writers/lab/edit/", {"matchers": "cluster=lab", "expires_at": "", "blocked": "on"}
    review = admin.post(path, {**typed, "step": "review"}).content.decode()
    done = admin.post(path, {**typed, "step": "apply", "digest": digest_of(review), "reason": "too much"})
    assert done.status_code == 302
    page = viewer.get("/metric-writers/").content.decode()
    assert "blocked" in page
    assert path not in page


def test_its_token_is_rotated_and_the_old_one_works_on_for_a_while(lab: MetricWriter, admin: Client) -> None:
    before = lab.token_hash
    typed = {"form_id": FORM, "overlap_seconds": "1", "expires_at": "", "reason": "a leak"}
    secret = secret_in(admin.post("/metric-writers/lab/rotate/", typed))
    lab.refresh_from_db()
    assert (lab.token_hash, lab.previous_token_hash) == (token_hash(secret), before)
    assert "the one before until" in admin.get("/metric-writers/").content.decode()


def test_it_is_deleted_with_what_that_does_said_before(lab: MetricWriter, admin: Client) -> None:
    path = "/metric-writers/lab/delete/"
    review = admin.get(path).content.decode()
    assert "what is stored stays" in review
    assert admin.post(path, {"step": "apply", "digest": digest_of(review), "reason": "gone"}).status_code == 302
    assert "No metric writer." in admin.get("/metric-writers/").content.decode()
