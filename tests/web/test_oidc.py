"""Log-in by an OpenID Connect provider that runs on this machine, and what its answers may not do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import oidc_provider_mock
import pytest
import requests
from django.test import Client
from django.utils import timezone

from controlplane.core import users
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Refused
from controlplane.core.models import ApiToken, AuditEntry, Role, User
from tests.controlplane.core.people import token_of
from tests.services import free_port
from tests.web.site import PASSWORD

BEGIN, BACK = "/log-in/provider/", "/log-in/provider/back/"
ROLES = {
    "boss": {"role": "admin"},
    "staff": {"role": "operator"},
    "acme-ops": {"role": "operator", "tenants": ["acme"]},
    "beta-ops": {"role": "operator", "tenants": ["beta"]},
    "readers": {"role": "viewer"},
}
CLIENT_SECRET = "a-secret-that-no-page-and-no-log-shows"


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with oidc_provider_mock.run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def configured(db: None, provider: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {
        "ISSUER": provider,
        "CLIENT_SECRET": CLIENT_SECRET,
        "NAME": "Lab ID",
        "ROLES": json.dumps(ROLES),
    }.items():
        monkeypatch.setenv(f"HEADWORKS_OIDC_{name}", value)
    return provider


def person_at(provider: str, subject: str, **claims: Any) -> None:
    """What the provider knows of a person."""
    answer = requests.put(f"{provider}/users/{subject}", json={"preferred_username": subject, **claims}, timeout=10)
    assert answer.status_code == 204


def log_in(client: Client, subject: str, begin: str = BEGIN) -> Any:
    """Go to the provider as a browser does, log in there, and come back."""
    return client.get(way_back(client, subject, begin))


def way_back(client: Client, subject: str, begin: str = BEGIN, **form: str) -> str:
    there = client.get(begin)
    assert there.status_code == 302, there.content
    back = requests.post(there["Location"], data={"sub": subject, **form}, allow_redirects=False, timeout=10)
    assert back.status_code == 302, back.text
    return back.headers["Location"].removeprefix("http://testserver")


def text_of(answer: Any) -> str:
    text: str = answer.content.decode()
    assert CLIENT_SECRET not in text
    return text


def test_a_person_logs_in_gets_the_role_of_the_group_and_has_no_password(configured: str) -> None:
    person_at(configured, "grace", groups=["staff", "unknown"])
    browser = Client()
    page = text_of(browser.get("/log-in/?next=/targets/"))
    assert "Log in with Lab ID" in page
    answer = log_in(browser, "grace", f"{BEGIN}?next=/targets/")
    assert (answer.status_code, answer["Location"]) == (302, "/targets/")
    user = User.objects.get(username="grace")
    assert (user.role, user.tenants, user.has_usable_password()) == (Role.OPERATOR, None, False)
    assert (user.oidc_issuer, user.oidc_subject) == (configured, "grace")
    assert browser.get("/tenants/").status_code == 200
    made = AuditEntry.objects.get(noun="user")
    assert (made.actor, made.action, made.address) == ("grace", "create", "127.0.0.1")


def test_the_way_there_carries_a_state_a_nonce_and_a_challenge(configured: str) -> None:
    query = parse_qs(urlsplit(Client().get(BEGIN)["Location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    assert all(len(query[name][0]) >= 32 for name in ("state", "nonce", "code_challenge"))
    assert query["redirect_uri"] == [f"http://testserver{BACK}"]
    assert query["scope"] == ["openid profile"]


def test_the_log_in_gives_the_session_a_new_key_and_a_short_end(configured: str) -> None:
    person_at(configured, "grace", groups=["staff"])
    browser = Client()
    back = way_back(browser, "grace")
    planted = browser.cookies["headworks_session"].value
    browser.get(back)
    assert browser.cookies["headworks_session"].value != planted
    assert 3500 < (browser.session.get_expiry_date() - timezone.now()).total_seconds() <= 3600


@pytest.mark.parametrize(
    ("groups", "role", "tenants"),
    [
        (["readers", "staff"], Role.OPERATOR, None),
        (["acme-ops", "beta-ops", "readers"], Role.OPERATOR, ["acme", "beta"]),
        (["acme-ops", "staff"], Role.OPERATOR, None),
        ("readers", Role.VIEWER, None),
        (["boss", "acme-ops"], Role.ADMIN, None),
    ],
)
def test_of_several_groups_the_highest_role_counts(
    configured: str, groups: Any, role: Role, tenants: list[str] | None
) -> None:
    person_at(configured, "grace", groups=groups)
    log_in(Client(), "grace")
    user = User.objects.get(username="grace")
    assert (user.role, user.tenants) == (role, tenants)


def test_roles_within_an_object_are_found(configured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_OIDC_ROLE_CLAIM", "realm_access.roles")
    person_at(configured, "grace", realm_access={"roles": ["readers"]}, groups=["boss"])
    log_in(Client(), "grace")
    assert User.objects.get(username="grace").role == Role.VIEWER


def test_people_of_some_tenants_begin_at_theirs(configured: str) -> None:
    person_at(configured, "grace", groups=["acme-ops"])
    assert log_in(Client(), "grace")["Location"] == "/tenants/"


@pytest.mark.parametrize("claims", [{}, {"groups": []}, {"groups": ["elsewhere"]}, {"groups": {"boss": True}}])
def test_whom_no_group_gives_a_role_is_refused_with_what_would_be_right(
    configured: str, claims: dict[str, Any]
) -> None:
    person_at(configured, "mallory", **claims)
    browser = Client()
    answer = log_in(browser, "mallory")
    assert answer.status_code == 403
    assert "none of your values of “groups” there gives a role here" in text_of(answer)
    assert f'href="{BEGIN}"' in text_of(answer)
    assert not User.objects.exists()
    assert browser.get("/tenants/").status_code == 302


def test_a_local_user_of_the_same_name_is_not_taken_over(configured: str) -> None:
    local = User.objects.create_user("ada", password=PASSWORD, email="ada@example.org", role=Role.ADMIN)
    person_at(configured, "someone", preferred_username="Ada", email="ada@example.org", groups=["readers"])
    log_in(Client(), "someone")
    made = User.objects.get(oidc_subject="someone")
    assert made.pk != local.pk
    assert made.username.startswith("Ada-")
    local.refresh_from_db()
    assert (local.role, local.oidc_issuer, local.has_usable_password()) == (Role.ADMIN, None, True)


def test_the_same_subject_of_another_issuer_is_another_person(configured: str) -> None:
    other = User.objects.create(
        username="grace", oidc_issuer="https://old.example", oidc_subject="grace", role=Role.ADMIN
    )
    person_at(configured, "grace", groups=["readers"])
    log_in(Client(), "grace")
    assert User.objects.get(oidc_issuer=configured).pk != other.pk


def test_a_person_keeps_the_row_under_another_name_there(configured: str) -> None:
    person_at(configured, "u-1", preferred_username="grace", groups=["readers"])
    log_in(Client(), "u-1")
    person_at(configured, "u-1", preferred_username="hopper", groups=["readers"])
    log_in(Client(), "u-1")
    assert User.objects.get().username == "grace"


@pytest.mark.parametrize("wish", ["", None, "ö ü", "x" * 500, "a/../b\0", "<script>"])
def test_whatever_a_person_is_called_there_the_name_here_is_one(configured: str, wish: Any) -> None:
    person_at(configured, "u-1", preferred_username=wish, groups=["readers"])
    assert log_in(Client(), "u-1").status_code == 302
    assert users.LIKE_USERNAME.refusal(User.objects.get().username) is None


def test_the_role_is_judged_anew_at_each_log_in_and_ends_the_log_ins_of_the_old_one(configured: str) -> None:
    person_at(configured, "grace", groups=["staff"])
    old, new = Client(), Client()
    log_in(old, "grace")
    person_at(configured, "grace", groups=["acme-ops"])
    log_in(new, "grace")
    user = User.objects.get()
    assert (user.role, user.tenants) == (Role.OPERATOR, ["acme"])
    assert old.get("/tenants/").status_code == 302
    assert new.get("/tenants/").status_code == 200
    entry = AuditEntry.objects.filter(noun="user").latest("pk")
    assert [(form or {}).get("tenants") for form in (entry.before, entry.after)] == [None, ["acme"]]


def test_who_is_in_no_group_any_more_loses_log_ins_and_tokens(configured: str) -> None:
    person_at(configured, "grace", groups=["staff"])
    old = Client()
    log_in(old, "grace")
    script = token_of(User.objects.get())
    assert script.get("/me").status_code == 200
    person_at(configured, "grace", groups=[])
    assert log_in(Client(), "grace").status_code == 403
    assert old.get("/tenants/").status_code == 302
    assert script.get("/me").status_code == 401
    assert ApiToken.objects.get().revoked_at is not None


def test_whom_an_admin_deactivated_the_provider_does_not_let_in_again(configured: str) -> None:
    person_at(configured, "grace", groups=["staff"])
    log_in(Client(), "grace")
    with unit_of_work(SYSTEM, "left") as unit:
        users.update(unit, "grace", {"is_active": False})
    answer = log_in(Client(), "grace")
    assert answer.status_code == 403
    assert "An admin here has ended your access." in text_of(answer)


def test_tokens_of_a_person_who_never_comes_back_rest(configured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    person_at(configured, "grace", groups=["staff"])
    log_in(Client(), "grace")
    script = token_of(User.objects.get())
    User.objects.update(last_login=timezone.now() - timedelta(days=8))
    refused = script.get("/me")
    assert (refused.status_code, refused.json()["code"]) == (401, "log_in_first")
    log_in(Client(), "grace")
    assert script.get("/me").status_code == 200


def test_a_person_of_the_provider_is_given_no_password(configured: str) -> None:
    person_at(configured, "grace", groups=["staff"])
    log_in(Client(), "grace")
    with pytest.raises(Refused), unit_of_work(SYSTEM, "a try") as unit:
        users.update(unit, "grace", {"password": "a long password"})


def test_an_admin_with_a_password_stays_for_the_day_when_the_provider_is_away(configured: str) -> None:
    User.objects.create_user("ada", password=PASSWORD, role=Role.ADMIN)
    person_at(configured, "grace", groups=["boss"])
    log_in(Client(), "grace")
    with pytest.raises(Refused, match="last active admin with a password"), unit_of_work(SYSTEM, "a try") as unit:
        users.update(unit, "ada", {"role": "operator"})
    assert Client().post("/log-in/", {"username": "ada", "password": PASSWORD}).status_code == 302


def test_an_answer_is_taken_once_and_by_the_browser_that_began(configured: str) -> None:
    person_at(configured, "grace", groups=["staff"])
    browser, other = Client(), Client()
    back = way_back(browser, "grace")
    for client, path in ((other, back), (other, BACK), (browser, f"{BACK}?code=x&state=y")):
        answer = client.get(path)
        assert answer.status_code == 400
        assert "Begin again." in text_of(answer)
    assert browser.get(back).status_code == 302
    browser.post("/log-out/")
    assert browser.get(back).status_code == 400


def test_an_answer_that_comes_too_late_is_refused(configured: str) -> None:
    person_at(configured, "grace", groups=["staff"])
    browser = Client()
    back = way_back(browser, "grace")
    session = browser.session
    for begun in session["oidc_states"].values():
        begun["added_on"] -= 601
    session.save()
    assert browser.get(back).status_code == 400


@pytest.mark.parametrize("error", ["access_denied", "<script>alert(1)</script>"])
def test_who_is_denied_there_reads_so_here(configured: str, error: str) -> None:
    browser = Client()
    state = parse_qs(urlsplit(browser.get(BEGIN)["Location"]).query)["state"][0]
    answer = browser.get(BACK, {"error": error, "state": state})
    assert answer.status_code == 403
    assert "Lab ID did not let you in" in text_of(answer)
    assert "<script>alert" not in text_of(answer)
    assert ("access_denied" in text_of(answer)) == (error == "access_denied")


def test_a_code_that_the_provider_does_not_know_is_refused(configured: str) -> None:
    browser = Client()
    state = parse_qs(urlsplit(browser.get(BEGIN)["Location"]).query)["state"][0]
    answer = browser.get(BACK, {"code": "made-up", "state": state})
    assert answer.status_code == 502
    assert "cannot be used (HTTPError)" in text_of(answer)


def test_while_the_provider_is_away_a_page_says_so_and_passwords_work(
    configured: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HEADWORKS_OIDC_ISSUER", f"http://127.0.0.1:{free_port()}")
    answer = Client().get(BEGIN)
    assert answer.status_code == 503
    assert "Lab ID cannot be reached now." in text_of(answer)
    assert 'href="/log-in/"' in text_of(answer)
    assert CLIENT_SECRET not in caplog.text
    User.objects.create_user("ada", password=PASSWORD)
    assert Client().post("/log-in/", {"username": "ada", "password": PASSWORD}).status_code == 302


def test_another_issuer_in_the_discovery_document_is_not_trusted(
    configured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWORKS_OIDC_ISSUER", configured.replace("localhost", "127.0.0.1") + "/")
    answer = Client().get(BEGIN)
    assert answer.status_code == 502
    assert "names another issuer" in text_of(answer)


def test_without_an_issuer_there_is_no_such_log_in(db: None) -> None:
    assert Client().get(BEGIN).status_code == 404
    assert Client().get(BACK).status_code == 404
    assert "provider" not in text_of(Client().get("/log-in/"))


def test_it_leads_to_no_other_host(configured: str) -> None:
    person_at(configured, "grace", groups=["staff"])
    assert log_in(Client(), "grace", f"{BEGIN}?next=https://elsewhere.example/")["Location"] == "/overview/"


def test_who_is_logged_in_already_is_not_sent_there(configured: str, operator: Client) -> None:
    assert operator.get(BEGIN)["Location"] == "/overview/"


def test_log_out_ends_the_log_in_here_and_leads_to_the_one_there(configured: str, operator: Client) -> None:
    person_at(configured, "grace", groups=["staff"])
    browser = Client()
    log_in(browser, "grace")
    page = text_of(browser.post("/log-out/"))
    assert f'href="{configured}/oauth2/end_session?client_id=headworks&amp;post_logout_redirect_uri=' in page
    assert browser.get("/tenants/").status_code == 302
    # Who came by a password has nothing to end there.
    assert operator.post("/log-out/").status_code == 302
