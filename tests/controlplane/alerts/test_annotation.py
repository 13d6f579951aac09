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
        ("{{ humanize $value }}", "humanize"),
        ('{{ $value | printf "%.1f" }}', "printf"),
        ('{{ query "up" }}', "query"),
        ("{{ .Labels.node }}", ".Labels.node"),
        ("{{ $labels }}", "$labels"),
        ("{{ $externalURL }}", "externalURL"),
        ("{{}}", "{{}}"),
        ("{{ $value", "braces"),
        ("$value }}", "braces"),
        ("{{ {{ $value }} }}", "{{ {{ $value }}"),
    ],
)
def test_everything_else_is_refused_by_name(text, names):
    assert names in (refusal(text) or "")
