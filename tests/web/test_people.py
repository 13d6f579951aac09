"""The pages of users, of API tokens and of one's own account."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.translation import override

from controlplane.core.models import ApiToken, AuditEntry, Role, User
from controlplane.core.scope import known_scopes
from controlplane.core.sessions import open_log_ins
from controlplane.web.scopes import SCOPES, scope_label
from controlplane.web.shown.people import TokenLine
from tests.controlplane.core.people import token_of
from tests.web.conftest import digest_of

PASSWORD, OTHER = "correct horse battery", "another horse entirely"
FORM = "7d2f2f0e-7a3c-4b53-9f0a-7a2b9e1c0d11"
CHANGE = {"form_id": FORM, "current": PASSWORD, "password": OTHER, "again": OTHER}


@pytest.fixture(autouse=True)
def _quick_hashes(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def omar(db: None) -> User:
    return User.objects.create_user("omar", password=PASSWORD, role=Role.OPERATOR)


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def row_of(html: str, name: str) -> str:
    """The cells of the row that a name begins."""
    (row,) = (row for row in re.findall(r"<tr>.*?</tr>", html, re.DOTALL) if f">{name}" in row)
    return text_of(row)


def applied(client: Client, path: str, **typed: Any) -> str:
    """Review a form and carry it out; the review's text."""
    review = client.post(path, {**typed, "step": "review"}).content.decode()
    answer = client.post(path, {**typed, "step": "apply", "digest": digest_of(review), "reason": "a test"})
    assert answer.status_code == 302, text_of(answer.content.decode())
    return text_of(review)


def secret_in(answer: Any) -> str:
    found = re.search(r'id="secret"[^>]*>([^<]+)<', answer.content.decode())
    assert found, text_of(answer.content.decode())
    return found[1]


def test_the_list_says_who_may_what_and_what_is_open(omar: User, admin: Client) -> None:
    User.objects.create(
        username="grace", role=Role.VIEWER, tenants=["acme"], oidc_issuer="https://id.example", oidc_subject="1"
    )
    browser_of(omar), browser_of(omar)
    token_of(omar)
    html = page(admin, "/users/")
    assert (
        row_of(html, "omar") == "omar active operator whole fleet password just now 2 1 Edit New password End log-ins"
    )
    assert row_of(html, "grace") == "grace active viewer acme single sign-on never 0 0 Edit"


def test_the_list_of_many_costs_no_query_each(omar: User, viewer: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(30):
        user = User.objects.create(username=f"u-{number:02}", role=Role.VIEWER)
        browser_of(user)
        token_of(user, name="t")
    # The first page of a log-in is noted in its session.
    page(viewer, "/users/")
    with django_assert_max_num_queries(10):
        html = page(viewer, "/users/")
    assert html.count("<tr>") == 33
    # Nor is a viewer offered what an admin does.
    assert "/edit/" not in html
    assert "/users-new/" not in html


def test_a_new_user_gets_a_password_that_is_shown_once_and_works(admin: Client) -> None:
    typed = {"form_id": FORM, "username": "lin", "role": "operator", "tenants": "acme\nbeta", "reason": "a new shift"}
    answer = admin.post("/users-new/", typed)
    password = secret_in(answer)
    user = User.objects.get(username="lin")
    assert (user.role, user.tenants) == (Role.OPERATOR, ["acme", "beta"])
    assert Client().login(username="lin", password=password)
    assert password not in str(AuditEntry.objects.values_list("after", flat=True))
    assert admin.post("/users-new/", typed).status_code == 409


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"username": "o m a r"}, "username"),
        ({"username": "omar"}, "username"),
        ({"username": "<script>alert(1)</script>"}, "username"),
        ({"role": "admin", "tenants": "acme"}, "tenants"),
        ({"tenants": "Not A Name"}, "tenants"),
        ({"role": "king"}, "role"),
        ({"reason": ""}, "reason"),
    ],
)
def test_a_user_who_cannot_be_is_refused_at_the_field(
    typed: dict[str, str], field: str, omar: User, admin: Client
) -> None:
    form = {"form_id": FORM, "username": "lin", "role": "viewer", "tenants": "", "reason": "x", **typed}
    answer = admin.post("/users-new/", form)
    assert answer.status_code in (409, 422)
    assert list(answer.context["form"].errors) == [field]
    assert "<script>alert" not in answer.content.decode()
    assert not User.objects.filter(username="lin").exists()


def test_a_change_says_what_it_ends_and_ends_it(omar: User, admin: Client) -> None:
    own = browser_of(omar)
    token_of(omar)
    said = applied(admin, "/users/omar/edit/", role="viewer", tenants="acme", is_active="on")
    assert (
        "Ended at once: 1 log-in; omar logs in again. "
        "Still good, with no more than the new role and tenants: 1 API token." in said
    )
    omar.refresh_from_db()
    assert (omar.role, omar.tenants) == (Role.VIEWER, ["acme"])
    assert own.get("/tenants/").status_code == 302
    said = applied(admin, "/users/omar/edit/", role="viewer", tenants="acme")
    assert "omar can log in no longer. Ended at once: 0 log-ins, 1 API token." in said
    assert row_of(page(admin, "/users/"), "omar").startswith("omar off viewer acme")


