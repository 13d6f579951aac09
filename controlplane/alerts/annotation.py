"""Texts of rules with the labels and the value of the series they are about. Pure.

Of Prometheus' template language there is `{{ $labels.name }}` and `{{ $value }}`; everything else is refused when the
rule is written, and not shown half-rendered to somebody on call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_PART = re.compile(r"{{-?\s*(.*?)\s*-?}}", re.DOTALL)
_LABEL = re.compile(r"\$labels\.([a-zA-Z_][a-zA-Z0-9_]*)")
_VALUE = "$value"
KNOWN = "there are {{ $labels.name }} and {{ $value }}"


def refusal(text: str) -> str | None:
    """What is not known here, or None where all of it is."""
    for part in _PART.finditer(text):
        inner = part.group(1)
        if inner != _VALUE and not _LABEL.fullmatch(inner):
            return f"{part.group(0)} is not supported; {KNOWN}"
    rest = _PART.sub("", text)
    return f"braces that nothing closes or opens; {KNOWN}" if "{{" in rest or "}}" in rest else None


def rendered(text: str, labels: Mapping[str, str], value: str) -> str:
    """The text of one series. A label that it does not have is empty, as with Prometheus."""

    def put(part: re.Match[str]) -> str:
        label = _LABEL.fullmatch(part.group(1))
        return labels.get(label.group(1), "") if label else value

    return _PART.sub(put, text)
