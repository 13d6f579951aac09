"""From a join token to a target, its next tokens and its end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.configs.heads import Heads
from controlplane.configs.models import TargetState
from controlplane.core import enrolment
from controlplane.core.changes import SYSTEM, unit_of_work
from controlplane.core.errors import Unauthenticated
from controlplane.core.models import AuditEntry, JoinToken, Target
from controlplane.core.tokens import new_token
from tests.controlplane.conftest import Rest
from tests.controlplane.core.racing import at_once, meeting, two_writers


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
    taken = {"taken": True, "unknown_engines": [], "unknown_acts": []}
    assert Rest(token).post("/nodes/report", {"version": "1"}).json() == taken
    assert admin.get("/nodes/n-7").json()["agent_version"] == "1"


def test_a_gateway_cannot_report_a_node(admin: Rest) -> None:
    token = enrol(join_token(admin)).json()["token"]
    answer = Rest(token).post("/nodes/report", {"version": "1"})
    assert (answer.status_code, answer.json()["code"]) == (403, "wrong_kind")


def test_enrolling_again_cuts_off_the_process_before(admin: Rest) -> None:
    old = enrol(join_token(admin)).json()["token"]
    TargetState.objects.create(target=Target.objects.get(), revision=3, hash="a" * 64)
    new = enrol(join_token(admin), version="2").json()["token"]
    refused = Rest(old).get("/config/snapshot")
    assert (refused.status_code, refused.json()["code"]) == (401, "displaced")
    assert "another process enrolled as gateway 'gw-1'" in refused.json()["detail"]
    assert Rest(new).get("/config/snapshot").status_code == 503
    assert Target.objects.get().version == "2"
    assert not TargetState.objects.exists()
    assert AuditEntry.objects.filter(noun="target", action="update").count() == 1


@pytest.mark.parametrize(
    ("named", "seconds_since_beat", "revoked", "status"),
    [
        (None, 0, False, 409),
        (None, 3600, False, 201),
        (None, None, False, 201),
        (None, 0, True, 201),
        ("gw-1", 0, False, 201),
    ],
    ids=["connected", "silent", "never connected", "revoked", "made for the name"],
)
def test_only_a_join_token_made_for_it_takes_the_name_of_a_connected_target(
    admin: Rest, named: str | None, seconds_since_beat: int | None, revoked: bool, status: int
) -> None:
    holder = enrol(join_token(admin)).json()
    if seconds_since_beat is not None:
        seen_at = timezone.now() - timedelta(seconds=seconds_since_beat)
        TargetState.objects.create(target_id=holder["target_id"], stream_seen_at=seen_at)
    if revoked:
        admin.post(f"/targets/{holder['target_id']}/revoke")
    token = join_token(admin, name=named)
    answer = enrol(token)
    assert answer.status_code == status, answer.content
    if status == 409:
        assert answer.json()["code"] == "name_taken"
        assert Rest(holder["token"]).get("/config/snapshot").status_code == 503
        # The join token stays good for another name.
        assert enrol(token, name="gw-2").status_code == 201


def test_a_next_token_takes_over_when_it_is_first_used(admin: Rest, newest: Callable[[], Heads]) -> None:
    old = Rest(enrol(join_token(admin)).json()["token"])
    newest()
    answer = old.post("/targets/rotate").json()
    assert old.get("/config/snapshot").status_code == 200
    assert Rest(answer["token"]).get("/config/snapshot").status_code == 200
    assert old.get("/config/snapshot").status_code == 401
    assert answer["expires_at_ms"] > timezone.now().timestamp() * 1000


@pytest.mark.parametrize("end", ["enrolled anew", "revoked"])
def test_a_process_that_lost_its_name_cannot_rotate_its_way_back(admin: Rest, end: str) -> None:
    enrol(join_token(admin))
    lost = Target.objects.get()
    if end == "revoked":
        admin.post(f"/targets/{lost.pk}/revoke")
    else:
        enrol(join_token(admin))
    with pytest.raises(Unauthenticated), unit_of_work(SYSTEM, "a request that was on its way") as unit:
        enrolment.rotate(unit, lost)
    assert Target.objects.get().next_token_hash is None


@two_writers
@pytest.mark.django_db(transaction=True)
def test_of_two_that_take_a_new_name_at_once_the_second_replaces_the_first(
    admin: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [join_token(admin, kind="node", name="n-1") for _ in range(2)]
    meet = meeting()
    monkeypatch.setattr(enrolment, "new_token", lambda prefix: (meet(), new_token(prefix))[1])
    answers: list[int] = []

    def take(token: str) -> Callable[[], None]:
        return lambda: answers.append(enrol(token, kind="node", name="n-1").status_code)

    at_once(*map(take, tokens))
    assert answers == [201, 201]
    assert Target.objects.count() == 1


def test_a_version_that_no_database_can_hold_is_cleaned(admin: Rest) -> None:
    assert enrol(join_token(admin), version="1\x00").status_code == 201
    assert Target.objects.get().version == "1\ufffd"


def test_a_node_stays_until_its_agent_is_revoked(admin: Rest) -> None:
    enrol(join_token(admin, kind="node", name="n-7"), kind="node", name="n-7")
    refused = admin.delete("/nodes/n-7")
    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    assert "target node/n-7" in refused.json()["detail"]
    admin.post(f"/targets/{Target.objects.get().pk}/revoke")
    assert admin.delete("/nodes/n-7").status_code == 200


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