def test_the_last_admin_stays(admin: Client) -> None:
    for typed in ({"role": "operator", "is_active": "on"}, {"role": "admin"}):
        answer = admin.post("/users/admin-person/edit/", {**typed, "tenants": "", "step": "review"})
        assert answer.status_code == 422
        assert "last active admin" in answer.content.decode()
    assert admin.get("/users/").status_code == 200


def test_log_ins_of_a_user_end_and_their_tokens_go_on(omar: User, admin: Client) -> None:
    own, script = browser_of(omar), token_of(omar)
    assert "Ended at once, in all browsers: 1 log-in." in applied(admin, "/users/omar/end-log-ins/")
    assert own.get("/tenants/").status_code == 302
    assert script.get("/me").status_code == 200
    assert open_log_ins().get(omar.pk) is None


def test_a_forgotten_password_is_replaced_by_one_that_is_shown_once(omar: User, admin: Client) -> None:
    own = browser_of(omar)
    password = secret_in(admin.post("/users/omar/password/", {"form_id": FORM, "reason": "forgotten"}))
    assert own.get("/tenants/").status_code == 302
    assert Client().login(username="omar", password=password)
    assert not Client().login(username="omar", password=PASSWORD)


def test_the_password_of_the_provider_is_not_replaced_here(admin: Client) -> None:
    User.objects.create(username="grace", oidc_issuer="https://id.example", oidc_subject="1")
    answer = admin.post("/users/grace/password/", {"form_id": FORM, "reason": "forgotten"})
    assert answer.status_code == 422
    assert "logs in by https://id.example" in answer.content.decode()


def test_a_token_is_made_shown_once_and_never_above_its_maker(omar: User) -> None:
    own = browser_of(omar)
    html = page(own, "/api-tokens-new/")
    assert re.findall(r'<option value="(\w+)"', html) == ["viewer", "operator"]
    typed = {
        "form_id": FORM, "name": "grafana", "role": "viewer", "tenants": "", "scopes": ["metrics", "tenants"],
        "days": "30", "reason": "boards",
    }  # fmt: skip
    secret = secret_in(own.post("/api-tokens-new/", typed))
    row = ApiToken.objects.get()
    assert (row.user, row.scopes, row.role) == (omar, ["metrics", "tenants"], Role.VIEWER)
    assert secret.startswith("hwt-")
    assert "never" in row_of(page(own, "/api-tokens/"), "grafana")
    refused = own.post("/api-tokens-new/", {**typed, "form_id": FORM.replace("7", "8"), "role": "admin", "name": "g"})
    assert list(refused.context["form"].errors) == ["role"]
    taken = own.post("/api-tokens-new/", {**typed, "form_id": FORM.replace("7", "9")})
    assert list(taken.context["form"].errors) == ["name"]


def test_the_calls_of_a_token_are_named_in_words(omar: User) -> None:
    own = browser_of(omar)
    page(own, "/api-tokens-new/")
    assert set(SCOPES) == known_scopes
    token_of(omar, name="grafana", scopes=["alert-routes", "cordon policy"])
    assert "Alert routes, Cordon policy" in row_of(page(own, "/api-tokens/"), "grafana")
    own.cookies["django_language"] = "tr"
    assert re.search(r'value="alert-routes"[^>]*>\s*Uyarı yolları', page(own, "/api-tokens-new/"))
    assert "Uyarı yolları, Devre dışı bırakma ilkesi" in row_of(page(own, "/api-tokens/"), "grafana")
    with override("tr"):
        assert [scope for scope in SCOPES if scope_label(scope).casefold().replace(" ", "-") == scope] == []


def test_use_of_a_token_is_seen_and_a_minute_of_it_costs_one_write(omar: User) -> None:
    script = token_of(omar, name="script")
    assert script.get("/me").status_code == 200
    used = ApiToken.objects.get().last_used_at
    assert used is not None
    assert timezone.now() - used < timedelta(seconds=30)
    script.get("/me")
    assert ApiToken.objects.get().last_used_at == used
    ApiToken.objects.update(last_used_at=used - timedelta(minutes=2))
    script.get("/me")
    assert ApiToken.objects.get().last_used_at > used - timedelta(minutes=1)  # type: ignore[operator]
    (shown,) = script.get("/api-tokens").json()["items"]
    assert shown["last_used_at"]
    assert "just now" in row_of(page(browser_of(omar), "/api-tokens/"), "script")


