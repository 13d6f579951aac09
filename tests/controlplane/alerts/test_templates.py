"""Templates of rules as a real promtool renders them: its unit tests of rules expect what we made of each."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from controlplane.alerts.annotation import refusal, rendered
from tests.services import service_binary

LABELS = {"__name__": "size", "node": "rack-1.it's_a TEST node/é-şß", "empty_part": "", "gpu": "3"}
TEXTS = [
    "{{ $value }}",
    "{{$value}} of {{ .Value }}",
    "{{ $labels.node }}/{{ .Labels.gpu }}/{{ $labels.nothing }}/{{ $labels.__name__ }}",
    "a  {{- $value -}}  b {{ $value }} c",
    "a{{/* nothing */}}b {{- /* nothing */ -}} c",
    "{{ $labels.node | title }} {{ title $labels.node }}",
    "{{ $labels.node | toUpper }} {{ $labels.node | toLower }} {{ $labels.node | toUpper | toLower | title }}",
    *(
        f"{{{{ $value | {name} }}}} {{{{ {name} $value }}}}"
        for name in ("humanize", "humanize1024", "humanizeDuration", "humanizePercentage")
    ),
    '{{ printf "%.2f" $value }} {{ $value | printf "%.0f" }} {{ $value | printf "%f %%" }}',
    '{{ printf "%8.1f|%-8.1f|%+.1f|% .1f|%08.1f" $value $value $value $value $value }}',
    '{{ printf "%e|%.3e|%g|%.3g|%G|%v|%10v" $value $value $value $value $value $value $value }}',
    '{{ printf "%s|%10s|%-10s|%.3s|%v" $labels.gpu $labels.gpu $labels.gpu $labels.node $labels.gpu }}',
    '{{ printf `%s is %.1f` $labels.gpu $value }} {{ (printf "\\"%s\\"" $labels.node) | toUpper }}',
    "no template, { or } alone",
    "LABELS = {{ $labels }} {{ .Labels }}",
    "{{ if gt $value 60.0 }}high{{ else if lt $value 1e-3 }}low{{ else }}as it is{{ end }}",
    *(f"{{{{ {name} $value 60.0 }}}} {{{{ {name} 60. $value }}}}" for name in ("eq", "ne", "lt", "le", "gt", "ge")),
    '{{ if eq $labels.gpu "3" }}three{{ end }}{{ if ne $labels.gpu "3" }}other{{ end }}{{ lt $labels.gpu "4" }}',
    "{{ if $labels.nothing }}some{{ else }}none{{ end }} {{ if $value }}not 0{{ end }} {{ if not $value }}0{{ end }}",
    "a {{- if $labels }} b {{ else -}} c {{ end -}} d",
    "{{ with $labels.gpu }}GPU {{ . | toUpper }} of {{ $labels.node }}{{ else }}a GPU{{ end }}",
    "{{ with $labels.nothing }}{{ . }}{{ else }}{{ with $value }}{{ humanize . }}{{ end }}{{ end }}",
    '{{ if and $labels.gpu $labels.node }}both{{ end }} {{ or $labels.nothing $labels.gpu "x" }} {{ and $value 1.5 }}',
    '{{ if or (gt $value 60.0) (eq $labels.gpu "4") }}{{ if not (lt $value 0.0) }}x{{ end }}{{ end }}',
    '{{ "a" | eq "a" }}',
    '{{ "43200" | humanizeDuration }} {{ humanize "-1234.5" }} {{ humanizePercentage "0.125" }}',
    "{{ if not (eq $value $value) }}NaN{{ end }}",
    *(
        f'{{{{ "{address}" | stripPort }}}} {{{{ stripDomain "{address}" }}}}'
        for address in (
            "n-1.example.com:9100",
            "n-1.example.com",
            "10.0.0.1:9100",
            "10.0.0.1",
            "[::1]:9100",
            "::1",
            "a:b:c",
            "n-1:",
            "[n.b]:1",
            "[]:1",
            ":80",
            "",
            "fe80::1%eth0",
            "[fe80::1%e.x]:1",
        )
    ),
    '{{ "a }} b" }} {{ `raw {{` }}',
]
TIMESTAMPS = ["{{ $value | humanizeTimestamp }}"]
NUMBERS = [
    0.0, 1.0, -1.0, 0.5, 0.97, 91.5, 99.99499, 999.96, 1000.0, 1023.0, 1024.0, 1536.25, 59.99, 60.0, 61.0, 3600.0,
    3661.0, 86400.0, 90061.5, -90061.5, 123456.0, 999999.0, 1e6, 1234567.0, 123456789.0, 1e20, 1e21, 1e22, 1.5e30,
    1e-3, 1.5e-4, 9.9e-5, 1e-5, 1.234e-7, 1e-25, 0.1 + 0.2, 1 / 3, 2**53, 1e19, float("inf"), float("-inf"),
]  # fmt: skip
MOMENTS = [0.0, 1.0, 1772366400.0, 1772366400.5, 1772366400.123456, -1.5, -0.0005, 9e9, float("inf"), float("nan")]
VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-1e6, 1e6)


def promtool_agrees(folder: Path, cases: list[tuple[str, float]]) -> None:
    """Each text is an alert's annotation, and each value a series' sample; all in one file."""
    promtool = service_binary("promtool")
    rules, tests, values = [], [], sorted({repr(value) for _, value in cases})
    labels = {name: text for name, text in LABELS.items() if name != "__name__"}
    series = ", ".join(f'{name}="{text}"' for name, text in labels.items())
    for number, (text, value) in enumerate(cases):
        selector = f'size{{value="v{values.index(repr(value))}"}}'
        rules.append({"alert": f"A{number}", "expr": f"{selector} or {selector}", "annotations": {"text": text}})
        # No series has a label that is empty.
        shown = {**{name: each for name, each in LABELS.items() if each}, "value": f"v{values.index(repr(value))}"}
        expected = rendered(text, shown, value)
        of_series = {name: each for name, each in shown.items() if each and name != "__name__"}
        alert = {"exp_labels": of_series, "exp_annotations": {"text": expected}}
        tests.append({"eval_time": "0m", "alertname": f"A{number}", "exp_alerts": [alert]})
    inputs = [
        {"series": f'size{{{series}, value="v{number}"}}', "values": _written(float(text))}
        for number, text in enumerate(values)
    ]
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    test = {"rule_files": ["rules.yml"], "tests": [{"input_series": inputs, "alert_rule_test": tests}]}
    (folder / "test.yml").write_text(yaml.safe_dump(test))
    done = subprocess.run([promtool, "test", "rules", folder / "test.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _written(value: float) -> str:
    """A sample as promtool's series notation takes it."""
    return repr(value).replace("inf", "Inf").replace("nan", "NaN")


