"""The tenants' pages: the two steps of a change, what a refusal keeps, and names that look like markup."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from functools import partial

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import escape

from controlplane.configs import publisher
from controlplane.core.changes import UnitOfWork
from controlplane.core.models import AuditEntry, Role
from controlplane.fleet.services import MODELS
from controlplane.tenants import services
from tests.web.conftest import acknowledge, digest_of, new_target, write

EDIT = "/tenants/acme/edit/"
MARKUP = """<script>alert("x")</script>'&"""


def _fields(**changed: str) -> dict[str, str]:
    return {"weight": "1", "tpm_limit": "60000", **changed}


def _review(client: Client, **changed: str) -> str:
    answer = client.post(EDIT, {**_fields(**changed), "step": "review"})
    assert answer.status_code == 200, answer.content.decode()
    return answer.content.decode()


def test_a_change_is_shown_first_and_stored_only_once_it_is_applied_with_a_reason(acme: str, operator: Client) -> None:
    page = _review(operator, tpm_limit="20000")
    assert "<h3>tenant acme</h3>" in page
    assert ">Tokens per minute<" in page
    assert "<del>60,000</del>" in page
    assert "<ins>20,000</ins>" in page
    assert services.get(acme).tpm_limit == 60_000

    form = {**_fields(tpm_limit="20000"), "step": "apply", "digest": digest_of(page), "reason": "floods the pool"}
    answer = operator.post(EDIT, form)
    assert answer.status_code == 302
    assert services.get(acme).tpm_limit == 20_000
    entry = AuditEntry.objects.latest("pk")
    assert (entry.actor, entry.actor_kind, entry.reason) == ("operator-person", "user", "floods the pool")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["tpm_limit"], entry.after["tpm_limit"]) == (60_000, 20_000)
    assert answer["Location"] == f"/tenants/acme/?change={entry.change_id}"


def test_applying_needs_a_reason_and_keeps_the_review(acme: str, operator: Client) -> None:
    page = _review(operator, tpm_limit="20000")
    form = {**_fields(tpm_limit="20000"), "step": "apply", "digest": digest_of(page), "reason": " "}
    answer = operator.post(EDIT, form)
    assert answer.status_code == 422
    assert "This field is required." in answer.content.decode()
    assert 'name="tpm_limit" value="20000"' in answer.content.decode()
    assert services.get(acme).tpm_limit == 60_000


def test_a_form_that_someone_overtook_says_so_at_the_review(acme: str, operator: Client) -> None:
    opened = re.search(r'name="opened_on" value="([0-9a-f]+)"', operator.get(EDIT).content.decode())
    assert opened
    form = {**_fields(weight="3"), "step": "review", "opened_on": opened[1]}
    assert "Someone changed this since you opened the form." not in operator.post(EDIT, form).content.decode()
    write(lambda unit: services.update(unit, acme, {"tpm_limit": 90_000}))
    answer = operator.post(EDIT, form)
    assert answer.status_code == 409
    assert "Someone changed this since you opened the form." in answer.content.decode()
    # It is said once: the form that the review leads back to is of now.
    again = operator.post(EDIT, {**_fields(weight="3"), "step": "edit"}).content.decode()
    assert opened[1] not in again


def test_what_another_person_changed_meanwhile_is_shown_before_it_is_overwritten(acme: str, operator: Client) -> None:
    page = _review(operator, tpm_limit="20000")
    write(lambda unit: services.update(unit, acme, {"weight": 7}))
    form = {**_fields(tpm_limit="20000"), "step": "apply", "digest": digest_of(page), "reason": "floods the pool"}
    answer = operator.post(EDIT, form)
    assert answer.status_code == 409
    assert "Someone changed this meanwhile." in answer.content.decode()
    assert "<del>7</del>" in answer.content.decode()
    assert services.get(acme).weight == 7

    form["digest"] = digest_of(answer.content.decode())
    assert operator.post(EDIT, form).status_code == 302
    assert services.get(acme).weight == 1


@pytest.mark.parametrize(
    ("field", "typed", "rule"),
    [
        ("tpm_limit", "-5", "Give a whole number, 0 or more."),
        ("tpm_limit", "9" * 17, "Give 9,007,199,254,740,991 or less."),
        ("n_cap", "0", "Give a whole number, 1 or more."),
        ("tpm_limit", "many", "Enter a whole number."),
        ("weight", "", "required"),
    ],
)
def test_a_refused_value_stays_in_its_field_beside_the_rule(
    field: str, typed: str, rule: str, acme: str, operator: Client
) -> None:
    answer = operator.post(EDIT, {**_fields(**{"rpm_limit": "77", field: typed}), "step": "review"})
    page = answer.content.decode()
    assert answer.status_code == 422
    label = page.index(f'for="id_{field}"')
    block = page[label : page.index("</div>", label)]
    assert rule in block
    assert f'value="{typed}"' in block or not typed
    assert 'aria-invalid="true"' in block
    assert 'name="rpm_limit" value="77"' in page
    assert AuditEntry.objects.filter(action="update").count() == 0


