"""The page of acts: what was asked and what became of it; asking for one; taking one back."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.translation import override

from controlplane.core.fields import epoch_ms
from controlplane.core.models import Target
from controlplane.fleet.models import Act, Engine, Node
from controlplane.fleet.services import acts, take_report
from controlplane.web.labels import ACTIONS, ARGUMENTS
from controlplane.web.states import look_of
from tests.web.conftest import digest_of, new_target, write
from tests.web.hardware import node
from wire.acts import ACTIONS as REQUESTS
from wire.messages import ActReport, EngineReport, FoundEngine, NodeReport

ACTS, SLEEP = "/acts/", "/acts-new/sleep/?engine=llama-a"


@pytest.fixture
def rack(db: None) -> Node:
    """A node with an engine, whose policy allows to put that to sleep and to release the GPUs."""
    node("rack-1", engines=["llama-a"])
    new_target("node", "rack-1")
    Node.objects.update(allowed_acts={"": ["release_gpus"], "llama-a": ["sleep"]})
    return Node.objects.get()


def asked(**fields: Any) -> Act:
    act: Act = write(lambda unit: acts.create(unit, {"action": "sleep", "engine": "llama-a", **fields}))
    return act


def told(act: Act, state: Any, **facts: Any) -> None:
    report = ActReport(act.act_id, state, epoch_ms(timezone.now()), **facts)
    take_report("rack-1", NodeReport(version="1", acts=[report]), timezone.now())


def row_of(page: str, act: Act) -> str:
    start = page.index(f'id="act-{act.act_id}"')
    return page[start : page.index("</tr>", start)]


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_an_act_is_asked_for_through_the_review_and_then_in_the_list(rack: Node, operator: Client) -> None:
    form = operator.get(SLEEP).content.decode()
    assert '<option value="2">' in form
    values = {"level": "2", "expires_in_seconds": "5"}
    review = operator.post(SLEEP, {**values, "step": "review"}).content.decode()
    assert "sleep llama-a" in text_of(review)
    assert "&quot;expires_in_seconds&quot;: 300" in review
    assert not Act.objects.exists()
    apply = {**values, "step": "apply", "reason": "make room", "digest": digest_of(review)}
    answer = operator.post(SLEEP, apply)
    assert (answer.status_code, answer["Location"].split("?")[0]) == (302, ACTS)
    act = Act.objects.get()
    assert (act.action, act.arguments, act.reason, act.issued_by) == (
        "sleep", {"level": 2}, "make room", "operator-person",
    )  # fmt: skip
    assert round((act.expires_at - act.issued_at).total_seconds()) == 300
    row = text_of(row_of(operator.get(ACTS).content.decode(), act))
    assert all(words in row for words in ("waiting", "Put to sleep", "level=2", "llama-a", "make room", "Cancel"))


def test_the_list_says_in_words_what_became_of_each(rack: Node, viewer: Client) -> None:
    refused, done, running = asked(), asked(), asked()
    told(refused, "refused", reason="not_allowed", detail="this node allows nothing")
    told(done, "done", took_ms=1840, detail="sleeps <at> level 1")
    told(running, "running", took_ms=12_000, progress_permille=429)
    page = viewer.get(ACTS).content.decode()
    assert "refused" in (row := text_of(row_of(page, refused)))
    assert "not_allowed: this node allows nothing" in row
    assert "1.8 s" in text_of(row_of(page, done))
    assert "sleeps &lt;at&gt; level 1" in row_of(page, done)
    assert "running" in text_of(row_of(page, running))
    assert "42 %" in text_of(row_of(page, running))
    assert "Cancel" not in page
    assert row_of(viewer.get(f"{ACTS}?state=done").content.decode(), done)
    assert running.act_id not in viewer.get(f"{ACTS}?state=done").content.decode()
    assert "No act is like that." in viewer.get(f"{ACTS}?state=failed&node=rack-1").content.decode()


def test_pages_follow_each_other(rack: Node, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.web.views.acts.ROWS_PER_PAGE", 1)
    first, second = asked(), asked()
    page = viewer.get(f"{ACTS}?node=rack-1").content.decode()
    assert second.act_id in page
    address = re.search(r'href="(/acts/\?node=rack-1&amp;before=\d+)"', page)
    assert address, page
    following = viewer.get(address[1].replace("&amp;", "&")).content.decode()
    assert first.act_id in following
    assert second.act_id not in following


def test_only_what_the_node_allows_can_be_chosen_and_the_rest_says_why_not(rack: Node, operator: Client) -> None:
    page = operator.get("/acts-new/?engine=llama-a").content.decode()
    assert re.findall(r'href="/acts-new/([a-z_]+)/\?engine=llama-a"', page) == ["sleep"]
    assert "The policy of node rack-1 does not allow it." in page
    assert "Only for Triton." in page
    page = operator.get("/acts-new/?node=rack-1").content.decode()
    assert re.findall(r'href="/acts-new/([a-z_]+)/\?node=rack-1"', page) == ["release_gpus"]
    Node.objects.update(reported_at=None)
    assert "has not reported yet" in operator.get("/acts-new/?engine=llama-a").content.decode()


def test_without_a_subject_all_are_there_to_choose_from(rack: Node, operator: Client) -> None:
    page = operator.get("/acts-new/").content.decode()
    assert 'href="?node=rack-1"' in page
    assert 'href="?engine=llama-a"' in page


@pytest.mark.parametrize(
    "path",
    [
        "/acts-new/dance/?engine=llama-a",
        "/acts-new/sleep/?node=rack-1",
        "/acts-new/sleep/",
        "/acts-new/sleep/?engine=nobody",
        "/acts-new/?node=nobody%00",
        "/acts/nobody/cancel/",
    ],
)
def test_what_is_not_there_is_not_found(rack: Node, operator: Client, path: str) -> None:
    assert operator.get(path).status_code == 404


def test_a_node_that_is_not_there_was_asked_for_nothing(rack: Node, operator: Client) -> None:
    shown = operator.get("/acts/?node=nobody")
    assert shown.status_code == 200
    assert "No act is like that." in shown.content.decode()


def test_what_the_service_refuses_stands_at_its_field(rack: Node, operator: Client) -> None:
    path = "/acts-new/restart/?engine=llama-a"
    typed = {"arguments": "Max=1", "limit_seconds": "9999", "expires_in_seconds": "60", "step": "review"}
    answer = operator.post(path, typed)
    assert answer.status_code == 422
    page = answer.content.decode()
    assert "A name consists of a-z, 0-9" in page
    assert "Give 3,600 or less." in page
    answer = operator.post(path, {**typed, "arguments": "no value"})
    assert "as name=value, not “no value”" in answer.content.decode()
    answer = operator.post(path, {**typed, "arguments": "max-num-seqs=1\n--max-num-seqs=2"})
    assert "“max-num-seqs” is given twice." in answer.content.decode()
    assert not Act.objects.exists()


def test_a_node_whose_agent_is_revoked_is_said_to_have_none(rack: Node, operator: Client) -> None:
    Target.objects.update(revoked_at=timezone.now())
    answer = operator.post(SLEEP, {"level": "1", "expires_in_seconds": "5", "step": "review"})
    assert answer.status_code == 422
    assert "<li>The node has no enrolled agent that could do it.</li>" in answer.content.decode()


def test_new_arguments_are_read_as_switches_numbers_and_texts(rack: Node, operator: Client) -> None:
    path = "/acts-new/restart/?engine=llama-a"
    typed = "max-num-seqs=64\n--enable-lora=true\n gpu-memory-utilization = 0.9 \nserved-model-name=007\n"
    values = {"arguments": typed, "limit_seconds": "900", "expires_in_seconds": "60"}
    review = operator.post(path, {**values, "step": "review"}).content.decode()
    operator.post(path, {**values, "step": "apply", "reason": "x", "digest": digest_of(review)})
    assert Act.objects.get().arguments == {
        "arguments": {
            "max-num-seqs": 64,
            "enable-lora": True,
            "gpu-memory-utilization": "0.9",
            "served-model-name": "007",
        },
        "limit_seconds": 900,
    }


def test_a_drain_shows_in_its_review_that_it_cordons(rack: Node, operator: Client) -> None:
    typed = {"limit_seconds": "600", "expires_in_seconds": "60", "step": "review"}
    review = text_of(operator.post("/acts-new/drain/?engine=llama-a", typed).content.decode())
    assert "engine llama-a" in review
    assert "Cordoned no yes" in review


def test_an_act_that_waits_is_cancelled_through_the_review(rack: Node, operator: Client) -> None:
    act = asked()
    path = f"/acts/{act.act_id}/cancel/"
    review = operator.get(path).content.decode()
    operator.post(path, {"step": "apply", "reason": "no more", "digest": digest_of(review)})
    act.refresh_from_db()
    assert act.state == "cancelled"
    begun = asked()
    told(begun, "running")
    assert "only one that waits can be cancelled" in operator.get(f"/acts/{begun.act_id}/cancel/").content.decode()


def test_an_engines_condition_is_a_word_and_its_start_is_told(rack: Node, viewer: Client) -> None:
    engine = EngineReport(
        name="llama-a",
        state="up",
        condition="sleeping",
        started_at_ms=epoch_ms(timezone.now()) - 3 * 3_600_000,
        arguments={"max-num-seqs": "128"},
        start_phases_ms={"load": 41_000},
        model_path="/models/llama",
        model_bytes=16 << 30,
        probes={"json_schema": "failed"},
    )
    found = FoundEngine("http://127.0.0.1:8009", "sglang", models=["Qwen/Qwen3-8B"])
    take_report("rack-1", NodeReport(version="1", engines=[engine], found_engines=[found]), timezone.now())
    for path in ("/fleet/", "/fleet/rack-1/"):
        page = text_of(viewer.get(path).content.decode())
        assert "sleeping" in page
        assert "failed: json_schema" in page
    assert "max-num-seqs: 128" in page
    assert "/models/llama · 16 GiB" in page
    assert "41,000 ms" in page
    assert "3 h ago" in page
    html = viewer.get("/fleet/rack-1/").content.decode()
    assert "&quot;url&quot;: &quot;http://127.0.0.1:8009&quot;" in html
    assert "1 more engine found" in viewer.get("/fleet/").content.decode()


def test_what_a_silent_agent_said_of_an_engine_is_not_shown_as_so(rack: Node, viewer: Client) -> None:
    Engine.objects.update(condition="hung")
    Node.objects.update(reported_at=timezone.now() - timedelta(hours=3))
    page = viewer.get("/fleet/").content.decode()
    assert "hung" not in text_of(page[page.index('id="engines"') :])


def test_every_action_and_argument_has_a_name_for_people() -> None:
    assert ACTIONS.keys() == REQUESTS.keys()
    assert ARGUMENTS.keys() == {name for request in REQUESTS.values() for name in request.__struct_fields__}


def test_a_refused_act_is_called_otherwise_than_a_target_that_refuses() -> None:
    with override("tr"):
        assert str(look_of("act_refused").label) == "reddedildi" != str(look_of("refused").label)
