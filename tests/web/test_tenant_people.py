"""Pages of people who are limited to some tenants: theirs, and nothing of the fleet."""

from __future__ import annotations

import pytest
from django.test import Client

from controlplane.configs.publisher import publish
from controlplane.core.models import Role, User
from controlplane.tenants import services as tenants
from controlplane.tenants.own_limits import LOWERED_BY_THEIR_OWN
from controlplane.tenants.services import SESSION_LIMITS
from tests.web.conftest import digest_of, write
from tests.web.test_access import PAGES, fleet  # noqa: F401 - a fixture

OPEN = {
    "tenants", "tenant", "edit_tenant", "new_key", "rotate_key", "block_key", "unblock_key", "decisions", "decision",
    "batches", "cancel_batch", "account", "own_password", "end_own_log_ins", "api_tokens", "new_api_token", "audit",
}  # fmt: skip
OWN = {"account", "own_password", "end_own_log_ins", "api_tokens", "new_api_token"}
LISTS = {"tenants", "decisions", "batches", "audit"} | OWN


@pytest.fixture
def own(db: None) -> Client:
    return browser(Role.OPERATOR)


def browser(role: Role, tenants: tuple[str, ...] = ("acme",)) -> Client:
    client = Client()
    client.force_login(User.objects.create(username=f"{role.value}-of-acme", role=role, tenants=list(tenants)))
    return client


def test_a_page_is_closed_to_them_unless_it_is_of_their_tenant(fleet: dict[str, object]) -> None:  # noqa: F811
    client = browser(Role.ADMIN)
    for path in (PAGES[name][0].format(**fleet) for name in PAGES.keys() - OPEN):
        for answer in (client.get(path), client.post(path, {"step": "apply", "reason": "x"})):
            assert answer.status_code == 403, path
            assert "This is for people of the whole fleet; you are limited to acme." in answer.content.decode(), path


@pytest.mark.parametrize("name", sorted(OPEN))
def test_one_of_their_tenant_is_open(name: str, fleet: dict[str, object]) -> None:  # noqa: F811
    client = browser(Role.ADMIN)
    path = PAGES[name][0].format(**fleet)
    for answer in (client.get(path), client.post(path, {"step": "apply", "reason": "x"})):
        assert answer.status_code in (200, 302, 409, 422)


def test_another_tenant_is_as_unknown_as_one_that_does_not_exist(fleet: dict[str, object]) -> None:  # noqa: F811
    client = browser(Role.OPERATOR, ("beta",))
    for name in OPEN - LISTS:
        assert client.get(PAGES[name][0].format(**fleet)).status_code == 404, name


def test_a_key_of_another_tenant_is_not_reached_by_way_of_their_own(own: Client, acme: str) -> None:
    write(lambda unit: tenants.create(unit, "beta", {}))
    key, _secret = write(lambda unit: tenants.create_key(unit, "beta", {}))
    for number in (key.pk, 999):
        answer = own.post(f"/tenants/acme/keys/{number}/block/", {"step": "apply", "reason": "x"})
        assert answer.status_code == 404
        # Nor is it told which numbers others have.
        assert f"There is no key {number}" in answer.content.decode()
    assert not tenants.get_key(key.pk).blocked


@pytest.mark.parametrize("path", ["/dashboards/", "/dashboards/_dash-layout"])
def test_charts_are_of_the_whole_fleet(own: Client, path: str) -> None:
    assert own.get(path).status_code == 403


def test_so_are_the_streams(transactional_db: None) -> None:
    # They look at the log-in in a thread of their own.
    person = browser(Role.VIEWER)
    for path in ("/live", "/dashboards/live"):
        assert person.get(path).status_code == 403


def test_they_begin_at_their_tenants_and_see_no_others(own: Client, acme: str) -> None:
    write(lambda unit: tenants.create(unit, "beta", {}))
    assert own.get("/")["Location"] == "/tenants/"
    page = own.get("/tenants/").content.decode()
    assert 'href="/tenants/acme/"' in page
    for hidden in ("beta", "/tenants-new/", "/targets/", "/fleet/", "data-live"):
        assert hidden not in page


def test_their_operators_are_offered_and_make_and_unblock_their_keys(own: Client, acme: str) -> None:
    made = {"form_id": "7d2f2f0e-7a3c-4b53-9f0a-7a2b9e1c0d11", "label": "ours", "reason": "new service"}
    assert 'id="secret"' in own.post("/tenants/acme/keys/new/", made).content.decode()
    (key,) = tenants.get(acme).keys.all()
    write(lambda unit: tenants.update_key(unit, key.pk, {"blocked": True}))
    page, path = own.get("/tenants/acme/").content.decode(), f"/tenants/acme/keys/{key.pk}/unblock/"
    assert "/tenants/acme/keys/new/" in page
    assert path in page
    fields = {"step": "apply", "digest": digest_of(own.get(path).content.decode()), "reason": "found again"}
    assert own.post(path, fields).status_code == 302
    assert not tenants.get_key(key.pk).blocked


def test_their_form_has_what_they_may_lower_and_no_names_of_others(own: Client, acme: str) -> None:
    write(lambda unit: SESSION_LIMITS.create(unit, "beta-agents", {}))
    page = own.get("/tenants/acme/edit/")
    assert set(page.context["form"].fields) == set(LOWERED_BY_THEIR_OWN)
    assert "beta-agents" not in page.content.decode()
    assert "beta-agents" in whole_fleet().get("/tenants/acme/edit/").content.decode()


def whole_fleet() -> Client:
    client = Client()
    client.force_login(User.objects.create(username="of-all", role=Role.OPERATOR))
    return client


def test_they_lower_a_limit_and_are_told_why_they_raise_none(own: Client, acme: str) -> None:
    form = own.get("/tenants/acme/edit/").context["form"]
    fields = {name: value for name, value in form.initial.items() if name in form.fields and value}
    more = own.post("/tenants/acme/edit/", {**fields, "step": "review", "tpm_limit": "70000"})
    assert more.status_code == 422
    assert "People of a tenant may lower its limits, no more." in more.content.decode()
    less = {**fields, "tpm_limit": "50000", "reason": "a smaller budget"}
    review = own.post("/tenants/acme/edit/", {**less, "step": "review"}).content.decode()
    done = own.post("/tenants/acme/edit/", {**less, "step": "apply", "digest": digest_of(review)})
    assert done.status_code == 302
    assert tenants.get("acme").tpm_limit == 50_000
    publish()
    page = own.get(done["Location"]).content.decode()
    assert "a smaller budget" in page
    # Which gateways run the change by now is no matter of theirs, nor what else came with its revision.
    assert "/convergence/" not in page
    assert "/revisions/" not in page
