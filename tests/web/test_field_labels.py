"""What a diff calls a field, and in which unit it shows its values: as the form does, with REST's name below."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from django.test import Client

from controlplane.alerts.models import Receiver, Silence
from controlplane.alerts.services.receivers import RECEIVERS
from controlplane.alerts.services.silences import SILENCES
from controlplane.breakers.models import Override
from controlplane.breakers.services import OVERRIDES
from controlplane.core.nouns import Noun
from controlplane.fleet.models import CompatibilityRule, Engine, Node, Pool
from controlplane.fleet.services import COMPATIBILITY_RULES, ENGINES, MODELS, NODES, POOLS
from controlplane.telemetry.models import MetricWriter
from controlplane.telemetry.writers import METRIC_WRITERS
from controlplane.web.differences import NAMING_FIELDS
from controlplane.web.field_labels import FORMS, in_its_unit, place_label
from controlplane.web.templatetags.diffs import as_in_rest
from tests.web.conftest import write

# What is a word of Prometheus stays one.
FORMLESS = {("rule", "alertname")}
# Never shown, so in no diff: their own fields say when they were set.
SECRET = {"api_key", "secret"}


def nouns() -> list[Noun[Any]]:
    """All that the program has."""
    return [kind() for kind in Noun.__subclasses__() if kind.__module__.startswith("controlplane.")]


def nameless(noun: str, fields: Iterable[str]) -> set[str]:
    """Those that a diff calls as in the REST call, but for what names the object itself."""
    rest = set(fields) - SECRET - NAMING_FIELDS
    return {name for name in rest if place_label((name,), noun) == name and (noun, name) not in FORMLESS}


def test_every_field_that_people_write_has_a_name() -> None:
    wanting = {noun.noun: nameless(noun.noun, noun.fields.model_fields) for noun in nouns()}
    assert {noun: fields for noun, fields in wanting.items() if fields} == {}
    assert {"node", "engine", "metric writer", "compatibility rule", "override"} <= wanting.keys()


@pytest.mark.parametrize(
    ("noun", "row"),
    [
        (COMPATIBILITY_RULES, CompatibilityRule(rule={"never": {"kind": "triton"}})),
        (ENGINES, Engine(pool=Pool(name="chat"))),
        (METRIC_WRITERS, MetricWriter()),
        (NODES, Node()),
        (OVERRIDES, Override()),
        (RECEIVERS, Receiver()),
        (SILENCES, Silence()),
    ],
    ids=lambda value: value.noun if isinstance(value, Noun) else "",
)
def test_what_is_told_of_a_row_beside_that_has_a_name_too(noun: Noun[Any], row: Any) -> None:
    assert nameless(noun.noun, noun.describe(row)) == set()


def test_a_nouns_own_form_names_its_field() -> None:
    assert place_label(("max_tokens",), "session limits") == FORMS["session limits"]["max_tokens"].label
    assert place_label(("semantic", "ttl_ms"), "cache policy") == "Semantic cache › Kept for (s)"
    assert place_label(("match", "min_prompt_tokens"), "route") == "Which requests › Prompt tokens, from"
    assert (
        place_label(("schedule", "nights", "tpm_limit"), "tenant")
        == "Other limits by the hour › nights › Tokens per minute"
    )
    assert place_label(("found_later",), "tenant") == "found_later"


@pytest.mark.parametrize(
    ("noun", "place", "text", "shown"),
    [
        ("pool", ("kv_admit_permille",), "905", "90.5"),
        ("pool", ("breaker", "error_permille"), "200", "20"),
        ("session limits", ("idle_ms",), "1500", "1.5"),
        ("alert route", ("group_wait_ms",), "90000", "1m30s"),
        ("tenant", ("tpm_limit",), "60000", "60000"),
        ("pool", ("kv_admit_permille",), "not a number", "not a number"),
        ("something new", ("weight_permille",), "5", "5"),
        ("route", ("pools", "chat"), "70 %", "70 %"),
    ],
)
def test_a_value_has_the_unit_that_its_label_says(noun: str, place: tuple[str, ...], text: str, shown: str) -> None:
    assert in_its_unit(place, noun, text) == shown


def test_the_name_in_rest_is_said_where_it_is_another() -> None:
    assert as_in_rest(("breaker", "error_permille"), "pool") == "breaker.error_permille"
    assert as_in_rest(("cordoned",), "node") == ""
    assert as_in_rest(("found_later",), "node") == ""


@pytest.mark.django_db
def test_a_review_shows_both_names_and_the_unit(operator: Client) -> None:
    def make(unit: Any) -> None:
        MODELS.create(unit, "m", {"max_context_tokens": 8192})
        POOLS.create(unit, "chat", {"model": "m", "kv_admit_permille": 905})

    write(make)
    form = operator.get("/pools/chat/edit/").content.decode()
    # The form as it came, but for one field.
    typed = dict(re.findall(r'<input type="text" name="(\w+)" value="([^"]*)"', form))
    chosen = dict(re.findall(r'<select name="(\w+)".*?<option value="([^"]*)" selected', form, re.DOTALL))
    answer = operator.post("/pools/chat/edit/", {**typed, **chosen, "kv_admit_permille": "80", "step": "review"})
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "<code>kv_admit_permille</code>" in text
    assert "<del>90.5</del>" in text
    assert "<ins>80</ins>" in text
