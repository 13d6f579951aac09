"""Log-in, its bound on guesses, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.core.models import Role, User
from controlplane.web.models import LoginFailure
from controlplane.web.throttle import ADDRESS_FAILURES_MAX, FAILURES_MAX, WINDOW, begin_attempt, forget_failures
from tests.controlplane.core.racing import at_once
from tests.web.site import PASSWORD

LOGIN = "/log-in/"


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", password=PASSWORD, role=Role.OPERATOR)


def _try(client: Client, password: str, name: str = "ada", address: str = "10.0.0.1") -> str:
    answer = client.post(LOGIN, {"username": name, "password": password}, REMOTE_ADDR=address)
    return "in" if answer.status_code == 302 else answer.content.decode()


def test_the_right_password_leads_to_the_page_that_was_asked_for(ada: User, outsider: Client) -> None:
    to_login = outsider.get("/targets/")
    assert to_login.status_code == 302
    answer = outsider.post(to_login["Location"], {"username": "ada", "password": PASSWORD, "next": "/targets/"})
    assert (answer.status_code, answer["Location"]) == (302, "/targets/")


def test_it_does_not_lead_to_another_host(ada: User, outsider: Client) -> None:
    answer = outsider.post(LOGIN, {"username": "ada", "password": PASSWORD, "next": "https://elsewhere.example/"})
    assert answer["Location"] == "/overview/"


def test_five_failures_make_the_name_wait_even_with_the_right_password(ada: User, outsider: Client) -> None:
    for _ in range(FAILURES_MAX):
        assert "Too many" not in _try(outsider, "wrong")
    page = _try(outsider, PASSWORD)
    assert "Too many failed log-ins for this name or from this address. Try again in 15 minutes." in page
    # Neither another name nor another address is held up by it.
    assert _try(outsider, PASSWORD, address="10.0.0.2") == "in"


def test_letter_case_does_not_give_more_guesses(ada: User, outsider: Client) -> None:
    for name in ("ada", "Ada", "ADA", "aDa", "adA"):
        _try(outsider, "wrong", name)
    assert "Too many" in _try(outsider, "wrong", "aDA")


def test_waiting_it_out_lets_the_person_in(ada: User, outsider: Client) -> None:
    for _ in range(FAILURES_MAX):
        _try(outsider, "wrong")
    LoginFailure.objects.update(at=timezone.now() - WINDOW)
    assert _try(outsider, PASSWORD) == "in"


def test_an_attempt_while_waiting_does_not_lengthen_the_wait(ada: User, outsider: Client) -> None:
    for _ in range(FAILURES_MAX):
        _try(outsider, "wrong")
    LoginFailure.objects.update(at=timezone.now() - WINDOW + timedelta(seconds=90))
    _try(outsider, "wrong")
    wait = begin_attempt("ada", "10.0.0.1")
    assert wait is not None
    assert wait <= timedelta(seconds=90)


def test_the_right_password_clears_the_count(ada: User, outsider: Client) -> None:
    for _ in range(FAILURES_MAX - 1):
        _try(outsider, "wrong")
    assert _try(outsider, PASSWORD) == "in"
    assert [begin_attempt("ada", "10.0.0.1") for _ in range(FAILURES_MAX)] == [None] * FAILURES_MAX


def test_what_was_typed_as_a_name_is_not_stored_in_clear(ada: User, outsider: Client) -> None:
    _try(outsider, "wrong", "my-password-by-mistake")
    subjects = list(LoginFailure.objects.values_list("subject", flat=True))
    assert len(subjects) == 2
    assert not any("mistake" in subject or "10.0.0.1" in subject for subject in subjects)


def test_one_address_has_a_bound_with_all_names_together(ada: User) -> None:
    for number in range(ADDRESS_FAILURES_MAX):
        assert begin_attempt(f"name-{number}", "10.0.0.1") is None
    assert begin_attempt("ada", "10.0.0.1") is not None
    assert begin_attempt("ada", "10.0.0.2") is None


def test_right_passwords_do_not_count_for_their_address(ada: User) -> None:
    for _ in range(ADDRESS_FAILURES_MAX + 1):
        assert begin_attempt("ada", "10.0.0.1") is None
        forget_failures("ada", "10.0.0.1")
    assert not LoginFailure.objects.exists()


def test_guesses_sent_at_the_same_moment_cannot_all_pass(transactional_db: None) -> None:
    waits: list[timedelta | None] = []
    guesses = [lambda: waits.append(begin_attempt("ada", "10.0.0.1"))] * (3 * FAILURES_MAX)
    ends = at_once(*guesses)
    assert ends == [None] * len(guesses)
    assert waits.count(None) <= FAILURES_MAX
    # Those that had to wait are not counted, so that they lengthen nobody's wait.
    assert LoginFailure.objects.count() == 2 * waits.count(None)


def test_a_person_who_was_deactivated_is_out_at_once(ada: User, browser_of: Callable[[Role | None], Client]) -> None:
    client = browser_of(None)
    client.force_login(ada)
    assert client.get("/tenants/").status_code == 200
    User.objects.update(is_active=False)
    assert client.get("/tenants/").status_code == 302


def test_log_out_needs_a_post_and_ends_the_session(operator: Client) -> None:
    assert operator.get("/log-out/").status_code == 405
    assert operator.get("/tenants/").status_code == 200
    assert operator.post("/log-out/").status_code == 302
    assert operator.get("/tenants/").status_code == 302
