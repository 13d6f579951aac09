"""The form of a cache policy: two caches, each switched on by its own box."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from controlplane.tenants.services.cache_policies import ExactCacheFields, SemanticCacheFields
from controlplane.web.forms.alert import LinesField
from controlplane.web.forms.grouped import Group, GroupedForm, name_field
from controlplane.web.forms.model import Choices, model_choices
from controlplane.web.forms.numbers import percent, seconds, whole
from wire.problems import Problem

_EXACT = tuple(ExactCacheFields.model_fields)
_SEMANTIC = tuple(SemanticCacheFields.model_fields)
_DEFAULT = _("as usual")


def _embedders() -> Choices:
    return [("", _("none")), *model_choices()]


class CachePolicyForm(GroupedForm):
    """A cache's fields are named as in the REST call, after the cache. Those of one that is off are not looked at."""

    exact = forms.BooleanField(label=_("Answer the same request again without an engine"), required=False)
    exact_ttl_ms = seconds(_("Kept for (s)"), empty=_DEFAULT)
    exact_max_entries = whole(_("Answers kept, at most"), empty=_DEFAULT, least=1)
    semantic = forms.BooleanField(label=_("Answer a question that means the same without an engine"), required=False)
    semantic_embedding_model = forms.ChoiceField(
        label=_("Embedding model"), choices=_embedders, required=False, help_text=_("What tells how alike two are.")
    )
    semantic_similarity_permille = percent(
        _("Alike from (%)"), _("Lower hits more often, and is wrong more often."), empty=_DEFAULT
    )
    semantic_ttl_ms = seconds(_("Kept for (s)"), empty=_DEFAULT)
    semantic_max_entries = whole(_("Answers kept, at most"), empty=_DEFAULT, least=1)
    semantic_only_verified = forms.BooleanField(
        label=_("Only answers that somebody approved, or that were verified"), required=False
    )
    semantic_time_bound = LinesField(
        label=_("Words of questions whose answer soon changes"),
        required=False,
        help_text=_("One a line, such as today."),
    )
    semantic_time_bound_ttl_ms = seconds(_("Those are kept for (s)"), empty=_DEFAULT)

    groups = (
        Group(
            _("Exact cache"),
            _("Of the same model and body, where every field counts: temperature and seed, too."),
            ("exact", *(f"exact_{name}" for name in _EXACT)),
        ),
        Group(
            _("Semantic cache"),
            _("A wrong hit is a wrong answer: try it where clients report what was wrong."),
            ("semantic", *(f"semantic_{name}" for name in _SEMANTIC)),
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = dict(kwargs.get("initial") or {})
        for cache in ("exact", "semantic"):
            fields = given.get(cache) or {}
            given |= {f"{cache}_{name}": value for name, value in fields.items()} | {cache: bool(fields)}
        kwargs["initial"] = given
        super().__init__(*args, **kwargs)

    def values(self) -> dict[str, Any]:
        name = {"name": self.cleaned_data["name"]} if "name" in self.cleaned_data else {}
        return {**name, "exact": self._cache("exact", _EXACT), "semantic": self._cache("semantic", _SEMANTIC)}

    def _cache(self, cache: str, names: tuple[str, ...]) -> dict[str, Any] | None:
        if not self.cleaned_data[cache]:
            return None
        typed = {name: self.cleaned_data[f"{cache}_{name}"] for name in names}
        return {name: value for name, value in typed.items() if value not in (None, "")}

    def at_field(self, problem: Problem) -> Problem:
        """/semantic/ttl_ms is `semantic_ttl_ms`."""
        cache, _separator, rest = problem.path.removeprefix("/").partition("/")
        if cache not in ("exact", "semantic") or not rest:
            return problem
        return Problem(f"/{cache}_{rest.partition('/')[0]}", problem.rule, problem.message)

    @staticmethod
    def suggested() -> dict[str, Any]:
        similarity = SemanticCacheFields.model_fields["similarity_permille"].default
        return {"exact": ExactCacheFields().model_dump(), "semantic": {}, "semantic_similarity_permille": similarity}


class NewCachePolicyForm(CachePolicyForm):
    name = name_field()
