"""Decisions as gateways post them: taken once, refused by name, found again and told in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from controlplane.core.fields import EPOCH_MS_MAX, epoch_ms
from controlplane.telemetry.decisions import log
from controlplane.telemetry.decisions.api import DECISIONS_MAX
from controlplane.telemetry.decisions.models import Decision
from tests.controlplane.alerts.conftest import target
from tests.controlplane.conftest import Rest
from tests.controlplane.telemetry.decisions.conftest import decision


def post(gateway: Rest, *decisions: dict[str, Any]) -> None:
    answer = gateway.post("/decisions", list(decisions))
    assert answer.status_code == 200, answer.content
    assert answer.json() == {"taken": len(decisions)}


def listed(viewer: Rest, query: str = "") -> list[str]:
    answer = viewer.get(f"/decisions{query}")
    assert answer.status_code == 200, answer.content
    return [item["request_id"] for item in answer.json()["items"]]


def test_a_decision_is_kept_and_shown(gateway: Rest, viewer: Rest) -> None:
    sent = decision()
    post(gateway, sent)
    (shown,) = viewer.get("/decisions").json()["items"]
    assert epoch_ms(datetime.fromisoformat(shown.pop("at"))) == sent.pop("at")
    assert abs(datetime.fromisoformat(shown.pop("received_at")) - datetime.now(UTC)) < timedelta(minutes=1)
    assert shown == {**sent, "gateway": "gw-1"}


def test_a_decision_counts_once_however_often_it_comes(gateway: Rest, viewer: Rest) -> None:
    first, second = decision(), decision()
    post(gateway, first, first)
    post(gateway, second, first)
    assert listed(viewer) == [second["request_id"], first["request_id"]]


def test_an_id_that_a_client_uses_again_is_another_request(gateway: Rest) -> None:
    sent = decision()
    post(gateway, sent, {**sent, "at": sent["at"] + 1})
    post(target("gateway", "gw-2"), sent)
    assert Decision.objects.count() == 3


def test_names_that_are_not_configured_are_unknown(gateway: Rest, viewer: Rest) -> None:
    post(gateway, decision(tenant="who", pool="Ch\x00at", **{"class": ""}), decision())
    last, first = viewer.get("/decisions").json()["items"]
    assert (first["tenant"], first["class"], first["pool"]) == ("unknown",) * 3
    assert (last["tenant"], last["class"], last["pool"]) == ("acme", "batch", "chat")


def test_what_no_database_can_hold_is_made_such(gateway: Rest, viewer: Rest) -> None:
    post(gateway, decision(request_id="a\x00b", message="\x00" * 2000, at=2**53 - 1, numbers={"left": -(2**53 - 1)}))
    (shown,) = viewer.get("/decisions").json()["items"]
    assert (shown["request_id"], len(shown["message"])) == ("a\ufffdb", 500)
    assert epoch_ms(datetime.fromisoformat(shown["at"])) == EPOCH_MS_MAX
    assert viewer.get(f"/decisions/{quote('a', safe='')}%00b").status_code == 200


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        ({"reason": "Not A Name"}, "/1/reason"),
        ({"stage": "line\n"}, "/1/stage"),
        ({"request_id": "x" * 129}, "/1/request_id"),
        ({"status": 42}, "/1/status"),
        ({"at": -1}, "/1/at"),
        ({"numbers": {"left": 2**53}}, "/1/numbers/left"),
        ({"numbers": {"left": 0.5}}, "/1/numbers/left"),
        ({"numbers": {f"n{number}": 1 for number in range(65)}}, "/1/numbers"),
        ({"message": "x" * 2001}, "/1/message"),
    ],
)
def test_a_body_with_a_broken_decision_is_refused_whole_at_its_place(
    gateway: Rest, broken: dict[str, Any], path: str
) -> None:
    answer = gateway.post("/decisions", [decision(), decision(**broken)])
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json()["problems"]] == [path]
    assert not Decision.objects.exists()


def test_too_many_at_once_are_refused(gateway: Rest) -> None:
    # The shortest that is valid: the body is within its bytes.
    short = {"request_id": "r", "at": 0, "revision": 0, "stage": "s", "reason": "r", "status": 429}
    assert gateway.post("/decisions", [short] * (DECISIONS_MAX + 1)).status_code == 422
    assert gateway.post("/decisions", [short] * DECISIONS_MAX).status_code == 200


def test_a_body_that_is_too_large_is_refused(gateway: Rest) -> None:
    assert gateway.post("/decisions", [decision(message="x" * 2000) for _ in range(1000)]).status_code == 413


def test_only_a_gateway_posts_decisions(gateway: Rest, admin: Rest, outsider: Rest) -> None:
    refused = target("node", "n1").post("/decisions", [decision()])
    assert (refused.status_code, refused.json()["code"]) == (403, "wrong_kind")
    assert admin.post("/decisions", [decision()]).status_code == 401
    assert outsider.post("/decisions", [decision()]).status_code == 401
    assert not Decision.objects.exists()


def test_lists_are_filtered_and_paged(gateway: Rest, viewer: Rest) -> None:
    one, two = decision(), decision(reason="admitted", status=200)
    three, four = decision(tenant="gone"), decision(pool="gone")
    post(gateway, one, two, three, four)
    assert listed(viewer, "?tenant=unknown") == [three["request_id"]]
    assert listed(viewer, "?pool=unknown") == [four["request_id"]]
    assert listed(viewer, "?reason=admitted") == [two["request_id"]]
    assert listed(viewer, "?tenant=acme&pool=chat&reason=tpm_limit") == [one["request_id"]]
    page = viewer.get("/decisions?tenant=acme&limit=2").json()
    assert [item["request_id"] for item in page["items"]] == [four["request_id"], two["request_id"]]
    assert listed(viewer, f"?tenant=acme&limit=2&after={page['next']}") == [one["request_id"]]


def test_a_list_begins_at_a_time_of_receipt(gateway: Rest, viewer: Rest) -> None:
    old, new = decision(), decision()
    post(gateway, old, new)
    Decision.objects.filter(request_id=old["request_id"]).update(received_ms=1_000)
    assert listed(viewer, "?since=1970-01-01T00:00:02Z") == [new["request_id"]]
    assert listed(viewer, "?since=1970-01-01T02:00:01%2B02:00") == [new["request_id"], old["request_id"]]
    assert listed(viewer, "?since=2999-01-01T00:00:00Z") == []
    assert viewer.get("/decisions?since=2030-01-01T00:00:00").status_code == 422


def test_a_refusal_is_told_in_words_with_its_numbers(gateway: Rest, viewer: Rest) -> None:
    sent = decision(request_id="team/a:7", at=1_900_000_000_000)
    post(
        gateway, sent, {**sent, "at": sent["at"] + 1, "reason": "admitted", "status": 200, "message": "", "numbers": {}}
    )
    document = viewer.get("/decisions/team/a:7").json()
    admitted, refused = document["decisions"]
    assert admitted["words"] == (
        "2030-03-17T17:46:40.001Z: gateway gw-1 admitted request team/a:7 of tenant acme (class batch, pool chat) by "
        "revision 7."
    )
    assert refused["words"] == (
        "2030-03-17T17:46:40.000Z: gateway gw-1 refused request team/a:7 of tenant acme (class batch, pool chat) by "
        "revision 7, at stage take_quota with 429 tpm_limit: 500 tokens are asked for and 20 of 60000 tokens a minute "
        "are left; it fits in 0.5 s. In numbers: asked 500, left 20, limit 60,000."
    )
    assert refused["numbers"] == sent["numbers"]


def test_a_request_that_nobody_told_of_says_why(viewer: Rest) -> None:
    answer = viewer.get("/decisions/never-seen")
    assert answer.status_code == 404
    assert "samples" in answer.json()["detail"]


@pytest.mark.django_db(transaction=True)
def test_decisions_touch_no_row_of_the_configuration(gateway: Rest) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        post(gateway, *(decision() for _ in range(600)))
    written = {
        query["sql"].split(" (")[0] for query in queries if not query["sql"].startswith(("SELECT", "BEGIN", "COMMIT"))
    }
    assert all("telemetry_decision" in sql for sql in written), written
    assert not any("FOR UPDATE" in query["sql"] for query in queries)


def test_lists_are_of_one_gateway_and_of_refusals_alone(gateway: Rest, viewer: Rest) -> None:
    one, two, three = decision(), decision(reason="admitted", status=200), decision()
    post(gateway, one, two)
    post(target("gateway", "gw-2"), three)
    assert listed(viewer, "?gateway=gw-2") == [three["request_id"]]
    assert listed(viewer, "?refused=true") == [three["request_id"], one["request_id"]]
    assert listed(viewer, "?refused=false&gateway=gw-1") == [two["request_id"], one["request_id"]]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [({"refused": True}, "decision_refusals"), ({"gateway": "gw-1", "refused": True}, "decision_gateway")],
)
def test_the_newest_refusals_are_found_by_an_index(db: None, wanted: dict[str, Any], index: str) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL reads a small table whole, whatever indexes it has")
    asked: list[tuple[str, Any]] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, *more: Any) -> Any:
        asked.append((sql, params))
        return execute(sql, params, *more)

    with connection.execute_wrapper(note):
        log.page(**wanted)
    [(sql, params)] = asked
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
        plan = " ".join(str(row) for row in cursor.fetchall())
    assert index in plan
    assert "TEMP B-TREE" not in plan
