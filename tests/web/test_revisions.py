"""Revisions: the list, the diff that a person reads, and the way back."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from controlplane.configs import publisher
from controlplane.configs.models import Revision
from controlplane.core.changes import Actor, UnitOfWork, unit_of_work
from controlplane.fleet import services as fleet
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


def test_only_what_a_rollback_takes_back_is_offered_to_be_taken_back(lowered: str, operator: Client) -> None:
    assert 'href="/revisions/1/rollback/"' in operator.get("/revisions/2/").content.decode()
    write(lambda unit: fleet.NODES.create(unit, "n1", {}))
    write(lambda unit: fleet.NODES.cordon(unit, "n1"))
    publisher.publish()
    page = operator.get("/revisions/3/").content.decode()
    assert 'href="/revisions/2/rollback/"' not in page
    assert "A rollback takes none of this back" in page


def test_a_revision_shows_each_value_before_and_after(lowered: str, viewer: Client) -> None:
    page = viewer.get("/revisions/2/").content.decode()
    assert "<h3>tenant acme</h3>" in page
    assert "Tokens per minute" in page
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
    # Where it leads to there is the new revision, not the old one.
    assert answer["Location"].startswith("/revisions/?change=")
    landed = operator.get(answer["Location"]).content.decode()
    assert "Revision 3 has the content of revision 1." in landed
    assert "rolled back to revision 1" in landed
    assert "has the content of revision 1" in operator.get("/revisions/3/").content.decode()


def test_a_rollback_that_cannot_be_says_why_and_what_stays(acme: str, operator: Client) -> None:
    publisher.publish()

    def serve(unit: UnitOfWork) -> None:
        fleet.MODELS.create(unit, "m/a", {"max_context_tokens": 4096})
        fleet.POOLS.create(unit, "short", {"model": "m/a"})
        engine = {"url": "http://10.0.0.1:8000", "kind": "vllm", "pool": "short", "served_model": "m/a"}
        fleet.ENGINES.create(unit, "e1", engine)

    write(serve)
    publisher.publish()
    answer = operator.get("/revisions/1/rollback/")
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "<h2>Cannot be rolled back</h2>" in page
    assert "What would change" not in page
    assert "is used by engine &#x27;e1&#x27;" in page
    assert "Nothing was changed: the newest revision stays in force" in page
    assert 'value="apply"' not in page


def test_a_new_object_shows_its_values_and_many_are_folded(acme: str, viewer: Client) -> None:
    publisher.publish()
    write(lambda unit: [services.create(unit, f"team-{number}", {}) for number in range(5)])
    publisher.publish()
    few, many = (viewer.get(f"/revisions/{number}/").content.decode() for number in (1, 2))
    assert few.count('<details class="object" open>') == 1
    assert many.count('<details class="object">') == 5
    assert "new: <strong>tenant team-4</strong>" in many


def test_a_diff_calls_fields_as_the_form_does_in_the_readers_language(lowered: str, viewer: Client) -> None:
    page = viewer.get("/revisions/2/", headers={"accept-language": "tr"}).content.decode()
    assert "<h3>kiracı acme</h3>" in page
    assert "Dakikada token" in page
    # As the REST call has it, small below.
    assert "Dakikada token<" in page
    assert page.count("tpm_limit") == page.count("<code>tpm_limit</code>") == 1


def test_who_acted_is_written_the_same_everywhere(acme: str, viewer: Client) -> None:
    with unit_of_work(Actor("token", "ada/ci"), "nightly") as unit:
        services.update(unit, acme, {"weight": 3})
    publisher.publish()
    for path in ("/revisions/", "/revisions/1/", f"/tenants/{acme}/"):
        page = viewer.get(path).content.decode()
        assert "ada/ci (token)" in page, path
        assert "headworks (system)" in page, path


def test_the_newest_revision_offers_to_take_itself_back(lowered: str, operator: Client, viewer: Client) -> None:
    assert "/revisions/1/rollback/" in operator.get("/revisions/2/").content.decode()
    assert "/revisions/1/rollback/" in operator.get("/revisions/1/").content.decode()
    assert "/rollback/" not in viewer.get("/revisions/2/").content.decode()


def test_going_back_to_what_is_there_already_changes_nothing(lowered: str, operator: Client) -> None:
    page = operator.get("/revisions/2/rollback/").content.decode()
    assert "Nothing would change." in page
    # Nor does it where what was changed is no matter of a rollback.
    assert "Keys, engines, cordons and overrides stay as they are" in page


def test_a_revision_that_nobody_made_says_where_it_came_from(viewer: Client) -> None:
    for number in (1, 2):
        Revision.objects.create(
            number=number,
            published_at="2026-01-01T00:00:00Z",
            patch={"pools": {"chat": {"weight": number}}},
            inverse={"pools": {"chat": None if number == 1 else {"weight": 1}}},
            hash="0" * 64,
        )
    page = viewer.get("/revisions/").content.decode()
    assert "what a newer version compiles differently" in page
    assert "what there was at the first start" in page
    upgraded, first = (viewer.get(f"/revisions/{number}/").content.decode() for number in (2, 1))
    assert "a newer version of Headworks compiles the same differently" in upgraded
    assert "What there was at the first start." in first


def test_the_list_names_the_first_of_what_was_done_and_counts_the_rest(acme: str, viewer: Client) -> None:
    write(lambda unit: [services.create(unit, name, {}) for name in ("search", "support")])
    publisher.publish()
    page = viewer.get("/revisions/").content.decode()
    assert re.search(r"made\s+tenant acme", page)
    assert "and 2 more" in page


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
