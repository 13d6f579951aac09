from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from controlplane.alerts.annotation import refusal, rendered
from controlplane.alerts.rule_queries import QUERIES_MAX, Allowance, RuleQueries
from controlplane.alerts.template_parts import RANGE_MAX, TEXT_MAX, Found
from controlplane.telemetry.promql.errors import BadQuery, QueryError, TooMuch, Unavailable
from controlplane.telemetry.results import Sample

LABELS = {"node": "n-1", "gpu": "3"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GPU {{ $labels.gpu }} of {{$labels.node}} at {{ $value }} °C", "GPU 3 of n-1 at 91.5 °C"),
        ("{{- $value -}}", "91.5"),
        ("on {{ $labels.pool }}.", "on ."),
        ("no template, { or }", "no template, { or }"),
    ],
)
def test_labels_and_the_value_are_put_in(text, shown):
    assert refusal(text) is None
    assert rendered(text, LABELS, "91.5") == shown


def test_what_a_label_holds_is_no_template():
    assert rendered("{{ $labels.node }}", {"node": "{{ $value }}"}, "1") == "{{ $value }}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{{ humanize $labels.node }}", "humanize takes one number"),
        ("{{ humanize }}", "humanize takes one number"),
        ('{{ humanize "a lot" }}', "humanize takes one number"),
        ("{{ humanize $value $value }}", "humanize takes one number"),
        ("{{ $value | toUpper }}", "toUpper takes one text"),
        ('{{ $value | printf "%d" }}', "%d of a number"),
        ('{{ $labels.node | printf "%.1f" }}', "%f of a text"),
        ('{{ printf "%f" }}', "more arguments"),
        ('{{ printf "%f" $value $value }}', "fewer arguments"),
        ('{{ printf "%#f" $value }}', "%#f of a number"),
        ('{{ printf "%1000f" $value }}', "100 places"),
        ("{{ printf $labels.node }}", "as a quoted text"),
        ('{{ printf "%" $value }}', "% of a number"),
        ('{{ "\\x41" }}', "escape"),
        ('{{ query "up" }}', "a query's result is no text"),
        ('{{ query "up" | first }}', "a series is no text"),
        ("{{ query $value }}", "query takes one text"),
        ("{{ first $labels }}", "first takes a query's result"),
        ('{{ query "up" | label "x" }}', "label takes a text, a series"),
        ("{{ range $labels }}x{{ end }}", "range takes a query"),
        ('{{ range query "up" }}{{ range query "up" }}x{{ end }}{{ end }}', "a range in a range"),
        (
            '{{ range query "up" }}{{ if $value }}{{ range query "up" }}x{{ end }}{{ end }}{{ end }}',
            "a range in a range",
        ),
        ('{{ range query "up" }}x{{ else range query "up" }}{{ end }}', "is not supported"),
        ('{{ range query "up" }}{{ .Nothing }}{{ end }}', ".Nothing is not known"),
        ('{{ with query "up" }}{{ .Value }}{{ end }}', "where . is no series"),
        ("{{ $x := $value }}", "$x"),
        ("{{ if gt $value 1 }}x{{ end }}", "write 1.0"),
        ("{{ if gt $value $labels.node }}x{{ end }}", "gt takes two numbers or two texts, not number, text"),
        ("{{ if eq $labels }}x{{ end }}", "eq takes two"),
        ("{{ if and $value $labels.node }}x{{ end }}", "and takes things of one kind"),
        ("{{ if not }}x{{ end }}", "not takes one"),
        ("{{ if $value }}x", "{{ if $value }} has no {{ end }}"),
        ("{{ if }}x{{ end }}", "missing"),
        ("{{ if $value }}x{{ else }}y{{ else }}z{{ end }}", "{{ else }} has no place"),
        ("{{ if $value }}x{{ else $value }}y{{ end }}", "{{ else $value }} is not supported"),
        ("{{ if $value }}x{{ end 5 }}", "{{ end 5 }} has no place"),
        ("x{{ end }}", "{{ end }} ends nothing"),
        ("x{{ else }}", "{{ else }} ends nothing"),
        ("{{ . }}", ". is not known"),
        ("{{ with $labels.node }}{{ .Value }}{{ end }}", "write $value"),
        ("{{ if $value }}" * 20 + "{{ end }}" * 20, "in one another"),
        ("{{ if $value }}" + "{{ else if $value }}" * 20 + "{{ end }}", "in one another"),
        ('{{ printf "%s" $labels }}', "no set of labels"),
        ("{{ $labels | humanize }}", "humanize takes one number"),
        ("{{ $labels.a.b }}", "$labels.a.b"),
        ("{{ $externalLabels.cluster }}", "$externalLabels.cluster"),
        ("{{ $externalURL }}", "externalURL"),
        ("{{ $value | $value }}", "no function"),
        ("{{ $value $value }}", "no place"),
        ("{{ $value | }}", "missing"),
        ("{{ ($value }}", "bracket"),
        ("{{ " + "(" * 20 + "$value" + ")" * 20 + " }}", "brackets"),
        ("{{ $value" + " | not" * 400 + " }}", "pipes one after the other"),
        ("{{ 5 }}", "write 5.0"),
        ("{{}}", "{{}}"),
        ("{{ $value", "braces"),
        ("$value }}", "braces"),
        ("{{ {{ $value }} }}", "braces }}"),
    ],
)
def test_everything_else_is_refused_by_name(text, names):
    assert names in (refusal(text) or "")


