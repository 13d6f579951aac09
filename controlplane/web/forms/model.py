"""The forms of models and aliases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from controlplane.core.fields import default_of
from controlplane.fleet.models import Artifact, Model
from controlplane.tenants.models import CachePolicy
from controlplane.web.forms.alert import NounForm
from controlplane.web.forms.arguments import ArgumentsField
from controlplane.web.forms.grouped import Group, GroupedForm, model_name_field
from controlplane.web.forms.inputs import code
from controlplane.web.forms.numbers import whole

Choices = list[tuple[str, Any]]
_SHA_SHOWN = 12
# Empty and null alike where they are not set.
_TEXTS = ("tokenizer", "chat_template", "cache_policy", "adapter", "manifest", "files_folder")


def _files(kind: str) -> Callable[[], Choices]:
    def choices() -> Choices:
        found = Artifact.objects.filter(kind=kind).order_by("name", "-pk").values_list("sha256", "name")
        return [("", _("none")), *((sha256, f"{name} · {sha256[:_SHA_SHOWN]}") for sha256, name in found)]

    return choices


def _policies() -> Choices:
    names = CachePolicy.objects.order_by("name").values_list("name", flat=True)
    return [("", _("none")), *((name, name) for name in names)]


def model_choices() -> Choices:
    return [(name, name) for name in Model.objects.order_by("name").values_list("name", flat=True)]


class ModelForm(GroupedForm):
    """The fields of a model, named as in the REST call."""

    max_context_tokens = whole(_("Context (tokens)"), _("Prompt and answer together."), least=1)
    max_tokens = whole(_("Largest max_tokens"), _("Requests for more are cut to this."), least=1)
    default_max_tokens = whole(
        _("max_tokens where none is given"), _("Reserved for an answer of open length."), least=1
    )
    kv_bytes_per_token = whole(
        _("KV cache of a token (bytes)"), _("What the planner and the review of capacity reckon with. 0: not known.")
    )
    tokenizer = forms.ChoiceField(
        label=_("Tokenizer"),
        choices=_files("tokenizer"),
        required=False,
        help_text=_("Gateways count prompts with it; without one they ask an engine, or estimate."),
    )
    chat_template = forms.ChoiceField(
        label=_("Chat template"),
        choices=_files("chat_template"),
        required=False,
        help_text=_("What it adds to a prompt is counted, too."),
    )
    cache_policy = forms.ChoiceField(
        label=_("Cache policy"), choices=_policies, required=False, help_text=_("A tenant's own goes before it.")
    )
    adapter = forms.CharField(
        label=_("LoRA adapter"),
        max_length=63,
        required=False,
        help_text=_("It is this adapter of its pools' engines. Empty: a model of its own."),
    )
    prompt_token_cost_micros = whole(_("Price of a prompt token"), _("Millionths of the fleet's money."))
    output_token_cost_micros = whole(_("Price of an output token"), _("Millionths of the fleet's money."))
    manifest = forms.ChoiceField(
        label=_("Manifest of its files"),
        choices=_files("model_manifest"),
        required=False,
        help_text=_("Which files each node that serves it should have."),
    )
    files_folder = forms.CharField(
        label=_("Folder of its files"),
        max_length=1000,
        required=False,
        help_text=_("On each node, such as /srv/models/llama."),
    )
    cold_start_budget_ms = ArgumentsField(
        label=_("A start may take (ms)"),
        required=False,
        widget=code(3),
        help_text=_("One phase a line, such as total=90000. Slower starts are marked."),
    )

    groups = (
        Group(_("Lengths"), "", ("max_context_tokens", "max_tokens", "default_max_tokens", "kv_bytes_per_token")),
        Group(
            _("How prompts are counted"),
            _("Files are uploaded by POST /api/v1/artifacts."),
            ("tokenizer", "chat_template"),
        ),
        Group(_("How it is served"), "", ("adapter", "cache_policy")),
        Group(
            _("Prices"),
            _("Session limits and usage reckon with them."),
            ("prompt_token_cost_micros", "output_token_cost_micros"),
        ),
        Group(_("Files and starts"), "", ("manifest", "files_folder", "cold_start_budget_ms")),
    )

    def values(self) -> dict[str, Any]:
        return {**self.cleaned_data, **{name: self.cleaned_data[name] or None for name in _TEXTS}}

    @staticmethod
    def suggested() -> dict[str, Any]:
        names = (
            "max_tokens", "default_max_tokens", "kv_bytes_per_token", "prompt_token_cost_micros",
            "output_token_cost_micros",
        )  # fmt: skip
        return {name: default_of(Model, name) for name in names}


class NewModelForm(ModelForm):
    name = model_name_field()


class AliasForm(NounForm):
    model = forms.ChoiceField(
        label=_("Model"),
        choices=model_choices,
        help_text=_("Rules, permissions and limits of this model hold for the alias."),
    )


class NewAliasForm(AliasForm):
    name = model_name_field()
    field_order = ("name",)
