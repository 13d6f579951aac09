"""The filters of the audit's page, named as in the REST call."""

from __future__ import annotations

from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.utils.translation import gettext_lazy as _
from pydantic import ValidationError

from controlplane.core.audit import Search
from controlplane.web.forms.alert import MomentField
from controlplane.web.forms.common import RefusableForm
from controlplane.web.forms.inputs import numeric
from controlplane.web.labels import NOUNS, noun_label

# What people limited to some tenants find entries of.
NOUNS_OF_TENANTS = {"tenant", "key"}
_FIRST = ("actor", "noun", "key", "action", "reason")
_ACTIONS = [("", _("all actions")), ("create", _("made")), ("update", _("changed")), ("delete", _("removed"))]


class AuditForm(RefusableForm):
    """What is left empty takes all. `search` has what is found, once the form is valid."""

    actor = forms.CharField(label=_("Who"), required=False, help_text=_("A name; of a token owner/name."))
    noun = forms.ChoiceField(label=_("Kind of object"), required=False)
    key = forms.CharField(label=_("Its name"), required=False)
    action = forms.ChoiceField(label=_("Action"), choices=_ACTIONS, required=False)
    reason = forms.CharField(label=_("Words of the reason"), required=False)
    since = MomentField(label=_("From"), required=False)
    until = MomentField(label=_("Until"), required=False)
    revision = forms.IntegerField(label=_("Revision"), required=False, widget=numeric())
    change_id = forms.UUIDField(label=_("Change"), required=False, help_text=_("Its id, as REST answers a write."))
    address = forms.CharField(label=_("Address of the client"), required=False)

    def __init__(self, *args: Any, whole_fleet: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = NOUNS if whole_fleet else NOUNS_OF_TENANTS
        nouns = sorted(((noun, noun_label(noun)) for noun in known), key=lambda each: each[1].casefold())
        self.fields["noun"].choices = [("", _("all kinds")), *nouns]  # type: ignore[attr-defined]
        self.search = Search.model_validate({})

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        try:
            self.search = Search.model_validate(
                {name: value for name, value in cleaned.items() if value not in (None, "")}
            )
        except ValidationError as error:
            for problem in error.errors():
                self.add_error(str(problem["loc"][0]), problem["msg"])
        return cleaned

    def asked(self) -> dict[str, Any]:
        """The query of the REST call that finds the same."""
        if not self.is_valid():
            return {}
        return {name: str(value) for name, value in self.cleaned_data.items() if value not in (None, "")}

    @property
    def first(self) -> list[BoundField]:
        return [self[name] for name in _FIRST]

    @property
    def others(self) -> list[BoundField]:
        return [field for field in self if field.name not in _FIRST]

    @property
    def others_used(self) -> bool:
        return any(field.value() or field.errors for field in self.others)
