"""The whole configuration as one document: exported, edited, applied."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from controlplane.configs.document import FORMAT, document_now
from controlplane.configs.heads import Heads
from controlplane.configs.models import Revision
from controlplane.core import changes
from controlplane.core.models import AuditEntry, User
from controlplane.routing.services import RouteNoun
from tests.controlplane.configs.conftest import ENGINE, MODEL
from tests.controlplane.conftest import REASON, Rest

SECTIONS = [
    "cache_policies", "models", "aliases", "pools", "session_limits", "priority_classes", "tenants", "engines", "routes"
]  # fmt: skip


def exported(rest: Rest, query: str = "") -> Any:
    answer = rest.get(f"/config{query}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def put(rest: Rest, document: Any, query: str = "", **headers: str) -> Any:
    return rest.put(f"/config?{REASON}{query}", document, **headers)


def refusal(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 422, answer.content
    return [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]]


def test_it_holds_what_people_set_without_nulls_and_defaults(fleet: Rest) -> None:
    fleet.patch(
        "/tenants/acme", {"weight": 1, "schedule": {"night": {"from": "22:00", "until": "06:00", "rpm_limit": 9}}}
    )
    document = exported(fleet)
    assert list(document) == ["format", *SECTIONS]
    assert document["format"] == FORMAT
    assert document["tenants"] == {
        "acme": {
            "tpm_limit": 60_000,
            "models": ["org/m-1"],
            "schedule": {"night": {"from": "22:00", "until": "06:00", "rpm_limit": 9}},
        }
    }
    assert document["pools"] == {"short": {"model": "org/m-1"}}
    assert document["routes"] == {"all": {"pools": {"short": 1000}}}
    assert document["engines"] == {"e-1": {field: value for field, value in ENGINE.items() if field != "name"}}
    assert document["models"]["org/m-1"]["max_context_tokens"] == MODEL["max_context_tokens"]


def test_state_and_secrets_are_no_part_of_it(fleet: Rest) -> None:
    before = exported(fleet)
    fleet.post("/tenants/acme/keys", {})
    fleet.post("/tenants/acme/temporary-limits", {"rpm_limit": 1, "expires_in_seconds": 60})
    fleet.post("/nodes/n-1/cordon")
    fleet.patch("/engines/e-1", {"api_key": "sk-secret", "kv_capacity_tokens": 1000})
    assert exported(fleet) == before


@pytest.mark.parametrize(
    ("query", "accept", "kind"),
    [
        ("", "*/*", "application/json"),
        ("", "application/yaml", "application/yaml"),
        ("", "text/yaml;q=0.9, application/json;q=0.1", "application/yaml"),
        ("?format=yaml", "application/json", "application/yaml"),
        ("?format=json", "application/yaml", "application/json"),
    ],
)
def test_yaml_and_json_say_the_same_under_one_etag(fleet: Rest, query: str, accept: str, kind: str) -> None:
    answer = fleet.get(f"/config{query}", Accept=accept)
    assert answer["content-type"].split(";")[0] == kind
    said = yaml.safe_load(answer.content) if kind == "application/yaml" else json.loads(answer.content)
    assert said == document_now()
    assert list(said["tenants"]) == sorted(said["tenants"])
    assert answer["etag"] == fleet.get("/config")["etag"]


def test_what_is_exported_changes_nothing_when_it_is_applied(fleet: Rest) -> None:
    answer = put(fleet, exported(fleet))
    assert answer.status_code == 200, answer.content
    said = answer.json()
    assert (said["changed"], said["patch"], said["item"]["diff"]) == (False, {}, "")
    as_yaml = fleet.client.put(
        f"/api/v1/config?{REASON}", fleet.get("/config?format=yaml").content, content_type="application/yaml"
    )
    assert (as_yaml.status_code, as_yaml.json()["changed"]) == (200, False)


def test_others_are_kept_from_writing_for_what_needs_rows_alone(fleet: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    def note(of: Callable[..., Any], what: str) -> Callable[..., Any]:
        def noting(*args: Any) -> Any:
            happened.append(what)
            return of(*args)

        return noting

    monkeypatch.setattr(changes, "_openings", [note(opening, "lock") for opening in changes._openings])
    monkeypatch.setattr(RouteNoun, "_plain", note(RouteNoun._plain, "form"))
    routes = {f"r-{number}": {"reject": "no"} for number in range(3)}
    assert put(fleet, {"format": FORMAT, "routes": routes}, "&allow_removals=true").status_code == 200
    assert happened[:4] == ["form", "form", "form", "lock"]
    happened.clear()
    routes["r-1"] = {"reject": ""}
    assert refusal(put(fleet, {"format": FORMAT, "routes": routes})) == [("/routes/r-1/reject", "too_short")]
    assert "lock" not in happened


def test_many_new_rows_are_stored_together(fleet: Rest, django_assert_max_num_queries: Any) -> None:
    document = exported(fleet)
    document["tenants"] |= {f"t-{number}": {"models": ["org/m-1"]} for number in range(60)}
    document["routes"] |= {
        f"r-{number}": {"match": {"tenants": [f"t-{number}"]}, "reject": "no"} for number in range(60)
    }
    with django_assert_max_num_queries(60):
        assert put(fleet, document).status_code == 200
    assert exported(fleet) == document
    assert AuditEntry.objects.filter(action="create", noun="tenant", key__startswith="t-").count() == 60
    entry = AuditEntry.objects.get(noun="tenant", key="t-7")
    assert entry.after is not None
    assert (entry.after["models"], entry.after["created_at"]) == (
        ["org/m-1"],
        fleet.get("/tenants/t-7").json()["created_at"],
    )


def test_a_document_is_applied_as_one_revision_and_only_changed_rows_are_written(
    fleet: Rest, newest: Callable[[], Heads]
) -> None:
    newest()
    document = exported(fleet)
    document["tenants"]["acme"]["tpm_limit"] = 1
    document["tenants"]["new"] = {"models": ["org/m-2"], "priority_classes": ["gold"]}
    document["priority_classes"]["gold"] = {"rank": 1}
    document["models"]["org/m-2"] = {"max_context_tokens": 4096}
    document["pools"]["long"] = {"model": "org/m-2"}
    before = AuditEntry.objects.count()
    answer = put(fleet, document)
    assert answer.status_code == 200, answer.content
    said = answer.json()
    assert (said["item"]["created"], said["item"]["changed"], said["item"]["removed"]) == (4, 1, 0)
    written = AuditEntry.objects.order_by("id")[before:]
    assert sorted((entry.noun, entry.key, entry.action) for entry in written) == [
        ("model", "org/m-2", "create"),
        ("pool", "long", "create"),
        ("priority class", "gold", "create"),
        ("tenant", "acme", "update"),
        ("tenant", "new", "create"),
    ]
    assert {str(entry.change_id) for entry in written} == {said["change_id"]}
    newest()
    assert Revision.objects.count() == 2
    assert exported(fleet) == exported(fleet, "?revision=2") == document
    assert exported(fleet, "?revision=1")["tenants"]["acme"]["tpm_limit"] == 60_000
    assert answer["etag"] == said["item"]["etag"] == fleet.get("/config")["etag"]


def test_a_section_that_is_absent_is_left_alone_and_one_that_is_there_is_whole(fleet: Rest) -> None:
    before = exported(fleet)
    answer = put(fleet, {"format": FORMAT, "routes": {}}, "&allow_removals=true")
    assert answer.status_code == 200, answer.content
    assert exported(fleet) == {**before, "routes": {}}


def test_engines_keep_their_keys_cordons_and_measured_capacity(fleet: Rest, newest: Callable[[], Heads]) -> None:
    fleet.patch("/engines/e-1", {"api_key": "sk-secret", "kv_capacity_tokens": 1000})
    fleet.post("/engines/e-1/cordon")
    document = exported(fleet)
    document["engines"]["e-1"]["url"] = "http://10.0.0.9:8000"
    assert put(fleet, document).status_code == 200
    head = newest().newest
    assert head is not None
    told = head.slice("gateway", "any").content["engines"]["e-1"]
    assert (told["url"], told["api_key"], told["kv_capacity_tokens"], told["cordoned"]) == (
        "http://10.0.0.9:8000", "sk-secret", 1000, True,
    )  # fmt: skip


def test_temporary_limits_outlive_it(fleet: Rest) -> None:
    fleet.post("/tenants/acme/temporary-limits", {"rpm_limit": 1, "expires_in_seconds": 60})
    document = exported(fleet)
    document["tenants"]["acme"]["tpm_limit"] = 7
    assert put(fleet, document).status_code == 200
    assert fleet.get("/tenants/acme").json()["temporary"]["rpm_limit"] == 1


def test_every_problem_of_every_entry_is_named_at_its_place(fleet: Rest) -> None:
    document = exported(fleet)
    document["tenants"]["acme"].update({"tpm_limit": "many", "limit": 1})
    document["tenants"]["Not A Name"] = {}
    document["tenants"]["none"] = None
    document["engines"]["e-1"]["api_key"] = "sk-secret"
    document["engines"]["e-1"]["kv_capacity_tokens"] = 1
    document["models"]["org/m-1"]["max_context_tokens"] = 0
    document["routes"]["test"] = {"reject": "no"}
    assert refusal(put(fleet, document)) == [
        ("/models/org~1m-1/max_context_tokens", "range"),
        ("/tenants/Not A Name", "pattern"),
        ("/tenants/acme/tpm_limit", "int_type"),
        ("/tenants/acme/limit", "unknown"),
        ("/tenants/none", "type"),
        ("/engines/e-1/api_key", "secret"),
        ("/engines/e-1/kv_capacity_tokens", "measured"),
        ("/routes/test", "reserved"),
    ]


def test_references_are_named_at_their_place_and_nothing_is_kept(fleet: Rest) -> None:
    before = exported(fleet)
    broken = exported(fleet)
    broken["pools"]["long"] = {"model": "absent"}
    broken["tenants"]["acme"]["default_priority_class"] = "absent"
    broken["engines"]["e-1"]["node"] = "absent"
    assert refusal(put(fleet, broken)) == [
        ("/pools/long/model", "reference"),
        ("/tenants/acme/default_priority_class", "reference"),
        ("/engines/e-1/node", "reference"),
    ]
    broken = exported(fleet)
    broken["tenants"]["acme"]["models"] = ["absent"]
    assert refusal(put(fleet, broken)) == [("/tenants/acme/models/absent", "reference")]
    assert exported(fleet) == before


def test_what_is_still_used_cannot_go_and_is_named(fleet: Rest) -> None:
    answer = put(fleet, {"format": FORMAT, "models": {}, "pools": {}}, "&allow_removals=true")
    assert refusal(answer) == [("/pools/short", "in_use"), ("/models/org~1m-1", "in_use")]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ([], "/"),
        ({}, "/format"),
        ({"format": "headworks/2"}, "/format"),
        ({"format": FORMAT, "keys": {}}, "/keys"),
        ({"format": FORMAT, "tenants": None}, "/tenants"),
        ({"format": FORMAT, "tenants": []}, "/tenants"),
    ],
)
def test_what_is_no_document_of_this_format_is_refused(fleet: Rest, document: Any, path: str) -> None:
    assert [problem for problem, _ in refusal(put(fleet, document))] == [path]


@pytest.mark.parametrize(
    ("text", "kind", "status"),
    [
        (b"format: headworks/1\ntenants: &a {}\n", "application/yaml", 400),
        (b"format: !!str headworks/1\n", "text/yaml", 400),
        (b"format: headworks/1\ntenants: {a: {}, a: {}}\n", "application/yaml", 400),
        (b"a: [", "application/yaml", 400),
        (b'{"format": "headworks/1", "tenants": {"a": {}, "a": {}}}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"format: headworks/1\n", "text/plain", 415),
    ],
)
def test_what_is_no_plain_text_is_refused(fleet: Rest, text: bytes, kind: str, status: int) -> None:
    answer = fleet.client.put(f"/api/v1/config?{REASON}", text, content_type=kind)
    assert answer.status_code == status, answer.content
    assert answer["content-type"] == "application/problem+json"


def test_a_dry_run_shows_patch_and_diff_and_keeps_nothing(fleet: Rest) -> None:
    before = exported(fleet)
    document = exported(fleet)
    document["tenants"]["acme"]["tpm_limit"] = 1
    document["tenants"]["new"] = {}
    said = put(fleet, document, "&dry_run=true").json()
    assert said["patch"] == {"tenants": {"acme": {"tpm_limit": 1}, "new": {"weight": 1, "blocked": False}}}
    assert said["item"]["diff"] == (
        "--- tenants/acme\n+++ tenants/acme\n@@ -1,4 +1,4 @@\n acme:\n-  tpm_limit: 60000\n+  tpm_limit: 1\n"
        "   models:\n   - org/m-1\n--- /dev/null\n+++ tenants/new\n@@ -0,0 +1 @@\n+new: {}\n"
    )
    assert exported(fleet) == before


def test_a_long_diff_is_cut_and_says_what_is_left(fleet: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.configs.document_api.DIFF_MAX_CHARACTERS", 150)
    document = exported(fleet)
    document["tenants"].update({f"t-{number}": {} for number in range(10)})
    diff = put(fleet, document, "&dry_run=true").json()["item"]["diff"]
    assert diff.endswith("… 8 more entries differ\n")
    assert diff.count("+++ ") == 2


def test_a_stale_document_is_refused(fleet: Rest) -> None:
    read = fleet.get("/config")
    fleet.patch("/tenants/acme", {"tpm_limit": 2})
    answer = put(fleet, read.json(), **{"If-Match": read["etag"]})
    assert (answer.status_code, answer.json()["code"]) == (412, "stale")
    again = fleet.get("/config")
    assert answer["etag"] == again["etag"]
    document = again.json()
    document["tenants"]["acme"]["tpm_limit"] = 3
    assert put(fleet, document, **{"If-Match": again["etag"]}).status_code == 200


def test_one_that_is_sent_again_is_answered_as_the_first_time(fleet: Rest) -> None:
    document = exported(fleet)
    document["tenants"]["acme"]["tpm_limit"] = 3
    first, second = (put(fleet, document, **{"Idempotency-Key": "once"}) for _ in range(2))
    assert second.json() == first.json()
    assert (second["etag"], second["idempotency-replayed"]) == (first["etag"], "true")


def test_removals_are_asked_for_twice_and_say_what_goes_with_them(fleet: Rest) -> None:
    for _ in range(2):
        fleet.post("/tenants/acme/keys", {})
    fleet.post("/tenants", {"name": "keyless"})
    before = exported(fleet)
    half = {"format": FORMAT, "tenants": {}, "engines": {}, "routes": {}}
    answer = put(fleet, half)
    assert (answer.status_code, answer.json()["code"]) == (409, "removals")
    assert [(problem["path"], problem["message"].split(",")[0]) for problem in answer.json()["problems"]] == [
        ("/tenants", "2 of 2 would go"),
        ("/routes", "1 of 1 would go"),
        ("/tenants/acme", "2 keys would go with it"),
        ("/engines/e-1", "this engine would go"),
    ]
    assert exported(fleet) == before
    shown = put(fleet, half, "&dry_run=true").json()
    assert {warning["rule"] for warning in shown["warnings"]} == {"removals"}
    assert "--- tenants/acme\n+++ /dev/null\n" in shown["item"]["diff"]
    assert "# with it: 2 keys\n" in shown["item"]["diff"]
    done = put(fleet, half, "&allow_removals=true")
    assert done.status_code == 200, done.content
    assert (done.json()["item"]["removed"], done.json()["item"]["keys_removed"]) == (4, 2)
    assert exported(fleet) == {**before, **half}


def test_a_small_share_goes_without_asking(fleet: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_CONFIG_REMOVALS_PERCENT", "50")
    fleet.post("/tenants", {"name": "keyless"})
    document = exported(fleet)
    del document["tenants"]["keyless"]
    assert put(fleet, document).status_code == 200
    assert fleet.get("/tenants/keyless").status_code == 404


def test_its_cost_does_not_grow_with_what_stays(fleet: Rest, django_assert_max_num_queries: Any) -> None:
    document = exported(fleet)
    document["tenants"].update({f"t-{number}": {"models": ["org/m-1"]} for number in range(200)})
    # A row's own look-up, savepoint and insert; and what is read of all of them together.
    with django_assert_max_num_queries(6 * 200 + 100):
        assert put(fleet, document).status_code == 200
    document["tenants"]["t-7"]["weight"] = 3
    with django_assert_max_num_queries(50):
        assert put(fleet, document).json()["item"]["changed"] == 1


def test_people_of_some_tenants_do_not_see_the_whole(fleet: Rest) -> None:
    User.objects.filter(username__startswith="admin").update(tenants=["acme"])
    for answer in (fleet.get("/config"), put(fleet, {"format": FORMAT})):
        assert (answer.status_code, answer.json()["code"]) == (403, "tenant_scope")