def test_a_token_is_revoked_by_its_owner_and_by_an_admin_and_by_nobody_else(
    omar: User, admin: Client, operator: Client
) -> None:
    scripts = [token_of(omar, name=name) for name in ("first", "second")]
    first, second = ApiToken.objects.order_by("pk")
    path = f"/api-tokens/{first.pk}/revoke/"
    assert operator.get(path).status_code == 404
    assert path not in page(operator, "/api-tokens/?everyone=1")
    assert "It was last used: never." in applied(browser_of(omar), path)
    assert scripts[0].get("/me").status_code == 401
    assert f"/api-tokens/{second.pk}/revoke/" in page(admin, "/api-tokens/?everyone=1")
    assert path not in page(admin, "/api-tokens/?everyone=1")
    applied(admin, f"/api-tokens/{second.pk}/revoke/")
    assert scripts[1].get("/me").status_code == 401


@pytest.mark.parametrize(
    ("token", "user", "state"),
    [
        ({}, {}, "active"),
        ({"revoked_at": timezone.now()}, {}, "revoked"),
        ({"expires_at": timezone.now()}, {}, "expired"),
        ({}, {"is_active": False}, "off"),
        ({}, {"oidc_issuer": "https://id", "last_login": None}, "resting"),
        ({}, {"oidc_issuer": "https://id", "last_login": timezone.now() - timedelta(days=8)}, "resting"),
        ({}, {"oidc_issuer": "https://id", "last_login": timezone.now()}, "active"),
    ],
)
def test_a_token_says_whether_it_works(token: dict[str, Any], user: dict[str, Any], state: str) -> None:
    row = ApiToken(user=User(username="x", **user), **{"expires_at": timezone.now() + timedelta(days=1), **token})
    assert TokenLine(row).state == state


def test_the_account_shows_the_log_ins_of_this_person_alone(omar: User, admin: Client) -> None:
    own, _elsewhere = browser_of(omar), browser_of(omar)
    assert 'href="/account/"' in page(own, "/tenants/")
    html = page(own, "/account/")
    log_ins = text_of(html[html.index('id="log-ins"') : html.index('id="api-tokens"')])
    assert log_ins.count("UTC") == 2
    assert log_ins.count("this browser") == 1
    assert "admin-person" not in html
    assert "/api/v1/me/log-ins" in html
    assert "/api/v1/me/password?reason=WHY" in page(own, "/account/password/")


def test_a_password_is_changed_by_who_knows_it_and_other_browsers_are_logged_out(omar: User) -> None:
    own, elsewhere = browser_of(omar), browser_of(omar)
    answer = own.post("/account/password/", CHANGE)
    assert (answer.status_code, answer["Location"]) == (302, "/account/?changed=password")
    assert "Your password is changed." in page(own, answer["Location"])
    assert elsewhere.get("/account/").status_code == 302
    assert Client().login(username="omar", password=OTHER)
    entry = AuditEntry.objects.latest("pk")
    assert entry.after is not None
    assert (entry.actor, entry.after["password_changed"]) == ("omar", True)
    assert OTHER not in str(entry.after)


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"current": "a guess of mine"}, "current"),
        ({"again": "something else"}, "again"),
        ({"password": "short", "again": "short"}, "password"),
        ({"password": ""}, "password"),
    ],
)
def test_a_password_that_is_not_changed_says_why(typed: dict[str, str], field: str, omar: User) -> None:
    own = browser_of(omar)
    answer = own.post("/account/password/", {**CHANGE, **typed})
    assert answer.status_code == 422
    assert field in answer.context["form"].errors
    # What was typed there is never shown.
    assert not {PASSWORD, OTHER} & set(re.findall(r'value="([^"]*)"', answer.content.decode()))
    assert Client().login(username="omar", password=PASSWORD)


def test_guesses_of_the_present_password_have_a_bound(omar: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.web.throttle.FAILURES_MAX", 2)
    own = browser_of(omar)
    typed = {**CHANGE, "current": "a guess of mine"}
    for _ in range(2):
        own.post("/account/password/", typed)
    answer = own.post("/account/password/", {**typed, "current": PASSWORD})
    assert "Too many wrong passwords." in answer.content.decode()
    assert Client().login(username="omar", password=PASSWORD)


def test_logging_out_everywhere_leads_to_the_log_in(omar: User) -> None:
    own, elsewhere = browser_of(omar), browser_of(omar)
    assert "Ended at once, this one too: 2 log-ins." in applied(own, "/account/end-log-ins/")
    assert own.get("/account/").status_code == elsewhere.get("/account/").status_code == 302


def test_people_of_a_tenant_have_their_account_and_tokens(db: None) -> None:
    own = browser_of(User.objects.create(username="of-acme", role=Role.OPERATOR, tenants=["acme"]))
    for path in ("/account/", "/api-tokens/", "/api-tokens-new/"):
        assert "/users/" not in page(own, path)
    typed = {"form_id": FORM, "name": "t", "role": "viewer", "tenants": "beta", "days": "1", "reason": "x"}
    answer = own.post("/api-tokens-new/", typed)
    assert list(answer.context["form"].errors) == ["tenants"]
    assert "beyond what the maker of this token has" in answer.content.decode()
