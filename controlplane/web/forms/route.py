"""Forms of routing rules, and of the request that the tester is asked about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from django import forms
from django.db.models import Max
from django.forms.boundfield import BoundField
from django.http import QueryDict
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from controlplane.fleet.models import Alias, Model, Pool
from controlplane.routing.models import Route
from controlplane.routing.services import MatchFields
from controlplane.tenants.models import PriorityClass
from controlplane.web.forms.alert import LinesField, NounForm
from controlplane.web.forms.common import RefusableForm, ScaledField
from controlplane.web.forms.inputs import code, numeric
from controlplane.web.shown.route_order import STEP
from controlplane.web.shown.route_words import ESCALATIONS
from wire.problems import Problem

# Lines for pools that a form begins with, how many "more" adds, and how many there can be.
LINES_MIN, LINES_MORE, LINES_MAX = 3, 3, 100
_MATCH, _CASCADE = tuple(MatchFields.model_fields), ("pool", "escalate_on", "confidence_permille", "max_prompt_tokens")
_NAMES = ("models", "tenants", "priority_classes")


def _tokens(label: Any, initial: int | None = None) -> forms.IntegerField:
    widget = numeric()
    return forms.IntegerField(label=label, required=False, min_value=0, initial=initial, widget=widget)


def _names(row: Any) -> list[str]:
    return list(row.objects.order_by("name").values_list("name", flat=True))


def _choices(names: Iterable[str], none: Any = None) -> list[tuple[str, Any]]:
    return [*([("", none)] if none is not None else []), *((name, name) for name in names)]


class TrialFields(RefusableForm):
    """A request by its sizes. Fields named as in the REST call, behind `try_`."""

    try_model = forms.CharField(label=_("Model"), required=False)
    try_tenant = forms.CharField(label=_("Tenant"), required=False)
    try_priority_class = forms.ChoiceField(label=_("Priority class"), required=False)
    try_prompt_tokens = _tokens(_("Prompt tokens"), initial=1000)
    try_max_tokens = _tokens("max_tokens", initial=256)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        models = forms.Select(choices=_choices(sorted(chain(_names(Model), _names(Alias))), ""))
        self.fields["try_model"].widget = models
        classes = _classes()
        # One is always meant; without any the form says that it is needed.
        self.fields["try_priority_class"].choices = _choices(classes, None if classes else "")  # type: ignore[attr-defined]

    def trial(self) -> dict[str, Any]:
        """What the tester is asked."""
        asked = {name.removeprefix("try_"): self.cleaned_data.get(name) for name in TrialFields.base_fields}
        return {**asked, "priority_class": asked["priority_class"] or "", "model": asked["model"] or ""}

    def check_trial(self) -> bool:
        """Whether all is given that the tester needs; what is not says so at its field."""
        for name in TrialFields.base_fields:
            if self.cleaned_data.get(name) in (None, "") and name not in self.errors:
                self.add_error(name, self.fields[name].error_messages["required"])
        return not any(name in self.errors for name in TrialFields.base_fields)

    def trial_fields(self) -> list[BoundField]:
        return [self[name] for name in TrialFields.base_fields]


class TrialForm(TrialFields):
    """The tester beside the list."""

    def at_field(self, problem: Problem) -> Problem:
        return Problem(f"/try_{problem.path.strip('/')}", problem.rule, problem.message)


class SentForm(RefusableForm):
    """A request as a client sends it. What it says is kept nowhere."""

    path = forms.ChoiceField(label=_("Path"))
    body = forms.CharField(
        label=_("Body (JSON)"),
        widget=code(10),
        help_text=_("It is measured as gateways measure it, and kept nowhere."),
    )
    tenant = forms.CharField(label=_("Tenant"), required=False)
    key_prefix = forms.CharField(
        label=_("or the first 8 characters of its key"), required=False, max_length=8, min_length=8
    )
    priority_class = forms.ChoiceField(label="X-Priority-Class", required=False)

    def __init__(self, *args: Any, paths: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["path"].choices = _choices(paths)  # type: ignore[attr-defined]
        self.fields["priority_class"].choices = _choices(_classes(), _("not sent"))  # type: ignore[attr-defined]


class RouteForm(TrialFields, NounForm):
    """A rule by its fields. Lines without a pool are as good as not there.

    `initial` is the rule's public form; it may be what was typed, where there shall be more lines.
    """

    order = forms.IntegerField(
        label=_("Order"),
        min_value=0,
        widget=numeric(),
        help_text=_("Rules are tried from the lowest up; the first that matches decides."),
    )
    models = forms.MultipleChoiceField(
        label=_("Models"), required=False, widget=forms.CheckboxSelectMultiple, help_text=_("None ticked: any.")
    )
    tenants = LinesField(label=_("Tenants"), required=False, help_text=_("One a line. Empty: any."))
    priority_classes = forms.MultipleChoiceField(
        label=_("Priority classes"), required=False, widget=forms.CheckboxSelectMultiple,
        help_text=_("None ticked: any."),
    )  # fmt: skip
    min_prompt_tokens = _tokens(_("Prompt tokens, from"))
    max_prompt_tokens = _tokens(_("Prompt tokens, below"))
    min_max_tokens = _tokens(_("max_tokens, from"))
    max_max_tokens = _tokens(_("max_tokens, below"))
    reject = forms.CharField(
        label=_("Or refuse, with this message"), required=False, max_length=500,
        help_text=_("What the client reads. Leave the pools empty then."),
    )  # fmt: skip
    cascade_pool = forms.ChoiceField(label=_("Ask a smaller model first, in pool"), required=False)
    escalate_on = forms.MultipleChoiceField(
        label=_("Ask the rule's pools after all when"), required=False, widget=forms.CheckboxSelectMultiple,
        choices=list(ESCALATIONS.items()), help_text=_("What makes the smaller model's answer not good enough."),
    )  # fmt: skip
    confidence_permille = ScaledField(
        10, label=_("Mean probability of its tokens, at least (%)"), required=False, min_value=0, max_value=100,
        decimal_places=1,
    )  # fmt: skip
    cascade_max_prompt_tokens = _tokens(_("Longest prompt that it is asked (tokens)"))
    lines = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def __init__(self, data: QueryDict | None = None, *, initial: Mapping[str, Any] | None = None) -> None:
        self._typed = data or QueryDict()
        self._before = dict(initial or {})
        flat = _flat(self._before) if "match" in self._before else self._before
        super().__init__(data, initial=flat)
        count = _line_count(data.get("lines") if data is not None else flat.get("lines"))
        self.initial["lines"] = count
        pools = _choices(_names(Pool), "–")
        for place in range(count):
            self.fields[f"pool_{place}"] = forms.ChoiceField(label=_("Pool"), choices=pools, required=False)
            self.fields[f"weight_{place}"] = ScaledField(
                10, label=_("Share (%)"), min_value=0, max_value=100, decimal_places=1, required=False
            )
            self.fields[f"fallback_{place}"] = forms.ChoiceField(label=_("Fallback"), choices=pools, required=False)
        for name, choices in (("models", _choices(_names(Model))), ("priority_classes", _choices(_classes()))):
            self.fields[name].choices = choices  # type: ignore[attr-defined]
        self.fields["cascade_pool"].choices = _choices(_names(Pool), _("none"))  # type: ignore[attr-defined]

    @staticmethod
    def suggested() -> dict[str, Any]:
        last = Route.objects.aggregate(last=Max("order"))["last"]
        return {"order": (last or 0) + STEP}

    @property
    def count(self) -> int:
        return sum(name.startswith("pool_") for name in self.fields)

    @property
    def more_lines(self) -> bool:
        return self.count < LINES_MAX

    def group(self, *names: str) -> Iterator[BoundField]:
        return (self[name] for name in names)

    def naming(self) -> list[BoundField]:
        return list(self.group(*(name for name in ("name", "order") if name in self.fields)))

    def matching(self) -> list[BoundField]:
        return list(self.group(*_NAMES))

    def sizes(self) -> list[BoundField]:
        return list(self.group(*(name for name in _MATCH if name not in _NAMES)))

    def pool_lines(self) -> list[tuple[BoundField, BoundField]]:
        return [(self[f"pool_{place}"], self[f"weight_{place}"]) for place in range(self.count)]

    def fallback_lines(self) -> list[BoundField]:
        return [self[f"fallback_{place}"] for place in range(self.count)]

    def cascading(self) -> list[BoundField]:
        return list(self.group("cascade_pool", "escalate_on", "confidence_permille", "cascade_max_prompt_tokens"))

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        pools = self._once("pool")
        for place in range(self.count):
            pool, weight = cleaned.get(f"pool_{place}"), cleaned.get(f"weight_{place}")
            if pool and weight is None and f"weight_{place}" not in self.errors:
                self.add_error(f"weight_{place}", gettext("Give its share."))
            elif weight and not pool:
                self.add_error(f"pool_{place}", gettext("Choose the pool that gets this share."))
        self._once("fallback")
        total = sum(cleaned.get(f"weight_{place}") or 0 for place in pools)
        if pools and not self.errors and total != 1000:
            text = gettext("The shares sum to %(total)s %%; they must sum to 100 %%.")
            self.add_error(f"weight_{pools[0]}", text % {"total": f"{total / 10:g}"})
        if bool(pools) == bool(cleaned.get("reject")) and not self.errors:
            self.add_error(None, gettext("Give either pools with their shares, or the message of a refusal."))
        if not cleaned.get("cascade_pool") and cleaned.get("escalate_on"):
            self.add_error("cascade_pool", gettext("Choose the pool that is asked first."))
        return cleaned

    def _once(self, kind: str) -> list[int]:
        """The lines that name a pool; one that is named twice is said to be."""
        seen: set[str] = set()
        places = [place for place in range(self.count) if self.cleaned_data.get(f"{kind}_{place}")]
        for place in places:
            pool = self.cleaned_data[f"{kind}_{place}"]
            if pool in seen:
                self.add_error(f"{kind}_{place}", gettext("“%(name)s” is given twice.") % {"name": pool})
            seen.add(pool)
        return [place for place in places if f"{kind}_{place}" not in self.errors]

    def values(self) -> dict[str, Any]:
        """The rule in its public form, with its name where that is asked for."""
        given = self.cleaned_data
        lines = range(self.count)
        pools = {given[f"pool_{place}"]: given[f"weight_{place}"] for place in lines if given[f"pool_{place}"]}
        match = {name: sorted(given[name]) or None if name in _NAMES else given[name] for name in _MATCH}
        named = {"name": given["name"]} if "name" in self.fields else {}
        return {
            **named,
            "order": given["order"],
            "match": match,
            "pools": pools or None,
            "fallbacks": self._fallbacks(),
            "reject": given["reject"] or None,
            "cascade": self._cascade(),
        }

    def _fallbacks(self) -> dict[str, int] | None:
        """Their numbers stay as they are where nobody changed their order."""
        named = [self.cleaned_data[f"fallback_{place}"] for place in range(self.count)]
        wanted, before = [pool for pool in named if pool], self._before.get("fallbacks") or {}
        if before and wanted == _in_order(before):
            return dict(before)
        return {pool: place for place, pool in enumerate(wanted, 1)} or None

    def _cascade(self) -> dict[str, Any] | None:
        given = self.cleaned_data
        if not given["cascade_pool"]:
            return None
        return {
            "pool": given["cascade_pool"],
            "escalate_on": sorted(given["escalate_on"]),
            "confidence_permille": given["confidence_permille"],
            "max_prompt_tokens": given["cascade_max_prompt_tokens"],
        }

    def typed_with_more_lines(self) -> dict[str, Any]:
        """What was typed, for a form with more lines that says nothing of what is still missing."""
        lists = {name for name, field in self.fields.items() if isinstance(field, forms.MultipleChoiceField)}
        typed = {
            name: self._typed.getlist(name) if name in lists else self._typed.get(name, "") for name in self.fields
        }
        return {**typed, "lines": min(LINES_MAX, self.count + LINES_MORE)}

    def at_field(self, problem: Problem) -> Problem:
        return Problem(self._place(problem.path), problem.rule, problem.message)

    def _place(self, path: str) -> str:
        """The field of a problem, where it is not called as the part of the rule that it is about."""
        steps = path.split("/")
        if "cascade" in steps:
            within = {"max_prompt_tokens": "cascade_max_prompt_tokens", "pool": "cascade_pool"}
            field = next((step for step in steps if step in _CASCADE), "pool")
            return f"/{within.get(field, field)}"
        for part, field in (("pools", "pool_0"), ("fallbacks", "fallback_0")):
            if part in steps:
                return f"/{field}"
        return path


class NewRouteForm(RouteForm):
    name = forms.CharField(label=_("Name"), max_length=63, help_text=_("Lower-case letters, digits, '.', '_' and '-'."))


def _flat(route: Mapping[str, Any]) -> dict[str, Any]:
    """A rule's public form as the fields of the form."""
    match, cascade = route["match"] or {}, route["cascade"] or {}
    pools, fallbacks = route["pools"] or {}, _in_order(route["fallbacks"] or {})
    heaviest = sorted(pools.items(), key=lambda item: (-item[1], item[0]))
    return {
        "order": route["order"],
        **{name: match.get(name) for name in _MATCH},
        "reject": route["reject"] or "",
        "cascade_pool": cascade.get("pool", ""),
        "escalate_on": cascade.get("escalate_on", []),
        "confidence_permille": cascade.get("confidence_permille"),
        "cascade_max_prompt_tokens": cascade.get("max_prompt_tokens"),
        **{f"pool_{place}": pool for place, (pool, _weight) in enumerate(heaviest)},
        **{f"weight_{place}": weight for place, (_pool, weight) in enumerate(heaviest)},
        **{f"fallback_{place}": pool for place, pool in enumerate(fallbacks)},
        "lines": max(LINES_MIN, len(pools) + 1, len(fallbacks) + 1),
    }


def _in_order(fallbacks: Mapping[str, int]) -> list[str]:
    return sorted(fallbacks, key=lambda pool: (fallbacks[pool], pool))


def _line_count(given: Any) -> int:
    text = str(given or "")
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 4 else LINES_MIN
    return min(LINES_MAX, max(LINES_MIN, count))


def _classes() -> list[str]:
    return list(PriorityClass.objects.order_by("rank", "name").values_list("name", flat=True))
