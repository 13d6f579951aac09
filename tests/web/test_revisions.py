"""Revisions: the list, the diff that a person reads, and the way back."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from controlplane.configs import publisher
from controlplane.configs.models import Revision
from controlplane.tenants import services
from tests.web.conftest import write


@pytest.fixture
def lowered(acme: str) -> str:
    """Revision 1 holds 60,000 tokens a minute, revision 2 a tenth."""
    publisher.publish()
    write(lambda unit: services.update(unit, acme, {"tpm_limit": 6_000}))
    publisher.publish()
    return acme


def test_the_list_says_who_what_and_why(lowered: str, viewer: Client) -> None:
    page = viewer.get("/revisions/").content.decode()
    newest = page[page.index('href="/revisions/2/"') : page.index('href="/revisions/1/"')]
    assert re.search(r"changed\s+tenant acme<", newest)
    assert "set up by a test" in newest
    assert "headworks" in newest
    assert "newest" in newest


def test_a_revision_shows_each_value_before_and_after(lowered: str, viewer: Client) -> None:
    page = viewer.get("/revisions/2/").content.decode()
    assert "tenants › acme › tpm_limit" in page
    assert "<del>60,000</del>" in page
    assert "<ins>6,000</ins>" in page


def test_an_engines_key_is_on_no_page(viewer: Client) -> None:
    sealed = {"url": "http://10.0.0.1:8000", "api_key_encrypted": "gAAAA-sealed"}
    Revision.objects.create(
        number=1,
        published_at="2026-01-01T00:00:00Z",
        patch={"engines": {"a": sealed}},
        inverse={"engines": {"a": None}},
        hash="0" * 64,
    )
    page = viewer.get("/revisions/1/").content.decode()
    assert "gAAAA-sealed" not in page
    assert "(hidden)" in page


def test_rolling_back_is_reviewed_then_makes_a_new_revision(lowered: str, operator: Client) -> None:
    page = operator.get("/revisions/1/rollback/").content.decode()
    assert "<del>6,000</del>" in page
    assert "<ins>60,000</ins>" in page
    assert services.get(lowered).tpm_limit == 6_000
    digest = re.search(r'name="digest" value="([0-9a-f]+)"', page)
    assert digest
    answer = operator.post("/revisions/1/rollback/", {"step": "apply", "digest": digest[1], "reason": "too low"})
    assert answer.status_code == 302
    assert services.get(lowered).tpm_limit == 60_000
    publisher.publish()
    assert Revision.objects.get(number=3).rollback_to == 1
    assert "rolled back to revision 1" in operator.get("/revisions/").content.decode()


def test_the_newest_revision_offers_to_take_itself_back(lowered: str, operator: Client, viewer: Client) -> None:
    assert "/revisions/1/rollback/" in operator.get("/revisions/2/").content.decode()
    assert "/revisions/1/rollback/" in operator.get("/revisions/1/").content.decode()
    assert "/rollback/" not in viewer.get("/revisions/2/").content.decode()


def test_going_back_to_what_is_there_already_changes_nothing(lowered: str, operator: Client) -> None:
    assert "Nothing would change." in operator.get("/revisions/2/rollback/").content.decode()


def test_an_empty_list_says_what_makes_the_first(viewer: Client) -> None:
    assert "Nothing was published yet." in viewer.get("/revisions/").content.decode()


def test_the_list_is_paged_and_ignores_a_page_that_is_no_number(viewer: Client) -> None:
    Revision.objects.bulk_create(
        Revision(number=n, published_at="2026-01-01T00:00:00Z", patch={}, inverse={}, hash="0" * 64)
        for n in range(1, 61)
    )
    first = viewer.get("/revisions/").content.decode()
    assert 'href="/revisions/11/"' in first
    assert 'href="/revisions/10/"' not in first
    assert "before=11" in first
    assert 'href="/revisions/10/"' in viewer.get("/revisions/?before=11").content.decode()
    for before in ("x", "-1", "²", "9" * 40):
        assert viewer.get("/revisions/", {"before": before}).status_code == 200
