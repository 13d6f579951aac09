"""A form that is sent twice, by a button pressed twice or a page loaded anew, does once what it says."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError
from django.test import Client

from controlplane.core.models import AuditEntry, Role, User
from controlplane.fleet.models import Act, Node
from controlplane.tenants import services as tenants
from controlplane.tenants.services import PRIORITY_CLASSES
from controlplane.web.models import LoginFailure
from tests.web.conftest import digest_of, new_target, write
from tests.web.hardware import node
from tests.web.site import PASSWORD

pytestmark = pytest.mark.django_db


def review(client: Client, path: str, typed: dict[str, str]) -> dict[str, str]:
    """The fields of the page of review that a browser sends back."""
    text = client.post(path, {**typed, "step": "review"}).content.decode()
    named = re.search(r'name="change_id" value="([0-9a-f-]{36})"', text)
    assert named, text
    return {**typed, "step": "apply", "digest": digest_of(text), "reason": "a test", "change_id": named[1]}


def test_a_change_of_the_configuration_is_made_once_and_followed_twice(acme: str, operator: Client) -> None:
    sent = review(operator, f"/tenants/{acme}/edit/", {"weight": "7", "tpm_limit": "5000"})
    first, second = (operator.post(f"/tenants/{acme}/edit/", sent) for _ in range(2))
    assert first.status_code == second.status_code == 302
    assert first["Location"] == second["Location"] == f"/tenants/{acme}/?change={sent['change_id']}"
    assert AuditEntry.objects.filter(noun="tenant", action="update").count() == 1


def test_what_is_new_is_made_once(operator: Client) -> None:
    sent = review(operator, "/tenants-new/", {"name": "beta", "weight": "1"})
    assert [operator.post("/tenants-new/", sent).status_code for _ in range(2)] == [302, 302]
    assert AuditEntry.objects.filter(key="beta").count() == 1


@pytest.mark.parametrize(
    ("path", "home"),
    [
        ("/priority-classes/night/delete/", "/priority-classes/"),
        ("/engines/llama-a/delete/", "/fleet/"),
        ("/fleet/rack-1/delete/", "/fleet/"),
    ],
)
def test_what_is_deleted_twice_is_gone_once(operator: Client, path: str, home: str) -> None:
    write(lambda unit: PRIORITY_CLASSES.create(unit, "night", {"rank": 1}))
    node("rack-1", engines=["llama-a"] if "engines" in path else [])
    sent = review(operator, path, {})
    first, second = (operator.post(path, sent) for _ in range(2))
    assert (first.status_code, second.status_code) == (302, 302)
    assert first["Location"] == second["Location"] == f"{home}?change={sent['change_id']}"
    assert AuditEntry.objects.filter(key=path.split("/")[-3], action="delete").count() == 1
    assert operator.post(path, {**sent, "change_id": ""}).status_code == operator.get(path).status_code == 404


def test_an_act_is_asked_for_once(operator: Client) -> None:
    node("rack-1", engines=["llama-a"])
    new_target("node", "rack-1")
    Node.objects.update(allowed_acts={"llama-a": ["sleep"]})
    path = "/acts-new/sleep/?engine=llama-a"
    sent = review(operator, path, {"level": "1", "expires_in_seconds": "60"})
    first, second = (operator.post(path, sent) for _ in range(2))
    assert (first.status_code, second.status_code) == (302, 302)
    assert Act.objects.count() == 1


def test_two_reviews_are_two_changes(acme: str, operator: Client) -> None:
    names = {review(operator, f"/tenants/{acme}/edit/", {"weight": "7"})["change_id"] for _ in range(2)}
    assert len(names) == 2


@pytest.mark.parametrize("change_id", ["", "x", "00000000"])
def test_a_name_that_is_none_is_as_good_as_not_given(change_id: str, acme: str, operator: Client) -> None:
    sent = review(operator, f"/tenants/{acme}/edit/", {"weight": "7"})
    assert operator.post(f"/tenants/{acme}/edit/", {**sent, "change_id": change_id}).status_code == 302


def test_a_database_that_is_locked_says_so_and_the_form_may_be_sent_again(
    acme: str, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = review(operator, f"/tenants/{acme}/edit/", {"weight": "7"})

    def locked(*_: Any, **__: Any) -> None:
        raise OperationalError("database is locked")

    operator.raise_request_exception = False
    with monkeypatch.context() as patched:
        patched.setattr(tenants, "update", locked)
        answer = operator.post(f"/tenants/{acme}/edit/", sent)
        turkish = operator.post(f"/tenants/{acme}/edit/", sent, headers={"accept-language": "tr"})
    assert answer.status_code == 503
    assert int(answer["Retry-After"]) > 0
    assert "A form may be sent again" in answer.content.decode()
    assert "Content-Security-Policy" in answer
    assert "Form yeniden gönderilebilir" in turkish.content.decode()
    assert operator.post(f"/tenants/{acme}/edit/", sent).status_code == 302


def form_id_of(client: Client, path: str) -> str:
    named = re.search(r'name="form_id" value="([0-9a-f-]{36})"', client.get(path).content.decode())
    assert named
    return named[1]


def sent_twice(client: Client, path: str, typed: dict[str, str]) -> list[Any]:
    """A form without a review, as a browser sends it whose button is pressed twice."""
    form_id = form_id_of(client, path)
    return [client.post(path, {**typed, "form_id": form_id}) for _ in range(2)]


def test_the_key_of_an_engine_is_set_once_and_followed_twice(operator: Client) -> None:
    node("rack-1", engines=["llama-a"])
    first, second = sent_twice(operator, "/engines/llama-a/key/", {"api_key": "sk-1", "reason": "it asks for one"})
    assert first.status_code == second.status_code == 302
    assert first["Location"] == second["Location"]
    assert first["Location"].startswith("/fleet/?change=")
    assert AuditEntry.objects.filter(noun="engine", key="llama-a", reason="it asks for one").count() == 1


def test_a_persons_own_password_is_changed_once_and_the_second_time_is_no_wrong_guess(client: Client) -> None:
    person = User.objects.create_user("ada", password=PASSWORD, role=Role.VIEWER)
    client.force_login(person)
    typed = {"current": PASSWORD, "password": "another long sentence", "again": "another long sentence"}
    first, second = sent_twice(client, "/account/password/", typed)
    assert first.status_code == second.status_code == 302
    assert first["Location"] == second["Location"] == "/account/?changed=password"
    assert AuditEntry.objects.filter(noun="user", key="ada").count() == 1
    assert not LoginFailure.objects.exists()
    assert client.login(username="ada", password="another long sentence")


def test_a_second_press_with_the_log_in_that_the_first_one_ended_is_not_told_that_nothing_was_done(
    client: Client,
) -> None:
    client.force_login(User.objects.create_user("ada", password=PASSWORD, role=Role.VIEWER))
    before = client.cookies[settings.SESSION_COOKIE_NAME].value
    typed = {"current": PASSWORD, "password": "another long sentence", "again": "another long sentence"}
    sent = {**typed, "form_id": form_id_of(client, "/account/password/")}
    assert client.post("/account/password/", sent)["Location"] == "/account/?changed=password"
    client.cookies[settings.SESSION_COOKIE_NAME] = before
    second = client.post("/account/password/", sent)
    assert second["Location"] == "/log-in/?next=/account/password/"
    other = client.post("/account/password/", {**typed, "form_id": str(uuid.uuid4())})
    assert other["Location"] == "/log-in/?next=/account/password/&unsent=1"
