"""Targets: what each runs, why one refuses, how one joins and is shut out."""

from __future__ import annotations

import re
import uuid

from django.test import Client
from django.utils import timezone

from controlplane.configs import presence, publisher
from controlplane.configs.models import Revision
from controlplane.core.models import AuditEntry, JoinToken, Target
from controlplane.core.tokens import token_hash
from controlplane.fleet.models import Engine, Model, Node, Pool
from tests.web.conftest import acknowledge, new_target
from wire.problems import Problem

FORM, OTHER_FORM = "7d2f2f0e-7a3c-4b53-9f0a-7a2b9e1c0d11", "0b0d5f3e-52a1-4c0e-8a55-0c7f2f9a6e22"


def test_each_target_is_shown_with_its_state_and_the_reasons_of_a_refusal(acme: str, viewer: Client) -> None:
    applied, refused = new_target("gateway", "edge-1"), new_target("gateway", "edge-2")
    publisher.publish()
    acknowledge(applied)
    acknowledge(refused, [Problem("/tenants/acme/models", "reference", "model '<b>x</b>' does not exist")])
    page = viewer.get("/targets/").content.decode()
    first, second = page[page.index("edge-1") : page.index("edge-2")], page[page.index("edge-2") :]
    assert "applied" in first
    assert "refused" in second
    assert "<code>/tenants/acme/models</code> model &#x27;&lt;b&gt;x&lt;/b&gt;&#x27; does not exist" in second


def test_a_target_that_a_stage_gave_its_change_first_is_marked(acme: str, admin: Client) -> None:
    for name in ("edge-1", "edge-2"):
        new_target("gateway", name)
    publisher.publish()
    stage = {"patch": {"tenants": {acme: {"tpm_limit": 7}}}, "targets": ["gateway/edge-1"]}
    begun = admin.post("/api/v1/config/stages?reason=try", stage, content_type="application/json")
    assert begun.status_code == 201, begun.content
    publisher.publish()
    page = admin.get("/targets/").content.decode()
    first, second = page[page.index("edge-1") : page.index("edge-2")], page[page.index("edge-2") :]
    assert "tried here first" in first
    assert "tried here first" not in second
    followed = admin.get(f"/convergence/?change={begun.json()['change_id']}").content.decode()
    assert followed.count("tried here first") == 1
    assert "edge-1" in followed[: followed.index("tried here first")].rpartition("<tr>")[2]


def test_a_target_that_flaps_is_marked_there_and_first_where_a_change_is_followed(acme: str, viewer: Client) -> None:
    for name in ("edge-1", "edge-2"):
        target = new_target("gateway", name)
        publisher.publish()
        acknowledge(target)
    for _ in range(5):
        presence.beat([target.pk], timezone.now(), came=[target.pk])
    change = AuditEntry.objects.filter(noun="tenant").latest("pk").change_id
    followed = viewer.get(f"/convergence/?change={change}").content.decode()
    assert 0 < followed.index("edge-2") < followed.index("reconnected or changed its answer 5 times")
    assert followed.index("reconnected or changed") < followed.index("edge-1")
    page = viewer.get("/targets/").content.decode()
    assert page.count("reconnected or changed") == 1
    assert page.index("edge-1") < page.index("edge-2") < page.index("reconnected or changed")


def test_an_empty_list_says_what_to_do_next(admin: Client, viewer: Client) -> None:
    assert "/targets/join/" in admin.get("/targets/").content.decode()
    assert "An admin can make one." in viewer.get("/targets/").content.decode()


def test_a_join_token_is_shown_once_and_stored_as_a_hash(admin: Client) -> None:
    answer = admin.post("/targets/join/", {"form_id": FORM, "kind": "gateway", "name": "edge-1", "reason": "new rack"})
    found = re.search(r'id="secret"[^>]*>(hwj-\w{43})<', answer.content.decode())
    assert found
    row = JoinToken.objects.get()
    assert (row.token_hash, row.target_name, row.created_by) == (token_hash(found[1]), "edge-1", "admin-person")
    assert found[1] not in admin.get("/targets/").content.decode()


def test_the_page_of_a_join_token_says_what_to_run_with_it(admin: Client) -> None:
    for form, (kind, name, command) in {
        FORM: ("gateway", "edge-1", "headworks-gateway --control-url http://testserver --join-token-file join-token"),
        OTHER_FORM: ("node", "", "headworks-agent --control-url http://testserver --join-token-file join-token"),
    }.items():
        answer = admin.post("/targets/join/", {"form_id": form, "kind": kind, "name": name, "reason": "new rack"})
        page = answer.content.decode()
        assert f">{command}{' --name edge-1' if name else ''}</pre>" in page
        assert "(umask 077;" in page


