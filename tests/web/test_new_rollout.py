"""The form that begins a rollout: from its kind to its plan, and what it refuses."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.models import Engine, Node, Pool
from controlplane.fleet.services import ENGINES, POOLS
from controlplane.rollouts import asked
from controlplane.rollouts.models import Kind, Rollout
from controlplane.routing.services import ROUTES
from controlplane.web.forms.rollout import FORMS
from controlplane.web.forms.rollout_fields import ConditionsField, EnginesField, ShiftsField
from tests.web.conftest import digest_of, new_target, write
from tests.web.hardware import node

NEW = "/rollouts-new/"
ACTS = ["start", "stop", "drain", "restart", "sleep", "wake", "warm_up"]


@pytest.fixture
def pool(db: None) -> str:
    """A pool of two engines that a route leads to."""
    node("rack-1", engines=["llama-a", "llama-b"])
    new_target("node", "rack-1")
    row = Engine.objects.get(name="llama-a")
    assert row.node is not None
    row.node.allowed_acts = dict.fromkeys(("llama-a", "llama-b"), ACTS)
    row.node.save()
    Engine.objects.update(state="up", condition="ok")
    write(lambda unit: ROUTES.create(unit, "all", {"pools": {row.pool.name: 1000}}))
    return row.pool.name


def filled(client: Client, address: str) -> dict[str, Any]:
    """What the form shows, as a browser would send it."""
    form = client.get(address).context["form"]
    return {field.html_name: field.value() for field in form if field.value() not in (None, False)}


def address_of(kind: str, pool: str = "") -> str:
    return f"{NEW}?kind={kind}&pool={pool}"


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_every_kind_is_offered_and_a_pool_is_asked_for(pool: str, admin: Client) -> None:
    page = admin.get(f"{NEW}?pool={pool}").content.decode()
    assert re.findall(r'name="kind" value="(\w+)"', page) == list(FORMS)
    assert f'<option value="{pool}" selected>' in page
    assert FORMS.keys() == asked.KINDS.keys() == set(Kind.values)
    refused = admin.get(address_of("rolling_restart"))
    assert refused.status_code == 422
    assert "Choose a pool." in refused.content.decode()
    assert admin.get(address_of("red_black", "nobody")).status_code == 422
    assert admin.get(address_of("explode", pool)).status_code == 422


@pytest.mark.parametrize("kind", Kind.values)
def test_the_form_as_it_comes_asks_for_what_rest_has_by_default(kind: str, pool: str, admin: Client) -> None:
    address = address_of(kind, pool)
    form = FORMS[kind](Pool.objects.get(name=pool), filled(admin, address))
    form.full_clean()
    required = {name for name, field in asked.KINDS[kind].model_fields.items() if field.is_required()}
    given = {name: value for name, value in form.body().items() if name not in required}
    stated = asked.KINDS[kind].model_construct(**given)
    for name, field in asked.KINDS[kind].model_fields.items():
        if name in given and name not in ("like", "pool"):
            read = (
                type(field.default).model_validate(given[name]) if hasattr(field.default, "model_dump") else given[name]
            )
            default = [step.model_dump() for step in field.default] if name == "steps" else field.default
            assert read == default, (name, stated)


def test_a_rolling_restart_shows_its_plan_and_begins(pool: str, admin: Client) -> None:
    address = address_of("rolling_restart", pool)
    typed = {**filled(admin, address), "engines": ["llama-a"], "arguments": "max-num-seqs=64"}
    review = admin.post(address, {**typed, "step": "review"}).content.decode()
    plan = text_of(review[review.index('id="plan"') : review.index('id="gate"')])
    assert "GPUs before" in plan
    assert "Take out of service llama-a" in plan
    assert "Restart llama-a" in plan
    assert "llama-b" not in plan
    assert not Rollout.objects.exists()
    answer = admin.post(address, {**typed, "step": "apply", "digest": digest_of(review), "reason": "fewer at once"})
    assert answer.status_code == 302
    row = Rollout.objects.get()
    assert (row.kind, row.engines, row.reason) == ("rolling_restart", ["llama-a"], "fewer at once")
    assert row.spec["arguments"] == {"max-num-seqs": 64}
    assert f'href="/rollouts/{row.pk}/"' in admin.get(answer["Location"]).content.decode()


def test_a_red_black_rollout_makes_its_pool_and_says_what_watches_it(pool: str, admin: Client) -> None:
    address = address_of("red_black", pool)
    typed = {
        **filled(admin, address),
        "engines": "next-1 http://10.0.0.9:8000 m node=rack-1 kv_capacity_tokens=90000",
        "steps": "5 % 60 s\n50 % 5 min\n100 % 60 s",
    }
    answer = admin.post(address, {**typed, "step": "review"})
    review = answer.content.decode()
    assert answer.status_code == 200, text_of(review)
    assert "50 % on the new side" in text_of(review)
    assert "ttft_p95" in review
    assert "has no manifest" in review
    # A rollout is no change that some targets could have first.
    assert "/stages-new/" not in review
    applied = admin.post(address, {**typed, "step": "apply", "digest": digest_of(review), "reason": "vLLM 0.32"})
    assert applied.status_code == 302, text_of(applied.content.decode())
    row = Rollout.objects.get()
    assert row.new_pool == f"{pool}-next"
    assert [step["share_permille"] for step in row.spec["steps"]] == [50, 500, 1000]
    assert row.spec["steps"][1]["for_seconds"] == 300
    assert Engine.objects.get(name="next-1").held_out_by == f"rollout {row.pk}"


@pytest.mark.parametrize(
    ("typed", "field", "says"),
    [
        ({"steps": "50 %\n"}, "steps", "such as 25 % 300 s"),
        ({"steps": "50 % 60 s\n25 % 60 s"}, "steps", "give shares that grow"),
        ({"engines": "next-1 http://10.0.0.9:8000"}, "engines", "Give name, address and served model"),
        ({"engines": "next-1 http://10.0.0.9:8000 m kind=nemo"}, "engines", "sglang"),
        ({"conditions": "sum(rate(x[1m]))"}, "conditions", "Give a name and an expression"),
        ({"conditions": "errors: sum((("}, "conditions", ""),
        ({"engines": "", "new_pool": "nobody"}, "new_pool", "does not exist"),
        ({"engines": "", "new_pool": "<script>alert(1)</script>"}, "new_pool", "Give 1 to 63 of a-z"),
        ({"window_seconds": "1"}, "window_seconds", ""),
        ({"schemas": "[]"}, "schemas", "give a JSON schema"),
    ],
)
def test_what_cannot_be_begun_is_said_at_its_field_and_kept(
    typed: dict[str, str], field: str, says: str, pool: str, admin: Client
) -> None:
    address = address_of("red_black", pool)
    form = {**filled(admin, address), "engines": "next-1 http://10.0.0.9:8000 m", **typed, "step": "review"}
    answer = admin.post(address, form)
    assert answer.status_code == 422
    errors = answer.context["form"].errors
    assert list(errors) == [field], errors
    assert says in str(errors[field])
    html = answer.content.decode()
    assert "<script>alert" not in html
    assert answer.context["form"][field].value() == next(value for key, value in form.items() if key == field)
    assert not Rollout.objects.exists()
    assert POOLS.known(f"{pool}-next") is None


def test_going_back_from_the_plan_keeps_what_was_typed(pool: str, admin: Client) -> None:
    address = address_of("red_black", pool)
    page = admin.post(address, {**filled(admin, address), "new_pool": "mine", "step": "edit"}).content.decode()
    assert 'value="mine"' in page


def test_spares_are_chosen_of_those_that_are_out_of_service(pool: str, admin: Client) -> None:
    write(lambda unit: ENGINES.hold_out(unit, "llama-b", "rollout 999"))
    assert 'value="llama-b"' in (page := admin.get(address_of("from_spare", pool)).content.decode())
    assert 'value="llama-a"' not in page
    assert 'value="llama-b"' not in admin.get(address_of("to_spare", pool)).content.decode()
    # The only one is meant.
    assert filled(admin, address_of("from_spare", pool))["engines"] == ["llama-b"]
    write(lambda unit: ENGINES.hold_out(unit, "llama-a", "rollout 998"))
    assert "engines" not in filled(admin, address_of("from_spare", pool))


def test_a_policy_that_does_not_allow_it_is_said_with_where_it_is_written(pool: str, admin: Client) -> None:
    Node.objects.update(allowed_acts={"llama-a": ["drain"]})
    address = address_of("rolling_restart", pool)
    assert "HEADWORKS_AGENT_POLICY_FILE" in admin.get(address).content.decode()
    answer = admin.post(address, {**filled(admin, address), "engines": ["llama-a"], "step": "review"})
    assert answer.status_code == 422
    [said] = answer.context["form"].errors["engines"]
    assert "does not allow restart on llama-a" in said
    assert "HEADWORKS_AGENT_POLICY_FILE" in said


def test_the_way_to_it_is_shown_to_admins_alone(pool: str, admin: Client, operator: Client) -> None:
    assert f'href="{NEW}"' in admin.get("/rollouts/").content.decode()
    assert f'href="{NEW}"' not in operator.get("/rollouts/").content.decode()
    assert f'href="{NEW}?pool={pool}"' in admin.get(f"/pools/{pool}/").content.decode()
    assert NEW not in operator.get(f"/pools/{pool}/").content.decode()


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 604_800)), min_size=1, max_size=20))
def test_shares_are_read_as_they_are_written(steps: list[tuple[int, int]]) -> None:
    given_steps = [{"share_permille": share, "for_seconds": seconds} for share, seconds in steps]
    field = ShiftsField(1)
    assert field.clean(field.prepare_value(given_steps)) == given_steps


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    for field in (ShiftsField(1, required=False), EnginesField(1, required=False), ConditionsField(1, required=False)):
        with contextlib.suppress(ValidationError):
            field.clean(text)
