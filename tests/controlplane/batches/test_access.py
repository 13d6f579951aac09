"""Who may see and cancel batches over REST."""

from __future__ import annotations

from controlplane.core.models import AuditEntry, Role
from tests.controlplane.batches.conftest import GatewayCalls, line, sweep_until_still
from tests.controlplane.conftest import Rest
from tests.controlplane.core.people import person, token_of


def test_viewers_read_operators_cancel_and_the_audit_says_why(
    gateway: GatewayCalls, viewer: Rest, operator: Rest, outsider: Rest
) -> None:
    batch_id = gateway.begin(line("a"))
    path = f"/batches/{batch_id}"
    assert outsider.get("/batches").status_code == outsider.get(path).status_code == 401
    assert [each["id"] for each in viewer.get("/batches").json()["items"]] == [batch_id]
    assert viewer.get("/batches?status=completed").json()["items"] == []
    assert viewer.get("/batches?tenant=beta").json()["items"] == []
    shown = viewer.get(path).json()
    assert (shown["tenant"], shown["status"]) == ("acme", "validating")
    assert viewer.post(f"{path}/cancel").status_code == 403
    rehearsed = operator.post(f"{path}/cancel?dry_run=true&reason=try")
    assert rehearsed.json()["item"]["status"] == "cancelling"
    assert gateway.batch(batch_id)["status"] == "validating"
    assert operator.post(f"{path}/cancel?reason=too+many").json()["item"]["status"] == "cancelling"
    entry = AuditEntry.objects.get(noun="batch", key=batch_id)
    assert (entry.reason, (entry.before or {})["status"]) == ("too many", "validating")
    sweep_until_still()
    assert operator.post(f"{path}/cancel").json()["changed"] is False
    assert operator.get("/batches/none").json()["code"] == "batch_not_found"


def test_one_that_has_ended_cannot_be_cancelled(gateway: GatewayCalls, operator: Rest) -> None:
    batch_id = gateway.begin(b"nothing\n")
    sweep_until_still()
    answer = operator.post(f"/batches/{batch_id}/cancel")
    assert (answer.status_code, answer.json()["code"]) == (409, "batch_ended")


def test_people_of_a_tenant_see_and_cancel_theirs_alone(gateway: GatewayCalls) -> None:
    own, others = gateway.begin(line("a")), gateway.begin(line("a"), tenant="beta")
    ops = token_of(person(Role.OPERATOR, ["acme"]))
    assert [each["id"] for each in ops.get("/batches").json()["items"]] == [own]
    assert ops.get(f"/batches/{others}").status_code == 404
    assert ops.post(f"/batches/{others}/cancel").status_code == 404
    assert ops.post(f"/batches/{own}/cancel").status_code == 200


def test_pages_follow_each_other(gateway: GatewayCalls, viewer: Rest) -> None:
    ids = [gateway.begin(line("a")) for _ in range(3)]
    first = viewer.get("/batches?limit=2").json()
    assert [each["id"] for each in first["items"]] == [ids[2], ids[1]]
    rest = viewer.get(f"/batches?limit=2&after={first['next']}").json()
    assert ([each["id"] for each in rest["items"]], rest["next"]) == ([ids[0]], None)
