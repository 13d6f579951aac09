"""Forms of a large fleet: a page holds each list of names once, and what is typed is read as what is chosen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django import forms
from django.http import QueryDict
from django.test import Client

from controlplane.core.changes import UnitOfWork
from controlplane.fleet.services import MODELS, POOLS
from controlplane.routing.models import Route
from controlplane.tenants import services as tenants
from controlplane.tenants.models import Tenant
from controlplane.web.forms.common import RefusableForm
from controlplane.web.forms.long_choices import CHOICES_MAX
from tests.web.asking import applied, page
from tests.web.conftest import digest_of, write

pytestmark = pytest.mark.django_db
FORMS = ["/routes-new/", "/planner/", "/planner/promise/", "/breakers/overrides-new/", "/engines-new/"]


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


@pytest.fixture
def many() -> None:
    def make(unit: UnitOfWork) -> None:
        for number in range(CHOICES_MAX + 5):
            MODELS.create(unit, f"model-{number}", {"max_context_tokens": 8192})
            POOLS.create(unit, f"pool-{number}", {"model": f"model-{number}"})
            tenants.create(unit, f"team-{number}", {})

    write(make)


class Chooser(RefusableForm):
    one = forms.ChoiceField(required=False)
    other = forms.ChoiceField()
    several = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple, help_text="None: any.")

    def __init__(self, count: int, data: QueryDict | None = None) -> None:
        super().__init__(data)
        names = [(f"n-{number}", f"n-{number}") for number in range(count)]
        self.fields["one"].choices = [("", "none"), *names]  # type: ignore[attr-defined]
        self.fields["other"].choices = [("a group", names)]  # type: ignore[attr-defined]
        self.fields["several"].choices = names  # type: ignore[attr-defined]


def test_few_are_chosen_from_a_list() -> None:
    form = Chooser(CHOICES_MAX - 1)
    assert "<select" in str(form["one"])
    assert str(form["several"]).count('type="checkbox"') == CHOICES_MAX - 1
    assert form.name_lists == []


def test_many_are_typed_and_one_list_completes_them_all() -> None:
    form = Chooser(CHOICES_MAX + 1)
    one, other = str(form["one"]), str(form["other"])
    assert 'list="names-0"' in one
    assert 'list="names-0"' in other
    assert 'placeholder="none"' in one
    assert "required" in other
    assert "required" not in one
    assert str(form["several"]).startswith("<textarea")
    assert form["several"].help_text == "One name a line. None: any."
    (names,) = form.name_lists
    assert len(names.options) == CHOICES_MAX + 1


def test_what_is_typed_is_read_as_what_is_chosen() -> None:
    form = Chooser(CHOICES_MAX + 1, QueryDict("one=n-3&other=n-4&several=n-1%0D%0A++n-2%0A"))
    assert form.is_valid(), form.errors
    assert form.cleaned_data == {"one": "n-3", "other": "n-4", "several": ["n-1", "n-2"]}
    # As the review carries it on: one input each.
    carried = Chooser(CHOICES_MAX + 1, QueryDict("other=n-4&several=n-1&several=n-2"))
    assert carried.is_valid(), carried.errors
    assert carried.cleaned_data["several"] == ["n-1", "n-2"]
    assert carried["several"].as_hidden().count('value="n-') == 2


def test_what_is_no_choice_is_refused_at_its_field_and_kept() -> None:
    form = Chooser(CHOICES_MAX + 1, QueryDict("one=nobody&other=&several=n-1%0Anobody"))
    assert set(form.errors) == {"one", "other", "several"}
    assert 'value="nobody"' in str(form["one"])
    assert "n-1\nnobody" in str(form["several"])


@pytest.mark.parametrize("path", FORMS)
def test_a_form_holds_each_name_once(path: str, many: None, operator: Client) -> None:
    text = page(operator, path)
    for name in ("pool-54", "team-54"):
        assert len(re.findall(rf'value="(?:pool/)?{name}"', text)) <= 1, name
    # Every list that an input names is there.
    assert set(re.findall(r'list="(names-\d+)"', text)) == set(re.findall(r'<datalist id="(names-\d+)"', text)) != set()


def test_a_route_is_made_by_typing_the_names(many: None, operator: Client) -> None:
    typed = {
        "name": "chat", "order": "10", "lines": "3", "pool_0": "pool-1", "weight_0": "100",
        "models": "model-1\nmodel-2",
    }  # fmt: skip
    applied(operator, "/routes-new/", typed)
    row = Route.objects.get()
    assert row.pools == {"pool-1": 1000}
    assert sorted(row.match["models"]) == ["model-1", "model-2"]
    wrong = operator.post("/routes-new/", {**typed, "name": "other", "pool_0": "pool-x", "step": "review"})
    assert wrong.status_code == 422
    assert "pool-x is not one of the available choices" in wrong.content.decode()


def test_more_lines_keep_the_names_that_were_typed(many: None, operator: Client) -> None:
    typed = {"name": "chat", "order": "10", "lines": "3", "pool_0": "pool-1", "models": "model-1\nmodel-2"}
    text = operator.post("/routes-new/", {**typed, "step": "more"}).content.decode()
    assert "model-1\nmodel-2</textarea>" in text
    assert 'name="pool_5"' in text


def test_a_tenants_models_survive_the_way_through_the_review(many: None, operator: Client) -> None:
    write(lambda unit: tenants.update(unit, "team-1", {"models": ["model-3", "model-4"]}))
    text = page(operator, "/tenants/team-1/edit/")
    assert "model-3\nmodel-4</textarea>" in text
    # No browser completes a text of several lines: the names stand below it.
    assert f"<summary>The {CHOICES_MAX + 5} names that there are</summary>" in text
    assert "model-53, model-54" in text or "model-54, " in text
    typed = {"weight": "1", "models": "model-3\nmodel-5", "step": "review"}
    reviewed = operator.post("/tenants/team-1/edit/", typed).content.decode()
    assert reviewed.count('name="models"') == 2
    carried = {**typed, "models": ["model-3", "model-5"], "step": "apply", "reason": "a test"}
    answer = operator.post("/tenants/team-1/edit/", {**carried, "digest": digest_of(reviewed)})
    assert answer.status_code == 302
    assert Tenant.objects.get(name="team-1").models == ["model-3", "model-5"]
