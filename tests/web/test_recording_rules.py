"""The pages of recording rules: how evaluations went, and the rule file, changed with a diff before."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.core.changes import UnitOfWork
from controlplane.core.fields import epoch_ms
from controlplane.core.models import AuditEntry
from controlplane.telemetry.models import RecordingRule
from controlplane.telemetry.recording import evaluations, rules
from controlplane.telemetry.recording.builtin import builtin
from controlplane.telemetry.recording.rule_text import write_rules
from tests.web.conftest import digest_of, write

PAGE, EDIT, RESET = "/recording-rules/", "/recording-rules/edit/", "/recording-rules/reset/"
OWN = {
    "groups": [
        {
            "name": "short",
            "interval": "30s",
            "rules": [
                {"record": "pool:kv:max", "expr": "max by (pool) (kv)"},
                {"record": "pool:kv:max", "expr": "max(kv)", "labels": {"of": "all"}},
            ],
        }
    ]
}


def put(document: dict[str, Any]) -> None:
    def replace(unit: UnitOfWork) -> None:
        rules.replace(unit, document)

    write(replace)


def get(client: Client, path: str = PAGE) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def changed(page: str) -> dict[str, tuple[str, str]]:
    """What a page of review shows: before and after by place."""
    rows = re.findall(r'<td class="place[^>]*>(.*?)</td><td[^>]*>(.*?)</td><td[^>]*>(.*?)</td>', page)
    return {unescape(place): (_text(before), _text(after)) for place, before, after in rows}


def _text(cell: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", cell))


def review(client: Client, text: str, status: int = 200) -> str:
    answer = client.post(EDIT, {"step": "review", "rule_file": text})
    assert answer.status_code == status
    return answer.content.decode()


def test_before_a_worker_has_come_to_them_the_built_in_rules_say_so(viewer: Client) -> None:
    page = get(viewer)
    for group in builtin()["groups"]:
        assert f"<h2>{group['name']}</h2>" in page
    assert "built in" in page
    assert "No rule was evaluated yet." in page
    assert EDIT not in page


def test_a_rule_shows_when_it_was_evaluated_how_long_that_took_and_what_it_gave(viewer: Client) -> None:
    put(OWN)
    first, second = RecordingRule.objects.order_by("position")
    at = timezone.now() - timedelta(seconds=30)
    evaluations.store(first, at, 1_300, [{"pool": "a"}, {"pool": "b"}])
    evaluations.fail(second, at, 40, "too_many_series: <b>")
    page = get(viewer)
    assert "of this site" in page
    assert "2 rules, every 30s" in page
    assert "No rule was evaluated yet." not in page
    good, bad = re.findall(r"<tr(?: class=\"[^\"]*\")?><td class=\"title words\">.*?</tr>", page, re.DOTALL)
    assert re.search(r"3\d s ago", good)
    assert re.findall(r'<td class="number"[^>]*>([^<]*)</td>', good) == ["1,300 ms", "2"]
    assert "too_many_series: &lt;b&gt;" in bad
    assert "of=&quot;all&quot;" in bad or 'of="all"' in bad
    assert re.findall(r'<td class="number"[^>]*>([^<]*)</td>', bad) == ["40 ms", "–"]


def test_the_whole_rule_file_stands_on_the_page(viewer: Client) -> None:
    put(OWN)
    found = re.search(r'<pre class="shell">(.*?)</pre>', get(viewer), re.DOTALL)
    assert found
    assert unescape(found[1]) == write_rules(OWN)


def test_without_rules_it_says_what_that_means(operator: Client) -> None:
    put({"groups": []})
    page = get(operator)
    assert "Nothing is recorded." in page
    assert RESET in page


def test_a_change_is_shown_rule_by_rule_before_it_is_made(operator: Client) -> None:
    put(OWN)
    text = unescape(re.search(r"<textarea[^>]*>\n?(.*?)</textarea>", get(operator, EDIT), re.DOTALL)[1])  # type: ignore[index]
    assert text == write_rules(OWN)
    # As a browser sends it.
    edited = text.replace("max(kv)", "avg(kv)").replace("30s", "1m").replace("\n", "\r\n")
    page = review(operator, edited)
    assert changed(page) == {
        "Groups › short › interval": ("30s", "1m"),
        'Groups › short › pool:kv:max{of="all"}': ("max(kv)", "avg(kv)"),
    }
    assert rules.current() == OWN
    assert "-X PUT" in unescape(page)

    carried = unescape(re.search(r'name="rule_file" value="(.*?)"', page, re.DOTALL)[1])  # type: ignore[index]
    form = {"step": "apply", "rule_file": carried, "reason": "the mean says more", "digest": digest_of(page)}
    answer = operator.post(EDIT, form)
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    assert rules.current()["groups"][0]["rules"][1]["expr"] == "avg(kv)"
    entry = AuditEntry.objects.latest("pk")
    assert (entry.noun, entry.actor, entry.reason) == ("recording rules", "operator-person", "the mean says more")


def test_new_and_removed_groups_are_shown(operator: Client) -> None:
    put(OWN)
    other = {"groups": [{"name": "long", "rules": [{"record": "pool:kv:avg", "expr": "avg by (pool) (kv)"}]}]}
    shown = changed(review(operator, write_rules(other)))
    assert shown["Groups › long › pool:kv:avg"] == ("not set", "avg by (pool) (kv)")
    assert shown["Groups › short › pool:kv:max"] == ("max by (pool) (kv)", "not set")


def test_the_same_rules_change_nothing(operator: Client) -> None:
    put(OWN)
    assert "Nothing would change." in review(operator, write_rules(OWN))


def test_what_changed_meanwhile_is_shown_anew(operator: Client) -> None:
    put(OWN)
    edited = write_rules(OWN).replace("max(kv)", "avg(kv)")
    digest = digest_of(review(operator, edited))
    put({"groups": [{**OWN["groups"][0], "interval": "2m"}]})
    answer = operator.post(EDIT, {"step": "apply", "rule_file": edited, "reason": "x", "digest": digest})
    assert answer.status_code == 409
    assert "Someone changed this meanwhile." in answer.content.decode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("groups: [", "no YAML at line"),
        ("- a", "give a map with `groups`"),
        ("groups:\n- name: a\n  rules:\n  - {record: kv, expr: kv}\n", "/groups/0/rules/0/record: give level:metric"),
        ("groups:\n- name: a\n  rules:\n  - {record: 'a:b:c', expr: 'sum('}\n", "/groups/0/rules/0/expr"),
        ("groups: []\n" + "#" * (128 << 10), "131072 bytes"),
        ("\x00", ""),
        ("", "This field is required."),
    ],
)
def test_what_is_no_rule_file_is_refused_with_its_place_and_kept_in_the_form(
    operator: Client, text: str, says: str
) -> None:
    page = review(operator, text, 422)
    assert says in unescape(page)
    assert re.search(r"<textarea[^>]*name=\"rule_file\"", page)
    assert rules.current() == builtin()


def test_back_from_the_review_the_text_is_as_it_was_typed(operator: Client) -> None:
    text = "# mine\n" + write_rules(OWN)
    answer = operator.post(EDIT, {"step": "edit", "rule_file": text})
    assert answer.status_code == 200
    assert "# mine" in answer.content.decode()


def test_an_operator_goes_back_to_the_built_in_rules(operator: Client) -> None:
    put(OWN)
    assert RESET in get(operator)
    page = get(operator, RESET)
    assert changed(page)["Groups › short › interval"] == ("30s", "not set")
    answer = operator.post(RESET, {"step": "apply", "reason": "theirs do", "digest": digest_of(page)})
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    assert not rules.is_edited()
    assert "Nothing would change." in get(operator, RESET)


def test_groups_are_evaluated_as_often_as_the_setting_says(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    rules.follow_builtin(epoch_ms(timezone.now()))
    monkeypatch.setenv("HEADWORKS_RECORDING_INTERVAL_SECONDS", "120")
    assert "rules, every 120s" in get(viewer)
