"""The pages of rollouts: the list, one with its steps, and what people do with it."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils.translation import override

from controlplane.rollouts import machine, rules, runner
from controlplane.rollouts.models import Kind, Rollout, State, StepState
from controlplane.web.shown.rollouts import STEP_LABELS
from controlplane.web.states import LOOKS
from tests.web.conftest import digest_of, new_target
from tests.web.hardware import node
from tests.web.rolling import restart_of


@pytest.fixture
def begun(db: None) -> Rollout:
    node("rack-1", engines=["llama-a"])
    new_target("node", "rack-1")
    return restart_of("llama-a")


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_the_list_says_what_each_is_about_and_what_it_says(begun: Rollout, viewer: Client) -> None:
    assert f'href="/rollouts/{begun.pk}/"' in (page := viewer.get("/rollouts/").content.decode())
    assert f"running {begun.pk} · rolling restart {begun.pool}" in text_of(page)


def test_without_any_it_says_what_they_are_for(db: None, viewer: Client) -> None:
    assert "No rollout yet." in viewer.get("/rollouts/").content.decode()


def test_one_shows_its_steps_as_they_stand_and_asks_for_them_anew(begun: Rollout, viewer: Client) -> None:
    runner.look_at_all()
    page = viewer.get(f"/rollouts/{begun.pk}/").content.decode()
    assert 'hx-trigger="published from:body, every 2s"' in page
    steps = re.findall(r'<tr id="step-\d+">.*?</tr>', page, re.DOTALL)
    assert [text_of(step).split(" ", 2)[1] for step in steps] == ["running", *["waiting"] * 4]
    assert "Take out of service llama-a waits for" in text_of(steps[0])
    assert "Pause" not in page


def test_an_operator_pauses_it_through_the_review(begun: Rollout, operator: Client) -> None:
    address = f"/rollouts/{begun.pk}/pause/"
    assert f'href="{address}"' in operator.get(f"/rollouts/{begun.pk}/").content.decode()
    review = operator.get(address).content.decode()
    assert f"/api/v1/rollouts/{begun.pk}/pause" in review
    answer = operator.post(address, {"step": "apply", "reason": "lunch", "digest": digest_of(review)})
    assert answer.status_code == 302, text_of(answer.content.decode())
    begun.refresh_from_db()
    assert begun.state == "paused"
    page = operator.get(f"/rollouts/{begun.pk}/").content.decode()
    assert re.findall(rf'href="/rollouts/{begun.pk}/([a-z]+)/"', page) == ["resume", "return", "abort"]


@pytest.mark.parametrize("verb", ["return", "abort"])
def test_what_is_shown_before_it_ends_is_what_is_done(begun: Rollout, operator: Client, verb: str) -> None:
    address = f"/rollouts/{begun.pk}/{verb}/"
    review = operator.get(address).content.decode()
    answer = operator.post(address, {"step": "apply", "reason": "enough", "digest": digest_of(review)})
    assert answer.status_code == 302, text_of(answer.content.decode())


def test_the_review_says_which_engines_stay_out(begun: Rollout, operator: Client) -> None:
    runner.look_at_all()
    assert "1 engine stays out of service." in operator.get(f"/rollouts/{begun.pk}/abort/").content.decode()
    assert "out of service." not in operator.get(f"/rollouts/{begun.pk}/pause/").content.decode()


def test_a_red_black_one_says_how_much_of_the_traffic_is_on_each_side(begun: Rollout, operator: Client) -> None:
    begun.new_pool, begun.share_permille = "chat-next", 250
    begun.save()
    said = "Now 25 % of the traffic of chat goes to chat-next."
    for verb in ("pause", "abort"):
        assert said in operator.get(f"/rollouts/{begun.pk}/{verb}/").content.decode()
    assert "25 %" in text_of(operator.get(f"/rollouts/{begun.pk}/").content.decode())


def test_what_cannot_be_done_now_says_why(begun: Rollout, operator: Client) -> None:
    answer = operator.get(f"/rollouts/{begun.pk}/resume/")
    assert answer.status_code == 409
    assert "is running" in answer.content.decode()
    assert operator.get(f"/rollouts/{begun.pk}/explode/").status_code == 404
    assert operator.get("/rollouts/999/").status_code == 404


def test_every_state_has_a_look_and_every_step_a_name_in_both_languages() -> None:
    assert {*State.values, *StepState.values} <= LOOKS.keys()
    assert STEP_LABELS.keys() == rules.RULES.keys()
    assert machine.TAKE_BACK in STEP_LABELS
    with override("en"):
        english = [str(label) for label in (*STEP_LABELS.values(), *Kind.labels)]
    with override("tr"):
        turkish = [str(label) for label in (*STEP_LABELS.values(), *Kind.labels)]
    assert not set(english) & set(turkish)
