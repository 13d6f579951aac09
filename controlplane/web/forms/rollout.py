"""Forms that begin a rollout, one a kind, with fields named as in REST. What may be asked is the service's to say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from django import forms
from django.forms import BoundField
from django.utils.translation import gettext_lazy as _

from controlplane.fleet.models import Engine, Model, Pool
from controlplane.rollouts import asked
from controlplane.rollouts.models import Kind
from controlplane.web.forms.alert import LinesField
from controlplane.web.forms.arguments import ArgumentsField
from controlplane.web.forms.common import RefusableForm
from controlplane.web.forms.inputs import code, numeric
from controlplane.web.forms.rollout_fields import ConditionsField, EnginesField, ShiftsField
from wire.canonical import Document

_ENGINES_HELP = _(
    "Empty where the pool has its engines. Else one a line: next-1 http://10.0.0.5:8000 llama node=rack-5. The pool is "
    "then made for them."
)
_PROMPTS_HELP = _("One a line: how prompts begin, so that the caches are warm. Every viewer can read them.")
_RETIRES = (
    ("stop", _("stop them: their GPUs are free")),
    ("sleep", _("put them to sleep: a warm spare")),
    ("leave", _("leave them running, out of service")),
)


class Part(NamedTuple):
    """Fields under a title. `folded`: most people leave them as they are."""

    title: Any
    names: tuple[str, ...]
    folded: bool = False


_READY = Part(
    _("Warm-up and limits"),
    ("prompts", "schemas", "requests", "limit_seconds", "start_limit_seconds", "check_limit_seconds"),
    folded=True,
)


def _whole(label: Any, help_text: Any = "") -> forms.IntegerField:
    return forms.IntegerField(label=label, help_text=help_text, widget=numeric())


class RolloutForm(RefusableForm):
    """`pool`: the one that was chosen before, or None."""

    kind: ClassVar[str]
    parts: ClassVar[tuple[Part, ...]]
    # Groups of fields in the REST call.
    within: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __init__(self, pool: Pool | None, data: Any = None) -> None:
        self.chosen = pool
        initial = {**self._defaults(), "pool": pool and pool.name}
        super().__init__(data, initial={**initial, **self.suggested()})

    def suggested(self) -> dict[str, Any]:
        """What stands in the form beside the REST call's own defaults."""
        return {}

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        fields = asked.KINDS[cls.kind].model_fields
        found = {name: field.default for name, field in fields.items() if not field.is_required()}
        for group in cls.within:
            found |= found.pop(group).model_dump()
        if "steps" in found:
            found["steps"] = [step.model_dump() for step in found["steps"]]
        return {name: value for name, value in found.items() if value is not None}

    def body(self) -> Document:
        """What the REST call takes; what is left empty is left out."""
        given = {name: value for name, value in self.cleaned_data.items() if value not in ("", None, [], {})}
        for group, names in self.within.items():
            inner = {name: given.pop(name) for name in names if name in given}
            given[group] = inner
        return {"kind": self.kind, **given}

    def shown(self) -> Iterator[tuple[Part, list[BoundField], bool]]:
        """The parts, their fields, and whether one stands open."""
        for part in self.parts:
            fields = [self[name] for name in part.names]
            yield part, fields, not part.folded or any(field.errors for field in fields)

    def _offer(self, name: str, choices: list[str], none: Any = None) -> None:
        first = [] if none is None else [("", none)]
        self.fields[name].choices = [*first, *((each, each) for each in choices)]  # type: ignore[attr-defined]


