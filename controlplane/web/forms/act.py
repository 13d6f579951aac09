"""The form of an act: its fields are the arguments that wire/acts.py lists for the action."""

from __future__ import annotations

from typing import Any

import msgspec
from django import forms
from django.utils.translation import gettext_lazy as _
from msgspec import inspect

from controlplane.web.forms.arguments import ArgumentsField
from controlplane.web.forms.common import RefusableForm, ScaledField
from controlplane.web.forms.inputs import numeric
from controlplane.web.labels import argument_label
from wire.acts import ACTIONS
from wire.problems import Problem

_EXPIRES_SECONDS = 3600


class ActForm(RefusableForm):
    """What is asked of an agent. Whether it may be is decided by the service, by wire/acts.py."""

    expires_in_seconds = ScaledField(
        60,
        label=_("Begun within (minutes)"),
        initial=_EXPIRES_SECONDS,
        decimal_places=2,
        help_text=_("After that its agent begins it no more."),
    )

    def __init__(self, action: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        request = inspect.type_info(ACTIONS[action])
        assert isinstance(request, inspect.StructType)  # noqa: S101 - every entry of ACTIONS is one
        arguments = {field.name: _field_of(field) for field in request.fields}
        self._arguments = list(arguments)
        self.fields = {**arguments, **self.fields}

    def arguments(self) -> dict[str, Any]:
        """As the service takes them; one that was left empty is not given."""
        given = {name: self.cleaned_data.get(name) for name in self._arguments}
        return {name: value for name, value in given.items() if value not in (None, "", {})}

    def at_field(self, problem: Problem) -> Problem:
        """What is wrong with the subject, which has no field, is said at the top."""
        of_subject = problem.path in ("/engine", "/node")
        path = "" if of_subject else problem.path.removeprefix("/arguments") or problem.path
        return Problem(path, problem.rule, problem.message)


def _field_of(field: inspect.Field) -> forms.Field:
    label, help_text = argument_label(field.name)
    options: dict[str, Any] = {"label": label, "help_text": help_text, "required": field.required}
    kind = field.type
    if isinstance(kind, inspect.LiteralType):
        choices = [(value, value) for value in kind.values]
        chosen = int if isinstance(kind.values[0], int) else str
        return forms.TypedChoiceField(choices=choices, coerce=chosen, initial=field.default, **options)
    if isinstance(kind, inspect.DictType):
        widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false"})
        return ArgumentsField(widget=widget, **options)
    if isinstance(kind, inspect.IntType):
        initial = None if field.default is msgspec.NODEFAULT else field.default
        return forms.IntegerField(widget=numeric(), initial=initial, **options)
    return forms.CharField(**options)
