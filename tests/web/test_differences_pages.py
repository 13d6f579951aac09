"""Any two revisions compared, the configuration taken and given as a file, and many targets told in a bar."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from controlplane.configs import publisher
from controlplane.configs.convergence import State
from controlplane.core.models import AuditEntry, Target
from controlplane.tenants import services as tenants
from controlplane.web.convergence import TargetLine, neediest_first, tally
from controlplane.web.templatetags.headworks import tally_bar
from controlplane.web.views import targets as targets_view
from tests.web.conftest import acknowledge, digest_of, new_target, write
from wire.problems import Problem

pytestmark = pytest.mark.django_db


@pytest.fixture
def three(acme: str) -> str:
    """Revisions with 60,000, 6,000 and 600 tokens a minute; the last one with a second tenant."""
    publisher.publish()
    write(lambda unit: tenants.update(unit, acme, {"tpm_limit": 6_000}))
    publisher.publish()
    write(lambda unit: tenants.update(unit, acme, {"tpm_limit": 600}))
    write(lambda unit: tenants.create(unit, "beta", {}))
    publisher.publish()
    return acme


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_any_two_revisions_are_compared_either_way_round(three: str, viewer: Client, operator: Client) -> None:
    there = page(viewer, "/revisions/compare/?from=1&to=3")
    assert "<del>60,000</del>" in there
    assert "<ins>600</ins>" in there
    assert "new:" in there
    assert "/api/v1/revisions/1/diff?to=3" in there
    back = page(viewer, "/revisions/compare/?from=3&to=1")
    assert "<ins>60,000</ins>" in back
    assert "removed:" in back
    assert "/rollback/" not in there
    assert "/revisions/1/rollback/" in page(operator, "/revisions/compare/?from=1&to=3")
    assert "Both hold the same configuration." in page(viewer, "/revisions/compare/?from=2&to=2")


def test_without_numbers_the_last_two_are_compared(three: str, viewer: Client) -> None:
    assert "<del>6,000</del>" in page(viewer, "/revisions/compare/")


def test_what_is_no_revision_is_said_at_the_form(three: str, viewer: Client) -> None:
    for query, said in (("from=1&to=99", "there are 1 to 3"), ("from=x&to=2", "whole number"), ("from=1", "required")):
        answer = viewer.get(f"/revisions/compare/?{query}")
        assert answer.status_code == 422
        assert said in answer.content.decode()


def test_with_nothing_published_it_says_what_it_takes(viewer: Client) -> None:
    assert "It takes two published revisions." in page(viewer, "/revisions/compare/")


def test_the_list_leads_to_comparing_and_to_the_file(three: str, viewer: Client, admin: Client) -> None:
    listed = page(viewer, "/revisions/")
    assert "/revisions/compare/" in listed
    assert 'href="/api/v1/config?format=yaml"' in listed
    assert "/configuration-import/" not in listed
    assert "/configuration-import/" in page(admin, "/revisions/")
    assert "/revisions/compare/?from=2&amp;to=3" in page(viewer, "/revisions/2/")


def test_a_configuration_is_downloaded_changed_and_applied(three: str, admin: Client) -> None:
    text = admin.get("/api/v1/config?format=yaml").content.decode()
    typed = {"document": text.replace("tpm_limit: 600", "tpm_limit: 777")}
    reviewed = admin.post("/configuration-import/", {**typed, "step": "review"}).content.decode()
    assert "<ins>777</ins>" in reviewed
    assert "--data-binary @headworks.yaml" in reviewed
    form = {**typed, "step": "apply", "digest": digest_of(reviewed), "reason": "from the repository"}
    answer = admin.post("/configuration-import/", form)
    assert answer["Location"].startswith("/revisions/?change=")
    assert tenants.describe(tenants.get("acme"))["tpm_limit"] == 777
    assert AuditEntry.objects.latest("pk").reason == "from the repository"


def test_the_same_configuration_changes_nothing(three: str, admin: Client) -> None:
    text = admin.get("/api/v1/config").content.decode()
    reviewed = admin.post("/configuration-import/", {"document": text, "step": "review"}).content.decode()
    assert "Nothing would change." in reviewed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("format: [", "no YAML at line"),
        ('{"format": ', "JSON"),
        ("format: headworks/9", "headworks/1"),
        ("format: headworks/1\ntenants: {acme: {tpm_limit: many}}", "/tenants/acme/tpm_limit"),
        ("format: headworks/1\ncolours: {}", "no such section"),
    ],
)
def test_a_text_that_is_none_is_refused_and_kept(text: str, said: str, three: str, admin: Client) -> None:
    answer = admin.post("/configuration-import/", {"document": text, "step": "review"})
    assert answer.status_code == 422
    shown = answer.content.decode()
    assert said in shown
    assert text.splitlines()[0].replace('"', "&quot;") in shown


def test_what_half_a_document_would_remove_is_warned_of(three: str, admin: Client) -> None:
    write(lambda unit: tenants.create_key(unit, "acme", {"label": "first"}))
    typed = {"document": "format: headworks/1\ntenants: {beta: {}}"}
    reviewed = admin.post("/configuration-import/", {**typed, "step": "review"}).content.decode()
    assert 'id="warnings"' in reviewed
    form = {**typed, "step": "apply", "digest": digest_of(reviewed), "reason": "half"}
    assert admin.post("/configuration-import/", form).status_code == 422
    assert tenants.get("acme").name == "acme"


def test_targets_are_told_in_a_bar_and_by_state(acme: str, viewer: Client) -> None:
    applied, refused, _never = (new_target("gateway", f"edge-{number}") for number in (1, 2, 3))
    publisher.publish()
    acknowledge(applied)
    acknowledge(refused, [Problem("/tenants/acme", "reference", "no")])
    shown = page(viewer, "/targets/")
    for state in ("applied", "refused", "never"):
        assert f'class="tally-{state}"' in shown
        assert f"steps-{state}" in shown
    only = page(viewer, "/targets/?state=refused")
    table = only[only.index("<tbody>") :]
    assert "edge-2" in table
    assert "edge-1" not in table
    assert "No target is in this state." in page(viewer, "/targets/?state=lost")
    assert "edge-1" in page(viewer, "/targets/?state=nonsense")


def test_a_silent_target_is_greyed(acme: str, viewer: Client) -> None:
    target = new_target("gateway", "edge-1")
    publisher.publish()
    Target.objects.filter(pk=target.pk).update(last_seen_at="2026-01-01T00:00:00Z")
    assert '<tr class="stale">' in page(viewer, "/targets/")


def test_of_many_targets_those_that_need_a_person_are_shown(
    acme: str, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets_view, "ROWS", 2)
    found = [new_target("node", f"n{number}") for number in (1, 2, 3)]
    publisher.publish()
    for target in found[:2]:
        acknowledge(target)
    acknowledge(found[2], [Problem("/", "x", "no")])
    shown = page(viewer, "/targets/")
    table = shown[shown.index("<tbody>") :]
    assert table.index("n3") < table.index("n1")
    assert "n2" not in table
    assert "and 1 more" in table


def line(state: str, name: str = "a") -> TargetLine:
    return TargetLine(1, name, "gateway", "1", state, 1, 1, None, None, [], False, None)


@given(st.lists(st.sampled_from([state.value for state in State])))
def test_every_target_is_counted_once_and_fills_its_part_of_the_bar(states: list[str]) -> None:
    lines = [line(state, str(place)) for place, state in enumerate(states)]
    counted = tally(lines)
    assert {each.state: each.how_many for each in counted} == {state: states.count(state) for state in set(states)}
    assert sorted(each.name for each in neediest_first(lines)) == sorted(each.name for each in lines)
    bar = str(tally_bar(counted))
    assert f'viewBox="0 0 {len(states)} 1"' in bar
    assert bar.count("<rect") == len(set(states))


def test_the_bar_follows_each_write(acme: str, operator: Client) -> None:
    new_target("gateway", "edge-1")
    publisher.publish()
    change = AuditEntry.objects.filter(noun="tenant").latest("pk").change_id
    followed: Any = page(operator, f"/convergence/?change={change}")
    assert "steps-never" in followed
    assert 'class="tally-never"' in followed