class Store:
    """A metric store of one answer, or that has none; `asked` is what it was asked."""

    def __init__(self, answer: Sequence[Sample] | QueryError) -> None:
        self._answer = answer
        self.asked: list[str] = []

    def instant(self, promql: str) -> Sequence[Sample]:
        self.asked.append(promql)
        if isinstance(self._answer, QueryError):
            raise self._answer
        return self._answer


def test_what_a_text_asks_is_asked_once():
    store = Store([Sample({"node": "n-2"}, 0, 7.0)])
    ask = RuleQueries(store.instant)
    text = '{{ query "up" | first | value }} {{ range query "up" }}{{ .Labels.node }}{{ end }}'
    assert [rendered(text, LABELS, 1.0, ask) for _ in range(3)] == ["7 n-2"] * 3
    assert store.asked == ["up"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([], "first of a query that found nothing"),
        (BadQuery("a comma is missing"), "query up: a comma is missing"),
        (Unavailable("it does not answer"), "it does not answer"),
    ],
)
def test_a_query_without_an_answer_is_told_in_the_texts_place(answer, says):
    shown = rendered('now {{ query "up" | first | value }}', LABELS, 1.0, RuleQueries(Store(answer).instant))
    assert shown.startswith("<error expanding template: ")
    assert says in shown


def test_once_the_store_is_away_no_more_is_asked():
    store = Store(Unavailable("it does not answer"))
    ask = RuleQueries(store.instant)
    for node in ("n-1", "n-2"):
        assert "does not answer" in rendered("{{ query $labels.node | first | value }}", {"node": node}, 1.0, ask)
    assert store.asked == ["n-1"]


def test_a_query_that_finds_too_much_keeps_no_other_from_being_asked():
    store = Store(TooMuch("more samples than there may be"))
    ask = RuleQueries(store.instant)
    for node in ("n-1", "n-2"):
        assert "more samples" in rendered("{{ query $labels.node | first | value }}", {"node": node}, 1.0, ask)
    assert store.asked == ["n-1", "n-2"]


@pytest.mark.parametrize(
    "text",
    [
        "{{ if " + "and (" * 9 + 'query "up"' + ")" * 9 + " }}x{{ end }}",
        "{{ if " + "or (" * 9 + 'query "up"' + ")" * 9 + " }}x{{ end }}",
        '{{ with query "up" }}' + "{{ with and . . . . }}" * 8 + "x" + "{{ end }}" * 9,
    ],
)
def test_each_part_of_a_text_is_worked_out_once(text):
    asked: list[str] = []

    def ask(promql: str) -> Sequence[Found]:
        asked.append(promql)
        return [Found({}, 1.0)]

    assert rendered(text, LABELS, 1.0, ask) == "x"
    assert asked == ["up"]


def test_a_text_that_grows_out_of_itself_is_cut():
    grows = '{{ with printf "%s%s%s%s%s%s%s%s" . . . . . . . . }}'
    text = "{{ with $labels.node }}" + grows * 6 + "{{ . }}" + "{{ end }}" * 7
    assert rendered(text, LABELS, 1.0) == ("n-1" * TEXT_MAX)[:TEXT_MAX]
    assert len(rendered('{{ range query "up" }}{{ .Labels.node }}{{ end }}', LABELS, 1.0, long_labels)) == TEXT_MAX


def long_labels(promql: str) -> Sequence[Found]:
    return [Found({"node": "n" * 1000}, 1.0)] * RANGE_MAX


def test_texts_of_many_series_ask_no_more_than_is_bearable():
    store = Store([Sample({}, 0, 1.0)])
    ask = RuleQueries(store.instant)
    text = "{{ query $labels.node | first | value }}"
    shown = [rendered(text, {"node": f"n-{number}"}, 1.0, ask) for number in range(QUERIES_MAX + 1)]
    assert (shown[QUERIES_MAX - 1], len(store.asked)) == ("1", QUERIES_MAX)
    assert f"more than {QUERIES_MAX}" in shown[QUERIES_MAX]


def test_texts_that_ask_for_long_keep_no_other_rule_waiting():
    store, now = Store([Sample({}, 0, 1.0)]), iter(range(0, 100, 4))
    ask = RuleQueries(store.instant, clock=lambda: float(next(now)))
    text = "{{ query $labels.node | first | value }}"
    shown = [rendered(text, {"node": node}, 1.0, ask) for node in ("a", "b", "c")]
    assert shown[:2] == ["1", "1"]
    assert "takes longer than 5 s" in shown[2]
    assert store.asked == ["a", "b"]


def test_texts_of_many_rules_ask_no_longer_than_a_round_has():
    store, now = Store([Sample({}, 0, 1.0)]), itertools.count(0, 4)
    in_round = Allowance(10)
    text = "{{ query $labels.node | first | value }}"
    shown = [
        rendered(text, {"node": node}, 1.0, RuleQueries(store.instant, in_round, clock=lambda: float(next(now))))
        for node in ("a", "b", "c", "d")
    ]
    assert shown[:3] == ["1"] * 3
    assert "of all rules of a round ask takes longer than 10 s" in shown[3]
    assert store.asked == ["a", "b", "c"]


def test_a_range_over_more_than_anyone_reads_is_told_so():
    found = [Sample({"node": f"n-{number}"}, 0, 1.0) for number in range(RANGE_MAX + 1)]
    ask = RuleQueries(Store(found).instant)
    shown = rendered('{{ range query "up" }}{{ .Labels.node }}{{ end }}', LABELS, 1.0, ask)
    assert f"{RANGE_MAX} are the most" in shown