class _OfPool(RolloutForm):
    """About the pool that was chosen, which stands in the form and is not changed there."""

    pool = forms.ChoiceField(label=_("Pool"), disabled=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer("pool", [self.chosen.name] if self.chosen else [])


class _Readied(RolloutForm):
    within: ClassVar[dict[str, tuple[str, ...]]] = {"warm_up": ("prompts", "schemas", "requests", "limit_seconds")}

    prompts = LinesField(label=_("Warm-up prompts"), required=False, help_text=_PROMPTS_HELP)
    schemas = LinesField(
        label=_("Warm-up schemas"), required=False, help_text=_("JSON Schemas of answers, one a line.")
    )
    requests = _whole(_("Warm-up requests of each"))
    limit_seconds = _whole(_("Warm-up, at most (seconds)"))
    start_limit_seconds = _whole(_("Start, at most (seconds)"))
    check_limit_seconds = _whole(_("Check, at most (seconds)"))


class RedBlackForm(_OfPool, _Readied):
    kind = Kind.RED_BLACK.value
    parts = (
        Part(_("The two sides"), ("pool", "new_pool", "model", "engines")),
        Part(_("How traffic moves"), ("steps", "keep_warm_seconds", "retire")),
        Part(
            _("What it is watched by"),
            ("window_seconds", "minimum_requests", "tolerance_percent", "tolerance_permille", "floor_ms",
             "go_on_unjudged", "conditions"),
            folded=True,
        ),
        _READY,
    )  # fmt: skip
    within: ClassVar[dict[str, tuple[str, ...]]] = {
        **_Readied.within,
        "watch": (
            "window_seconds", "minimum_requests", "tolerance_percent", "tolerance_permille", "floor_ms",
            "go_on_unjudged",
        ),
    }  # fmt: skip

    new_pool = forms.CharField(
        label=_("New pool"), help_text=_("One that has engines and no traffic yet, or a new name with engines below.")
    )
    engines = EnginesField(3, label=_("Its engines"), required=False, help_text=_ENGINES_HELP)
    model = forms.ChoiceField(
        label=_("Its model"), required=False, help_text=_("Of a pool that is made here; else its own.")
    )
    steps = ShiftsField(
        5,
        label=_("Shares of the traffic"),
        help_text=_("One a line: the share of the new side, and how long it lasts."),
    )
    keep_warm_seconds = _whole(_("Keep the old side warm (seconds)"), _("After it, going back takes a start."))
    retire = forms.ChoiceField(label=_("Then the old engines"), choices=_RETIRES, help_text=_("Drained first."))
    window_seconds = _whole(_("Judged over (seconds)"))
    minimum_requests = _whole(_("From so many requests on"))
    tolerance_percent = _whole(_("Times may be longer by (%)"))
    tolerance_permille = _whole(_("Shares of requests may be worse by (‰)"))
    floor_ms = _whole(_("Times below are never too long (ms)"))
    go_on_unjudged = forms.BooleanField(label=_("Goes on by itself where too few requests came"), required=False)
    conditions = ConditionsField(
        3,
        label=_("Own conditions instead"),
        required=False,
        help_text=_("One a line, as name (from so many requests on): PromQL. Empty: TTFT, TPOT, errors, retries, "
                    "goodput and breakers of the new side beside the old."),
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer("model", _names(Model), _("that of the old pool"))

    def suggested(self) -> dict[str, Any]:
        return {"new_pool": f"{self.chosen.name}-next" if self.chosen else ""}


class VersionedForm(_Readied):
    kind = Kind.VERSIONED.value
    parts = (
        Part(_("The version"), ("family", "version", "model", "route_order")),
        Part(_("Its pool"), ("pool", "like", "engines")),
        _READY,
    )

    family = forms.CharField(label=_("Family"), help_text=_("The name that clients send for the newest version."))
    version = forms.CharField(label=_("Version"), help_text=_("Such as 2026-05."))
    model = forms.ChoiceField(label=_("Model"), help_text=_("That clients of this version reach."))
    route_order = _whole(_("Order of its route"), _("Where no route leads to it yet."))
    pool = forms.CharField(label=_("Pool"), help_text=_("One that has engines, or a new name with engines below."))
    engines = EnginesField(3, label=_("Its engines"), required=False, help_text=_ENGINES_HELP)
    like = forms.ChoiceField(label=_("With the settings of"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer("model", _names(Model))
        self._offer("like", _names(Pool), _("none"))

    def suggested(self) -> dict[str, Any]:
        return {"pool": "", "like": self.chosen.name if self.chosen else ""}


class _WithEngines(RolloutForm):
    """Of some engines of the pool that was chosen."""

    engines = forms.MultipleChoiceField(label=_("Engines"), widget=forms.CheckboxSelectMultiple)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows = Engine.objects.filter(pool=self.chosen).order_by("name")
        self._offer("engines", [row.name for row in rows if self.takes(row)])

    @staticmethod
    def takes(engine: Engine) -> bool:
        return not engine.held_out_by


class RollingRestartForm(_OfPool, _WithEngines):
    kind = Kind.ROLLING_RESTART.value
    parts = (
        Part(_("What is started anew"), ("pool", "engines", "max_unavailable", "arguments")),
        Part(
            _("Limits"),
            ("drain_limit_seconds", "restart_limit_seconds", "check_limit_seconds", "capacity_may_fall_percent"),
            folded=True,
        ),
    )

    engines = forms.MultipleChoiceField(
        label=_("Engines"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_(
            "None ticked: all. Each node's own policy, the file that HEADWORKS_AGENT_POLICY_FILE of its agent names, "
            "must allow drain and restart of its engines."
        ),
    )
    max_unavailable = _whole(_("At a time, at most"), _("One that takes work is always left."))
    arguments = ArgumentsField(
        label=_("New arguments"),
        required=False,
        widget=code(3),
        help_text=_("Of vLLM, one a line, such as max-num-seqs=64. Empty: the pool's own."),
    )
    drain_limit_seconds = _whole(_("Drain, at most (seconds)"))
    restart_limit_seconds = _whole(_("Restart, at most (seconds)"))
    check_limit_seconds = _whole(_("Check, at most (seconds)"))
    capacity_may_fall_percent = _whole(_("KV capacity may fall by (%)"))


class ToSpareForm(_WithEngines):
    kind = Kind.TO_SPARE.value
    parts = (Part(_("Which engines sleep"), ("engines", "drain_limit_seconds")),)

    drain_limit_seconds = _whole(_("Drain, at most (seconds)"))


class FromSpareForm(_WithEngines, _Readied):
    kind = Kind.FROM_SPARE.value
    parts = (Part(_("Which engines come back"), ("engines",)), _READY)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        spares = [name for name, _label in self.fields["engines"].choices]  # type: ignore[attr-defined]
        if len(spares) == 1:
            self.initial["engines"] = spares

    @staticmethod
    def takes(engine: Engine) -> bool:
        return engine.held_out_by.startswith("rollout ")


FORMS: dict[str, type[RolloutForm]] = {
    form.kind: form for form in (RedBlackForm, RollingRestartForm, VersionedForm, ToSpareForm, FromSpareForm)
}
# What each is for, and whether it is about a pool that there is.
SAYS = {
    Kind.RED_BLACK: _("New engines beside the old; traffic moves over in steps, and back by itself on a breach."),
    Kind.ROLLING_RESTART: _(
        "The engines of a pool are started anew, a few at a time, with other arguments if need be."
    ),
    Kind.VERSIONED: _("A new version is made ready and becomes the newest of its family; the others stay."),
    Kind.TO_SPARE: _("Engines sleep as warm spares: their weights stay in host memory, their GPUs are free."),
    Kind.FROM_SPARE: _("Spares, and what an ended rollout left out of service, come back."),
}


class ChoiceForm(RefusableForm):
    """Which kind, of which pool: the address of the form itself."""

    kind = forms.ChoiceField(
        label=_("What is to be done"),
        choices=[(kind.value, kind.label) for kind in SAYS],
        widget=forms.RadioSelect,
    )
    pool = forms.ChoiceField(label=_("Of which pool"), required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["pool"].choices = [("", "–"), *((name, name) for name in _names(Pool))]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not cleaned.get("pool") and cleaned.get("kind") not in (None, Kind.VERSIONED):
            self.add_error("pool", _("Choose a pool."))
        return cleaned

    def kinds(self) -> list[tuple[str, Any, Any, bool]]:
        """Value, name, what it is for, and whether it is chosen."""
        chosen = self["kind"].value() or Kind.RED_BLACK
        return [(kind.value, kind.label, says, kind.value == chosen) for kind, says in SAYS.items()]


def _names(row: type[Model] | type[Pool]) -> list[str]:
    return list(row._default_manager.order_by("name").values_list("name", flat=True))
