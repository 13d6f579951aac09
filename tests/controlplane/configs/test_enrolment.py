"""From a join token to a target, its next tokens and its end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs.heads import Heads
from controlplane.configs.models import TargetState
from controlplane.core.models import AuditEntry, JoinToken, Target
from tests.controlplane.conftest import Rest


def join_token(admin: Rest, **body: Any) -> str:
    answer = admin.post("/targets/join-tokens", {"kind": "gateway", "name": "gw-1", **body})
    assert answer.status_code == 201, answer.content
    return str(answer.json()["secret"])


def enrol(token: str, **changes: Any) -> Any:
    body = {"join_token": token, "kind": "gateway", "name": "gw-1", "version": "1", "protocol": 1, **changes}
    return Rest(None).post("/targets/enrol", body)


def test_a_join_token_makes_one_target_once(admin: Rest, newest: Callable[[], Heads]) -> None:
    token = join_token(admin)
    assert token.startswith("hwj-")
    answer = enrol(token)
    assert answer.status_code == 201
    newest()
    assert Rest(answer.json()["token"]).get("/config/snapshot").status_code == 200
    again = enrol(token)
    assert (again.status_code, again.json()["code"]) == (409, "join_token_used")
    assert Target.objects.count() == 1


def test_no_token_is_stored_or_audited_in_clear(admin: Rest) -> None:
    joined = join_token(admin)
    token = enrol(joined).json()["token"]
    stored = (
        str(list(AuditEntry.objects.values()))
        + str(list(Target.objects.values()))
        + str(list(JoinToken.objects.values()))
    )
    assert joined not in stored
    assert token not in stored


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"join_token": "hwj-" + "0" * 43}, 401, "join_token_unknown"),
        ({"name": "gw-2"}, 403, "join_token_other"),
        ({"kind": "node"}, 403, "join_token_other"),
        ({"protocol": 99}, 426, "protocol_not_served"),
        ({"name": "Not A Name"}, 422, "invalid"),
        ({"version": ""}, 422, "invalid"),
        ({"surplus": 1}, 422, "invalid"),
    ],
)
def test_it_refuses_by_name_and_the_join_token_stays_good(
    admin: Rest, changes: dict[str, Any], status: int, code: str
) -> None:
    token = join_token(admin)
    answer = enrol(token, **changes)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    assert token not in answer.content.decode()
    assert not Target.objects.exists()
    assert enrol(token).status_code == 201


def test_an_expired_join_token_is_gone(admin: Rest) -> None:
    token = join_token(admin)
    JoinToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    answer = enrol(token)
    assert (answer.status_code, answer.json()["code"]) == (410, "join_token_expired")
    assert not Target.objects.exists()


def test_the_protocol_refusal_names_those_served(admin: Rest) -> None:
    assert "served: 1" in enrol(join_token(admin), protocol=2).json()["detail"]


def test_a_node_that_enrols_is_in_the_fleet(admin: Rest, newest: Callable[[], Heads]) -> None:
    token = enrol(join_token(admin, kind="node", name=None), kind="node", name="n-7").json()["token"]
    assert admin.get("/nodes/n-7").status_code == 200
    newest()
    assert Rest(token).get("/config/snapshot").json()["node"] == {"name": "n-7", "cordoned": False}
    assert Rest(token).post("/nodes/report", {"version": "1"}).json() == {"taken": True, "unknown_engines": []}
    assert admin.get("/nodes/n-7").json()["agent_version"] == "1"


def test_a_gateway_cannot_report_a_node(admin: Rest) -> None:
    token = enrol(join_token(admin)).json()["token"]
    answer = Rest(token).post("/nodes/report", {"version": "1"})
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_kind")


def test_enrolling_again_cuts_off_the_process_before(admin: Rest) -> None:
    old = enrol(join_token(admin)).json()["token"]
    TargetState.objects.create(target=Target.objects.get(), revision=3, hash="a" * 64)
    new = enrol(join_token(admin), version="2").json()["token"]
    assert Rest(old).get("/config/snapshot").status_code == 401
    assert Rest(new).get("/config/snapshot").status_code == 503
    assert Target.objects.get().version == "2"
    assert not TargetState.objects.exists()
    assert AuditEntry.objects.filter(noun="target", action="update").count() == 1


def test_a_next_token_takes_over_when_it_is_first_used(admin: Rest, newest: Callable[[], Heads]) -> None:
    old = Rest(enrol(join_token(admin)).json()["token"])
    newest()
    answer = old.post("/targets/rotate").json()
    assert old.get("/config/snapshot").status_code == 200
    assert Rest(answer["token"]).get("/config/snapshot").status_code == 200
    assert old.get("/config/snapshot").status_code == 401
    assert answer["expires_at_ms"] > timezone.now().timestamp() * 1000


def test_a_revoked_target_is_refused_until_it_enrols_again(admin: Rest) -> None:
    answer = enrol(join_token(admin)).json()
    revoked = admin.post(f"/targets/{answer['target_id']}/revoke").json()
    assert revoked["item"]["revoked_at"] is not None
    refused = Rest(answer["token"]).get("/config/snapshot")
    assert (refused.status_code, refused.json()["code"]) == (403, "revoked")
    assert admin.get("/targets").json()["items"][0]["revoked_at"] is not None
    assert enrol(join_token(admin)).status_code == 201
    assert admin.get("/targets").json()["items"][0]["revoked_at"] is None
    assert admin.post("/targets/999/revoke").status_code == 404


def test_a_dry_run_makes_no_join_token(admin: Rest) -> None:
    answer = admin.post("/targets/join-tokens?dry_run=true", {"kind": "gateway"})
    assert answer.json()["secret"] is None
    assert not JoinToken.objects.exists()


def test_polling_with_an_etag_costs_no_body(admin: Rest, newest: Callable[[], Heads]) -> None:
    target = Rest(enrol(join_token(admin)).json()["token"])
    newest()
    first = target.get("/config/snapshot")
    assert first["X-Headworks-Revision"] == "1"
    same = target.get("/config/snapshot", **{"if-none-match": first["ETag"]})
    assert (same.status_code, same.content) == (304, b"")
    admin.post("/tenants", {"name": "acme"})
    newest()
    assert target.get("/config/snapshot", **{"if-none-match": first["ETag"]}).status_code == 200


def test_targets_and_admins_fetch_artifacts(admin: Rest, viewer: Rest) -> None:
    target = Rest(enrol(join_token(admin)).json()["token"])
    for caller, status in ((target, 404), (admin, 404), (viewer, 403), (Rest(None), 401)):
        assert caller.get(f"/artifacts/{'a' * 64}").status_code == status
