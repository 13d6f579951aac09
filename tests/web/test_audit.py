"""The audit's page: what it finds, what it leads to, and what people of some tenants see of it."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client

from controlplane.core.models import AuditEntry, Role, User
from controlplane.tenants import services as tenants
from controlplane.web.labels import NOUNS
from controlplane.web.shown import audit
from controlplane.web.views.audit import ROWS_PER_PAGE
from tests.web.conftest import write

HOSTILE = "<script>alert('x')</script>\""


@pytest.fixture
def history(acme: str) -> str:
    write(lambda unit: tenants.update(unit, acme, {"tpm_limit": 5_000}))
    write(lambda unit: tenants.create(unit, "beta", {}))
    return acme


def page(client: Client, query: str = "") -> str:
    answer = client.get(f"/audit/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def subjects(html: str) -> list[str]:
    return re.findall(r'<td class="words" data-label="What">\s*\w+\s*(?:<a href="[^"]*">)?([^<]*)', html)


def test_entries_stand_newest_first_with_their_values_folded(history: str, viewer: Client) -> None:
    html = page(viewer)
    assert subjects(html) == ["tenant beta", "tenant acme", "tenant acme"]
    folded = html.split("<details")[3]
    assert "<del>60,000</del>" in folded
    assert "<ins>5,000</ins>" in folded
    assert 'href="/tenants/acme/"' in html
    assert "set up by a test" in html


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?noun=tenant&key=acme", ["tenant acme", "tenant acme"]),
        ("?action=update", ["tenant acme"]),
        ("?actor=nobody", []),
        ("?reason=BY+A+TEST&key=beta", ["tenant beta"]),
        ("?since=2026-01-01+00:00&until=2020-01-01+00:00", []),
        ("?revision=7", []),
    ],
)
def test_a_filter_takes_what_all_entries_have_in_common(
    query: str, found: list[str], history: str, viewer: Client
) -> None:
    html = page(viewer, query)
    assert subjects(html) == found
    assert ("No entry is like that." in html) is (not found)


def test_the_change_of_an_entry_finds_all_that_it_did(acme: str, viewer: Client) -> None:
    write(lambda unit: [tenants.create(unit, name, {}) for name in ("one", "two")])
    change = AuditEntry.objects.latest("pk").change_id
    assert f'href="/audit/?change_id={change}"' in page(viewer)
    assert subjects(page(viewer, f"?change_id={change}")) == ["tenant two", "tenant one"]


def test_what_cannot_be_read_is_said_at_its_field_and_kept(history: str, viewer: Client) -> None:
    answer = viewer.get("/audit/", {"revision": "-4", "change_id": "mine", "since": "yesterday", "key": HOSTILE})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert html.count('aria-invalid="true"') == 3
    assert 'value="yesterday"' in html
    assert "<script>alert" not in html
    assert "Nothing was looked for." in html
    # The folded filters are open where one of them is wrong.
    assert '<details class="more" id="more-filters" open>' in html


def test_pages_follow_each_other_without_a_gap(acme: str, viewer: Client, django_assert_max_num_queries: Any) -> None:
    write(lambda unit: [tenants.create(unit, f"t-{number:03}", {}) for number in range(ROWS_PER_PAGE + 3)])
    with django_assert_max_num_queries(10):
        first = page(viewer, "?noun=tenant")
    following = re.search(r'href="(/audit/\?[^"]*before=\d+)"', first)
    assert following
    second = viewer.get(following[1].replace("&amp;", "&")).content.decode()
    names = [*subjects(first), *subjects(second)]
    assert len(names) == len(set(names)) == ROWS_PER_PAGE + 4
    assert 'option value="tenant" selected' in second


def test_the_file_has_what_the_page_has_found(history: str, viewer: Client) -> None:
    html = page(viewer, "?action=update")
    (address,) = re.findall(r'href="(/api/v1/audit/export\?[^"]*format=csv)"', html)
    answer = viewer.get(address.replace("&amp;", "&"))

    async def body() -> bytes:
        return b"".join([part async for part in answer.streaming_content])  # type: ignore[attr-defined]

    lines = list(csv.DictReader(io.StringIO(async_to_sync(body)().decode())))
    assert [(line["action"], line["key"]) for line in lines] == [("update", "acme")]


def test_people_of_some_tenants_see_theirs_and_no_revisions(history: str) -> None:
    client = Client()
    client.force_login(User.objects.create(username="of-beta", role=Role.VIEWER, tenants=["beta"]))
    AuditEntry.objects.filter(noun="tenant").update(revision=1)
    html = page(client)
    assert subjects(html) == ["tenant beta"]
    assert "/revisions/" not in html
    assert 'value="engine"' not in html
    assert subjects(page(client, "?key=acme")) == []
    assert 'href="/audit/"' in html


def test_a_rule_file_of_a_thousand_values_is_cut(acme: str, viewer: Client) -> None:
    values = {f"field_{number:04}": number for number in range(audit.VALUES_SHOWN + 5)}
    entry = AuditEntry.objects.latest("pk")
    AuditEntry.objects.create(
        change_id=entry.change_id, at=entry.at, actor_kind="user", actor="ada", noun="pool", key="llama",
        action="create", after=values, reason=HOSTILE,
    )  # fmt: skip
    html = page(viewer, "?noun=pool")
    assert html.count('class="place title words"') == audit.VALUES_SHOWN
    assert "and 5 more" in html
    assert HOSTILE not in html


def test_every_noun_has_a_page_and_each_page_exists(admin: Client) -> None:
    assert NOUNS - {"key"} <= audit._LISTS.keys()
    for noun in NOUNS:
        for action, key in (("update", "1"), ("update", "a/b\n<c>"), ("delete", "gone")):
            entry = AuditEntry(noun=noun, key=key, action=action, after={"tenant": "acme"}, before={})
            assert audit.page_of(entry).startswith("/"), noun
