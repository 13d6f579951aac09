"""Lists that a rollout is asked with, each as lines of text: new engines, shares of traffic, conditions."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from wire.canonical import Document

_SHIFT = re.compile(r"(\d{1,3}(?:[.,]\d)?) ?%?[ ,]+(\d{1,7}) ?(s|min|h)?", re.ASCII)
_SECONDS = {"s": 1, "min": 60, "h": 3600}
_CONDITION = re.compile(r"([^\s:(]+)\s*(?:\((\d{1,7})\))?\s*:\s*(.+)", re.ASCII)
_WORDS_OF_AN_ENGINE = 3
_OF_AN_ENGINE = ("kind", "node", "kv_capacity_tokens")


class _Lines(forms.CharField):
    """Lines of text, each read by `line`."""

    looks = "code long"

    def __init__(self, rows: int, **options: Any) -> None:
        widget = forms.Textarea(attrs={"rows": rows, "class": self.looks, "spellcheck": "false"})
        super().__init__(widget=widget, **options)

    def clean(self, value: Any) -> Any:
        lines = [line.strip() for line in super().clean(value).splitlines()]
        return [self.line(line) for line in lines if line]

    def line(self, text: str) -> Any:
        raise NotImplementedError


class EnginesField(_Lines):
    """New engines by name, as the REST call takes them."""

    def clean(self, value: Any) -> dict[str, Document]:
        named: dict[str, Document] = {}
        for name, engine in super().clean(value):
            if name in named:
                raise ValidationError(_("“%(name)s” is given twice.") % {"name": name})
            named[name] = engine
        return named

    def line(self, text: str) -> tuple[str, Document]:
        words = text.split()
        more = [word.partition("=") for word in words[_WORDS_OF_AN_ENGINE:]]
        if len(words) < _WORDS_OF_AN_ENGINE or any(key not in _OF_AN_ENGINE or not value for key, _is, value in more):
            form = _("Give name, address and served model, then kind=, node= or kv_capacity_tokens=, not “%(line)s”.")
            raise ValidationError(form % {"line": text})
        given = {key: int(value) if value.isascii() and value.isdigit() else value for key, _is, value in more}
        return words[0], {"url": words[1], "served_model": words[2], **given}


class ShiftsField(_Lines):
    """Shares of the traffic, and how long each is watched."""

    looks = "code"

    def line(self, text: str) -> Document:
        read = _SHIFT.fullmatch(text)
        if read is None:
            raise ValidationError(_("Give a share and a time, such as 25 %% 300 s, not “%(line)s”.") % {"line": text})
        share_permille = round(float(read[1].replace(",", ".")) * 10)
        return {"share_permille": share_permille, "for_seconds": int(read[2]) * _SECONDS[read[3] or "s"]}

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return "\n".join(f"{step['share_permille'] / 10:g} % {step['for_seconds']} s" for step in value)


class ConditionsField(_Lines):
    """PromQL by name; in brackets from how many requests on it is judged."""

    def line(self, text: str) -> Document:
        read = _CONDITION.fullmatch(text)
        if read is None:
            form = _("Give a name and an expression, such as errors: …, not “%(line)s”.")
            raise ValidationError(form % {"line": text})
        return {"name": read[1], "minimum_requests": int(read[2] or 0), "expression": read[3]}
