"""Forms of engines and of nodes, with the fields of their REST calls."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from controlplane.core.fields import default_of
from controlplane.fleet.models import Engine, EngineKind, Node, Pool
from controlplane.web.forms.alert import NounForm
from controlplane.web.forms.common import SecretForm
from controlplane.web.forms.grouped import name_field
from controlplane.web.forms.inputs import numeric


def _pools() -> list[tuple[str, str]]:
    rows = Pool.objects.order_by("name").values_list("name", "model__name")
    return [(name, f"{name} · {model}") for name, model in rows]


def _nodes() -> list[tuple[str, Any]]:
    names = Node.objects.order_by("name").values_list("name", flat=True)
    return [("", _("none: reached directly, without an agent")), *((name, name) for name in names)]


class EngineForm(NounForm):
    """Of an engine that is there, but its API key, which no form shows."""

    pool = forms.ChoiceField(label=_("Pool"), choices=_pools, help_text=_("Whose requests it takes."))
    node = forms.ChoiceField(
        label=_("Node"), choices=_nodes, required=False, help_text=_("Whose agent watches it and carries out its acts.")
    )
    url = forms.CharField(
        label=_("Address"),
        max_length=300,
        help_text=_("As gateways and its agent reach it, such as http://10.2.0.7:8000."),
    )
    kind = forms.ChoiceField(label=_("Kind"), choices=EngineKind.choices)
    served_model = forms.CharField(
        label=_("Served model"),
        max_length=200,
        help_text=_("The model's name at the engine itself, as its /v1/models has it."),
    )
    kv_capacity_tokens = forms.IntegerField(
        label=_("KV cache (tokens)"),
        required=False,
        widget=numeric(),
        help_text=_("Of an engine that no agent watches. Else its agent measures it."),
    )

    @property
    def engine_name(self) -> str:
        """Whose form it is; empty for a new one."""
        return str(self.initial.get("name", "")) if "name" not in self.fields else ""

    def values(self) -> dict[str, Any]:
        return {**self.cleaned_data, "node": self.cleaned_data["node"] or None}

    @staticmethod
    def suggested() -> dict[str, Any]:
        return {"kind": default_of(Engine, "kind")}


class NewEngineForm(EngineForm):
    name = name_field()
    field_order = ("name",)


class NewNodeForm(NounForm):
    name = name_field(
        _("As its agent calls itself. A node that joins with a join token is made by that, and need not be made here.")
    )


class EngineKeyForm(SecretForm):
    """A key that was made elsewhere. It is typed once, and never shown."""

    api_key = forms.CharField(
        label=_("API key"),
        max_length=500,
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text=_("What gateways and its agent send it. Empty: it needs none, and one that is set is removed."),
    )
    field_order = ("api_key", "reason")
