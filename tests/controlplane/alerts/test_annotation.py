from __future__ import annotations

import pytest

from controlplane.alerts.annotation import refusal, rendered

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
        ('{{ query "up" }}', "query"),
        ('{{ with query "up" }}{{ . | first | value }}{{ end }}', "with"),
        ("{{ if gt $value 1.0 }}x{{ end }}", "if"),
        ("{{ $labels }}", "$labels"),
        ("{{ $labels.a.b }}", "$labels.a.b"),
        ("{{ $externalLabels.cluster }}", "$externalLabels.cluster"),
        ("{{ $externalURL }}", "externalURL"),
        ("{{ $value | $value }}", "no function"),
        ("{{ $value $value }}", "no place"),
        ("{{ $value | }}", "missing"),
        ("{{ ($value }}", "bracket"),
        ("{{ " + "(" * 20 + "$value" + ")" * 20 + " }}", "brackets"),
        ("{{ 5 }}", "5 is not known"),
        ("{{}}", "{{}}"),
        ("{{ $value", "braces"),
        ("$value }}", "braces"),
        ("{{ {{ $value }} }}", "{{ {{ $value }}"),
    ],
)
def test_everything_else_is_refused_by_name(text, names):
    assert names in (refusal(text) or "")