def test_texts_are_rendered_as_promtool_does(tmp_path):
    for text in TEXTS + TIMESTAMPS:
        assert refusal(text) is None
    cases = [*itertools.product(TEXTS, NUMBERS), *itertools.product(TIMESTAMPS, MOMENTS)]
    promtool_agrees(tmp_path, cases)


@given(value=VALUES)
def test_what_was_taken_is_rendered_whatever_the_value_is(value):
    for text in TEXTS + TIMESTAMPS:
        assert isinstance(rendered(text, LABELS, value), str)


@given(
    pieces=st.lists(
        st.sampled_from(
            ["{{ if $value }}", "{{ with $labels.gpu }}", "{{ else }}", "{{ else if $labels.x }}", "{{ end }}",
             "{{ . }}", "{{ .Labels.gpu }}", "{{ $labels }}", "{{- end -}}", " x ", "{{ else with 1.5 }}",
             '{{ range query "up" }}']
        ),
        max_size=12,
    ),
    value=VALUES,
)  # fmt: skip
def test_branches_are_refused_or_rendered_and_nothing_else(pieces, value):
    text = "".join(pieces)
    if refusal(text) is None:
        rendered(text, LABELS, value)


@given(text=st.text('{}|-$ value.Labelstoumnizprfw"%`()/*\\\n0', max_size=40), value=VALUES)
def test_a_text_is_refused_or_rendered_and_nothing_else(text, value):
    if refusal(text) is None:
        rendered(text, LABELS, value)
