"""What people call a tenant, in any script, with quotes and markup: every page shows it as itself."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils.html import escape

from controlplane.configs import publisher
from controlplane.tenants import services
from tests.web.conftest import digest_of, write

HOSTILE = "\"Müşteri & <script>alert('x')</script>\" 客户"
EDIT = "/tenants/acme/edit/"
FIELDS = {"weight": "1", "tpm_limit": "60000"}


def page_of(client: Client, path: str, language: str) -> str:
    answer = client.get(path, headers={"accept-language": language})
    assert answer.status_code == 200
    return answer.content.decode()


def assert_as_itself(page: str) -> None:
    assert escape(HOSTILE) in page
    assert "<script>alert" not in page


@pytest.fixture
def named(acme: str) -> str:
    write(lambda unit: services.update(unit, acme, {"display_name": HOSTILE}))
    publisher.publish()
    return acme


@pytest.mark.parametrize("language", ["en", "tr"])
@pytest.mark.parametrize("path", ["/tenants/", "/tenants/acme/", EDIT, "/audit/", "/revisions/1/"])
def test_it_shows_as_itself(path: str, language: str, named: str, operator: Client) -> None:
    page = page_of(operator, path, language)
    assert f'<html lang="{language}">' in page
    assert_as_itself(page)


def test_it_heads_the_tenants_page_and_its_name_stands_beside(named: str, operator: Client) -> None:
    heading = page_of(operator, "/tenants/acme/", "en").split("<h1>")[1].split("</h1>")[0]
    assert heading.index(escape(HOSTILE)) < heading.index("acme")
    write(lambda unit: services.update(unit, named, {"display_name": ""}))
    assert "<h1>acme</h1>" in page_of(operator, "/tenants/acme/", "en")


def test_the_list_is_searched_by_it_too(named: str, operator: Client) -> None:
    write(lambda unit: services.create(unit, "beta", {}))
    for text, found in (("客户", "acme"), ("<script>", "acme"), ("bet", "beta")):
        page = operator.get("/tenants/", {"q": text}).content.decode()
        other = {"acme": "beta", "beta": "acme"}[found]
        assert f'href="/tenants/{found}/"' in page
        assert f'href="/tenants/{other}/"' not in page


@pytest.mark.parametrize(("language", "label"), [("en", "Display name"), ("tr", "Görünen ad")])
def test_its_change_is_reviewed_and_made(language: str, label: str, acme: str, operator: Client) -> None:
    def post(**fields: str) -> tuple[int, str]:
        sent = {**FIELDS, "display_name": HOSTILE, **fields}
        answer = operator.post(EDIT, sent, headers={"accept-language": language})
        return answer.status_code, answer.content.decode()

    status, review = post(step="review")
    assert status == 200
    assert f">{label}<" in review
    assert f"<ins>{escape(HOSTILE)}</ins>" in review
    assert_as_itself(review)
    assert post(step="apply", digest=digest_of(review), reason="their own name")[0] == 302
    assert services.get(acme).display_name == HOSTILE


def test_a_form_without_it_takes_it_off(named: str, operator: Client) -> None:
    review = operator.post(EDIT, {**FIELDS, "display_name": "", "step": "review"}).content.decode()
    assert f"<del>{escape(HOSTILE)}</del>" in review
    sent = {**FIELDS, "display_name": "", "step": "apply", "digest": digest_of(review), "reason": "plain"}
    assert operator.post(EDIT, sent).status_code == 302
    assert services.get(named).display_name == ""


def test_a_new_tenant_has_it(operator: Client) -> None:
    fields = {"name": "acme", "display_name": HOSTILE, "weight": "1"}
    review = operator.post("/tenants-new/", {**fields, "step": "review"}).content.decode()
    assert_as_itself(review)
    sent = {**fields, "step": "apply", "digest": digest_of(review), "reason": "new team"}
    assert operator.post("/tenants-new/", sent).status_code == 302
    assert services.get("acme").display_name == HOSTILE


@pytest.mark.parametrize(
    ("language", "typed", "says"),
    [
        ("en", "a\u202eb", "U+202E is a control character. Leave it out."),
        ("tr", "a\u202eb", "U+202E bir denetim karakteridir. Çıkarın."),
        ("en", "ş" * 121, "at most 120 characters"),
        ("tr", "ş" * 121, "en fazla 120 karakter"),
    ],
)
def test_what_is_refused_stays_in_its_field(language: str, typed: str, says: str, named: str, operator: Client) -> None:
    sent = {**FIELDS, "display_name": typed, "step": "review"}
    answer = operator.post(EDIT, sent, headers={"accept-language": language})
    page = answer.content.decode()
    assert answer.status_code == 422
    label = page.index('for="id_display_name"')
    block = page[label : page.index("</div>", label)]
    assert says in block
    assert f'value="{typed}"' in block
    assert services.get(named).display_name == HOSTILE