def test_a_refusal_is_a_sentence_in_the_readers_language(acme: str, operator: Client) -> None:
    write(lambda unit: [services.PRIORITY_CLASSES.create(unit, name, {"rank": 1}) for name in ("batch", "urgent")])
    fields = {**_fields(n_cap="0"), "priority_classes": "batch", "default_priority_class": "urgent", "step": "review"}
    page = operator.post(EDIT, fields, headers={"accept-language": "tr"}).content.decode()
    assert "1 ya da daha büyük bir tam sayı verin." in page
    fields["n_cap"] = ""
    page = operator.post(EDIT, fields).content.decode()
    assert "The default must be one of the priority classes that are ticked." in page


def test_the_page_of_a_tenant_says_which_class_is_the_default(acme: str, viewer: Client) -> None:
    write(lambda unit: services.PRIORITY_CLASSES.create(unit, "interactive", {"rank": 1}))
    write(lambda unit: services.update(unit, acme, {"default_priority_class": "interactive"}))
    assert re.search(r"all</span><span[^>]*>; default interactive<", viewer.get("/tenants/acme/").content.decode())


def test_going_back_from_the_review_keeps_what_was_typed(acme: str, operator: Client) -> None:
    page = operator.post(EDIT, {**_fields(tpm_limit="123"), "step": "edit"}).content.decode()
    assert 'name="tpm_limit" value="123"' in page
    assert "Review the change" in page


def test_nothing_changed_says_so_and_offers_no_button(acme: str, operator: Client) -> None:
    page = _review(operator)
    assert "Nothing would change." in page
    assert 'value="apply"' not in page


def test_an_empty_limit_is_no_limit(acme: str, operator: Client) -> None:
    page = _review(operator, tpm_limit="")
    operator.post(EDIT, {**_fields(tpm_limit=""), "step": "apply", "digest": digest_of(page), "reason": "unlimited"})
    assert services.get(acme).tpm_limit is None
    assert "no limit" in operator.get("/tenants/acme/").content.decode()


def test_a_new_tenant_is_reviewed_then_made(operator: Client) -> None:
    fields = {"name": "search", "weight": "2", "tpm_limit": "500"}
    page = operator.post("/tenants-new/", {**fields, "step": "review"}).content.decode()
    assert not services.page()[0]
    answer = operator.post(
        "/tenants-new/", {**fields, "step": "apply", "digest": digest_of(page), "reason": "new team"}
    )
    assert answer.status_code == 302
    assert answer["Location"].startswith("/tenants/search/?change=")
    assert services.get("search").tpm_limit == 500


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("acme", "This name is taken. Choose another."),
        ("Über", "the first a letter or digit"),
        (MARKUP, "the first a letter or digit"),
    ],
)
def test_a_name_that_cannot_be_taken_is_refused_at_its_field_and_kept(
    name: str, rule: str, acme: str, operator: Client
) -> None:
    answer = operator.post("/tenants-new/", {"name": name, "weight": "1", "step": "review"})
    assert answer.status_code == 422
    page = answer.content.decode()
    assert rule in page
    assert f'value="{escape(name)}"' in page
    assert "<script>alert" not in page


def test_markup_shows_as_itself_wherever_people_type(acme: str, operator: Client) -> None:
    write(lambda unit: services.create_key(unit, acme, {"label": MARKUP}))
    page = _review(operator, tpm_limit="5")
    operator.post(EDIT, {**_fields(tpm_limit="5"), "step": "apply", "digest": digest_of(page), "reason": MARKUP})
    publisher.publish()
    for path in ("/tenants/acme/", "/revisions/", "/revisions/1/"):
        shown = operator.get(path).content.decode()
        assert escape(MARKUP) in shown, path
        assert "<script>alert" not in shown, path
    shown = operator.get("/tenants/", {"q": MARKUP}).content.decode()
    assert escape(MARKUP) in shown
    assert "<script>alert" not in shown


def test_the_list_shows_limits_and_how_many_keys(acme: str, viewer: Client) -> None:
    write(lambda unit: services.create_key(unit, acme, {}))
    page = viewer.get("/tenants/").content.decode()
    row = page[page.index("/tenants/acme/") :]
    assert "60,000" in row
    assert re.search(r'data-label="Keys">1</td>', row)


def test_the_list_is_searched_and_paged_by_name(viewer: Client) -> None:
    def make(unit: object) -> None:
        for number in range(60):
            services.create(unit, f"team-{number:02}", {})  # type: ignore[arg-type]

    write(make)
    first = viewer.get("/tenants/").content.decode()
    assert "team-49" in first
    assert "team-50" not in first
    assert 'href="?page=2#tenants"' in first
    rest = viewer.get("/tenants/?page=2").content.decode()
    assert "team-49<" not in rest
    assert "team-59" in rest
    found = viewer.get("/tenants/?q=m-3").content.decode()
    assert len(re.findall(r'href="/tenants/team-3\d/"', found)) == 10
    assert "team-40" not in found