def test_a_join_token_for_a_name_that_a_target_has_comes_with_a_warning(admin: Client) -> None:
    taken = new_target("gateway", "edge-1")

    def made(form: str, kind: str, name: str) -> str:
        fields = {"form_id": form, "kind": kind, "name": name, "reason": "new rack"}
        return admin.post("/targets/join/", fields).content.decode()

    warning = "whoever joins with this token takes its place"
    assert f"There is a gateway edge-1 already: {warning}." in made(FORM, "gateway", "edge-1")
    for kind, name in (("node", "edge-1"), ("gateway", "edge-2"), ("gateway", "")):
        page = made(str(uuid.uuid4()), kind, name)
        assert 'id="secret"' in page
        assert warning not in page
    Target.objects.filter(pk=taken.pk).update(revoked_at=taken.enrolled_at)
    assert warning not in made(OTHER_FORM, "gateway", "edge-1")


def test_loading_the_page_of_a_join_token_anew_makes_no_other(admin: Client) -> None:
    fields = {"form_id": FORM, "kind": "gateway", "name": "edge-1", "reason": "new rack"}
    assert admin.post("/targets/join/", fields).status_code == 200
    again = admin.post("/targets/join/", fields)
    assert again.status_code == 409
    assert "This was made already" in again.content.decode()
    assert 'href="/targets/"' in again.content.decode()
    assert JoinToken.objects.count() == 1


def test_a_join_token_for_a_name_that_cannot_be_is_refused_at_its_field(admin: Client) -> None:
    answer = admin.post("/targets/join/", {"form_id": FORM, "kind": "gateway", "name": "Edge 1", "reason": "new rack"})
    assert answer.status_code == 422
    assert "Give 1 to 63 of a-z" in answer.content.decode()
    assert 'value="Edge 1"' in answer.content.decode()
    assert not JoinToken.objects.exists()


def test_revoking_is_reviewed_then_done(admin: Client) -> None:
    target = new_target("gateway", "edge-1")
    path = f"/targets/{target.pk}/revoke/"
    page = admin.get(path).content.decode()
    assert "Its stream is closed at once" in page
    digest = re.search(r'name="digest" value="([0-9a-f]+)"', page)
    assert digest
    assert admin.post(path, {"step": "apply", "digest": digest[1], "reason": "decommissioned"}).status_code == 302
    assert Target.objects.get().revoked_at is not None
    assert "edge-1" not in admin.get("/targets/").content.decode()
    assert admin.get(path).status_code == 404


def test_a_simulated_fleet_is_named_so_on_every_page(viewer: Client, outsider: Client) -> None:
    assert "Simulated." not in viewer.get("/targets/").content.decode()
    Node.objects.create(name="rack-1", simulated=True)
    for path in ("/targets/", "/tenants/", "/revisions/"):
        assert "Simulated." in viewer.get(path).content.decode()
    # A stranger learns nothing of the fleet.
    assert "Simulated." not in outsider.get("/log-in/").content.decode()


def test_an_engine_that_calls_itself_simulated_is_enough(viewer: Client) -> None:
    model = Model.objects.create(name="m", max_context_tokens=1000)
    pool = Pool.objects.create(name="p", model=model)
    engine = Engine.objects.create(name="e", pool=pool, url="http://127.0.0.1:8000", served_model="m", version="0.32.0")
    assert "Simulated." not in viewer.get("/targets/").content.decode()
    engine.version = "0.32.0+simulated"
    engine.save()
    assert "Simulated." in viewer.get("/targets/").content.decode()


def test_the_header_says_how_many_targets_run_the_newest_before_any_script_runs(acme: str, viewer: Client) -> None:
    first = new_target("gateway", "edge-1")
    new_target("gateway", "edge-2")
    publisher.publish()
    assert pill(viewer) == ("partial", "0/2 applied")
    assert viewer.get("/targets/").content.decode().partition("<tbody>")[2].count("runs none yet") == 2
    acknowledge(first)
    assert pill(viewer) == ("partial", "1/2 applied")
    acknowledge(first, [Problem("/tenants/acme", "reference", "cannot be")])
    assert pill(viewer) == ("trouble", "0/2 applied")


def test_pages_open_where_the_stored_configuration_is_damaged(acme: str, viewer: Client) -> None:
    publisher.publish()
    Revision.objects.update(hash="0" * 64)
    assert pill(viewer) == ("lost", "no live data")


def pill(viewer: Client) -> tuple[str, str]:
    page = viewer.get("/tenants/").content.decode()
    found = re.search(r'data-live="(\w+)".*data-live-text[^>]*>([^<]*)<', page, re.DOTALL)
    assert found
    return found[1], found[2]
