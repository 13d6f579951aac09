from __future__ import annotations

import string

import pytest
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.errors import Malformed, PreconditionFailed
from controlplane.core.preconditions import HEADER_MAX_CHARACTERS, Preconditions, entity_tag
from tests.controlplane.core.racing import at_once

ACME = "/tenants/acme"


@pytest.fixture
def tag(operator):
    """The ETag of a tenant with the weight 1."""
    return operator.post("/tenants", {"name": "acme"})["ETag"]


def if_match(value: str) -> dict[str, str]:
    return {"If-Match": value}


def preconditions_of(**headers: str) -> Preconditions:
    return Preconditions.of(RequestFactory().patch("/", headers=headers))


def test_a_read_and_a_write_of_the_same_state_answer_the_same_strong_tag(operator, viewer, tag):
    assert viewer.get(ACME)["ETag"] == tag
    assert tag.startswith('"')
    assert tag.endswith('"')
    changed = operator.patch(ACME, {"weight": 2})
    assert changed["ETag"] == viewer.get(ACME)["ETag"] != tag
    assert operator.patch(ACME, {"weight": 1})["ETag"] == tag


def test_a_write_of_the_state_that_was_seen_is_done(operator, tag):
    assert operator.patch(ACME, {"weight": 2}, **if_match(tag)).json()["item"]["weight"] == 2


def test_a_write_of_another_state_is_refused_with_the_tag_that_counts_now(operator, viewer, tag):
    now = operator.patch(ACME, {"weight": 2})["ETag"]
    for answer in (operator.patch(ACME, {"weight": 3}, **if_match(tag)), operator.delete(ACME, **if_match(tag))):
        assert (answer.status_code, answer.json()["code"], answer["ETag"]) == (412, "stale", now)
        (problem,) = answer.json()["problems"]
        assert (problem["path"], problem["rule"]) == ("/If-Match", "stale")
        assert now in problem["message"]
    assert viewer.get(ACME).json()["weight"] == 2


def test_one_of_several_tags_is_enough(operator, tag):
    other = entity_tag({"name": "another"})
    assert operator.patch(ACME, {"weight": 2}, **if_match(f"{other}, {tag}")).status_code == 200


def test_a_dry_run_compares_too_and_answers_no_tag_of_what_is_not_there(operator, tag):
    dry = operator.patch(f"{ACME}?dry_run=true", {"weight": 2}, **if_match(tag))
    assert dry.status_code == 200
    assert "ETag" not in dry
    stale = operator.patch(f"{ACME}?dry_run=true", {"weight": 2}, **if_match('"another"'))
    assert stale.status_code == 412


def test_any_state_will_do_but_there_must_be_one(operator, tag):
    assert operator.patch(ACME, {"weight": 2}, **if_match("*")).status_code == 200
    assert operator.patch("/tenants/nobody", {"weight": 2}, **if_match("*")).status_code == 404


def test_only_what_is_not_there_yet_is_created(operator, viewer, tag):
    taken = operator.post("/tenants", {"name": "acme", "weight": 5}, **{"If-None-Match": "*"})
    assert (taken.status_code, taken.json()["code"], taken["ETag"]) == (412, "exists", tag)
    assert taken.json()["problems"][0]["path"] == "/If-None-Match"
    assert operator.post("/tenants", {"name": "globex"}, **{"If-None-Match": "*"}).status_code == 201
    assert viewer.get(ACME).json()["weight"] == 1


def test_what_is_to_be_created_matches_nothing(operator):
    answer = operator.post("/tenants", {"name": "acme"}, **if_match("*"))
    assert (answer.status_code, answer.json()["code"]) == (412, "stale")
    assert "ETag" not in answer


@pytest.mark.parametrize(
    ("headers", "path", "rule"),
    [
        (if_match('W/"abc"'), "/If-Match", "weak"),
        (if_match('"abc", W/"def"'), "/If-Match", "weak"),
        (if_match("abc"), "/If-Match", "entity_tag"),
        (if_match(""), "/If-Match", "entity_tag"),
        (if_match('"a" "b"'), "/If-Match", "entity_tag"),
        (if_match('*, "a"'), "/If-Match", "entity_tag"),
        (if_match('"a\x7f"'), "/If-Match", "entity_tag"),
        (if_match(f'"{"a" * HEADER_MAX_CHARACTERS}"'), "/If-Match", "entity_tag"),
        ({"If-None-Match": '"abc"'}, "/If-None-Match", "any"),
    ],
)
def test_a_header_that_cannot_be_read_is_refused_by_name(operator, viewer, tag, headers, path, rule):
    answer = operator.patch(ACME, {"weight": 2}, **headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]] == [(path, rule)]
    assert viewer.get(ACME)["ETag"] == tag


def test_a_call_that_compares_nothing_says_so_instead_of_ignoring_it(operator, admin):
    operator.post("/nodes", {"name": "n1"})
    answer = operator.post("/nodes/n1/cordon", **if_match("*"))
    assert (answer.status_code, answer.json()["problems"][0]["rule"]) == (400, "not_served")
    assert not operator.get("/nodes/n1").json()["cordoned"]


@pytest.mark.django_db(transaction=True)
def test_of_two_edits_of_one_state_at_once_one_is_done(operator, viewer):
    tag = operator.post("/tenants", {"name": "acme"})["ETag"]
    answers: list[int] = []

    def edit(weight: int) -> None:
        answers.append(operator.patch(ACME, {"weight": weight}, **if_match(tag)).status_code)

    assert at_once(lambda: edit(2), lambda: edit(3)) == [None, None]
    assert sorted(answers) == [200, 412]


tags = st.lists(st.text(string.ascii_letters + "!#,/", max_size=5).map('"{}"'.format), min_size=1, max_size=4)


@given(tags, st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3) | st.none(), max_size=3))
def test_a_list_is_read_as_it_was_written(given_tags, row):
    wanted = preconditions_of(if_match=", ".join(given_tags))
    assert wanted.if_match == set(given_tags)
    with pytest.raises(PreconditionFailed) as refused:
        wanted.check(lambda: row)
    assert refused.value.etag == entity_tag(row)
    Preconditions(wanted.if_match | {entity_tag(row)}, False).check(lambda: row)


@given(st.text(max_size=30).filter(lambda text: text.strip() != "*"))
def test_no_other_header_is_taken(text):
    try:
        read = preconditions_of(if_match=text).if_match
    except Malformed:
        return
    assert read
    assert all(tag.startswith('"') and tag.endswith('"') and len(tag) > 1 for tag in read)


@given(st.dictionaries(st.text(max_size=3), st.integers(), min_size=2, max_size=4))
def test_a_tag_is_of_the_content_and_not_of_its_order(row):
    assert entity_tag(dict(reversed(row.items()))) == entity_tag(row)
    name = next(iter(row))
    assert entity_tag({**row, name: row[name] + 1}) != entity_tag(row)