@pytest.mark.parametrize("path", ["/tenants/", "/revisions/", "/targets/"])
def test_more_rows_cost_no_more_queries(path: str, viewer: Client) -> None:
    def queries() -> int:
        # The first read after a revision also takes that into memory.
        viewer.get(path)
        with CaptureQueriesContext(connection) as captured:
            viewer.get(path)
        return len(captured)

    def fill(start: int) -> None:
        for number in range(start, start + 8):
            write(partial(services.create, name=f"team-{number}", fields={}))
            publisher.publish()
            new_target("gateway", f"edge-{number}")

    fill(0)
    few = queries()
    fill(8)
    assert queries() == few


@pytest.mark.parametrize(
    ("role", "says"), [(Role.OPERATOR, 'href="/tenants-new/"'), (Role.VIEWER, "An operator can make one.")]
)
def test_an_empty_list_says_what_to_do_next(role: Role, says: str, browser_of: Callable[[Role | None], Client]) -> None:
    page = browser_of(role).get("/tenants/").content.decode()
    assert "No tenants yet." in page
    assert says in page


def test_a_viewer_sees_no_buttons_that_would_be_refused(acme: str, viewer: Client) -> None:
    write(lambda unit: services.create_key(unit, acme, {}))
    page = viewer.get("/tenants/acme/").content.decode()
    for word in ("/edit/", "/keys/new/", "/block/"):
        assert word not in page


def test_the_panel_follows_a_change_until_all_targets_run_it(acme: str, operator: Client) -> None:
    first, second = new_target("gateway", "edge-1"), new_target("gateway", "edge-2")
    node = new_target("node", "rack-1")
    publisher.publish()
    for target in (first, second, node):
        acknowledge(target)
    write(lambda unit: services.update(unit, acme, {"tpm_limit": 5}))
    change = AuditEntry.objects.latest("pk").change_id

    def panel() -> str:
        return operator.get(f"/convergence/?change={change}").content.decode()

    assert 'data-convergence="publishing"' in panel()
    publisher.publish()
    # The node's slice is the same as before: nothing is sent to it, and it counts.
    assert "1 of 3 targets" in panel()
    assert "does not concern it" in panel()
    acknowledge(first)
    assert "2 of 3 targets" in panel()
    acknowledge(second)
    assert "Applied on all 3 targets" in panel()
    assert 'data-convergence="applied"' in panel()


def test_a_change_that_a_later_one_followed_still_counts_as_applied(acme: str, operator: Client) -> None:
    target = new_target("gateway", "edge-1")
    write(lambda unit: services.update(unit, acme, {"tpm_limit": 5}))
    change = AuditEntry.objects.latest("pk").change_id
    publisher.publish()
    acknowledge(target)
    write(lambda unit: services.update(unit, acme, {"tpm_limit": 6}))
    publisher.publish()
    assert "Applied on the one target" in operator.get(f"/convergence/?change={change}").content.decode()


def test_without_targets_the_panel_says_that_nothing_runs_it(acme: str, operator: Client) -> None:
    publisher.publish()
    change = AuditEntry.objects.latest("pk").change_id
    assert "No gateway or node has joined yet" in operator.get(f"/tenants/acme/?change={change}").content.decode()


def test_a_change_that_was_never_made_is_not_found(acme: str, viewer: Client) -> None:
    assert viewer.get(f"/tenants/acme/?change={uuid.uuid4()}").status_code == 404


def test_pages_are_turkish_where_the_browser_asks_for_it_and_the_switch_holds(acme: str, viewer: Client) -> None:
    page = viewer.get("/tenants/acme/", headers={"accept-language": "tr"}).content.decode()
    assert '<html lang="tr">' in page
    assert "60.000" in page
    assert "Dakikada token" in page
    viewer.post("/language/", {"language": "tr", "next": "/tenants/"})
    assert "Kiracılar" in viewer.get("/tenants/").content.decode()


def test_a_review_says_what_a_tenant_may_use_no_more(acme: str, operator: Client) -> None:
    def create(unit: UnitOfWork) -> None:
        for name in ("llama", "qwen"):
            MODELS.create(unit, name, {"max_context_tokens": 8192})

    write(create)
    says = "Requests for a model that it may not use any more are refused"
    narrowed = _review(operator, models="llama")
    assert says in narrowed
    assert "danger-button" in narrowed
    write(lambda unit: services.update(unit, acme, {"models": ["llama"]}))
    for models in (["llama", "qwen"], []):
        widened = operator.post(EDIT, {**_fields(), "models": models, "step": "review"}).content.decode()
        assert 'id="review"' in widened
        assert says not in widened
        assert "danger-button" not in widened
